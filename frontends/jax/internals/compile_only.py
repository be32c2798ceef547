"""Devices that exist for the compiler only, and its report on what it has compiled.

The idea: PJRT plugins create "compile-only" devices from a description, any number of them, without
a driver or a network; one of them compiles.  All private parts of jaxlib that this needs beyond
``xla.py`` are here; known to work with jaxlib 0.10.2, the CUDA plugin 0.10.2 and libtpu 0.0.42.

    devices = gpu_devices(table()["h100"], 512)
    executable = compile_for(devices, module, options)
    module_of(executable), memory_of(executable), cost_of(executable)
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client

from flint.frontends.jax.targets.table import CompileTarget, plugin, tpu_topology

#: Variables that libtpu reads from its environment; on a TPU host a metadata server provides them.
TPU_ENVIRONMENT: Mapping[str, str] = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # otherwise only one process of the machine may load it
}

#: The package with JAX's GPU kernels, and its parts.
_HANDLERS = "jax_cuda12_plugin"
_PARTS = ("_hybrid", "_linalg", "_prng", "_rnn", "_solver", "_sparse", "_triton")

#: In the place of ptxas: its version is the real one's, its output a file that is not empty.
_ASSEMBLER = """\
#!/bin/sh
[ "$1" = --version ] && exec {real} --version
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && echo none > "$2"
    shift
done
"""

#: Keys of XLA's cost analysis -> fields of ``CompilerReport``.
_COSTS = {
    "flops": "flops",
    "bytes accessed": "bytes_accessed",
    "transcendentals": "transcendentals",
}
#: Fields of XLA's memory analysis -> fields of ``CompilerReport``.
_SIZES = {
    "argument_size_in_bytes": "argument_bytes",
    "output_size_in_bytes": "output_bytes",
    "temp_size_in_bytes": "temporary_bytes",
    "alias_size_in_bytes": "alias_bytes",
}


@functools.cache
def load_plugin(platform: str) -> Any:
    """The C API of a platform's plugin, "cuda" or "tpu", which is loaded once."""
    found = xla_client.load_pjrt_plugin_dynamically(platform, str(plugin(platform)))
    if platform == "cuda":
        _register_handlers(found)
    return found


def _register_handlers(api: Any) -> None:
    """Register the library calls of JAX's GPU plugin with the GPU compiler, as JAX does.

    It refuses custom calls that it cannot find (cuSOLVER's decompositions, calls of Python).
    """
    extension = importlib.import_module(f"{_HANDLERS}.cuda_plugin_extension")
    for name, number in extension.ffi_types().items():
        extension.register_custom_type(api, name, number)
    handlers = dict(extension.ffi_handlers())
    for part in _PARTS:
        handlers |= importlib.import_module(f"{_HANDLERS}.{part}").registrations()
    traits = xla_client.CustomCallTargetTraits.DEFAULT
    for name, handler in handlers.items():
        extension.register_custom_call_target(api, name, handler, "CUDA", 1, traits)


def gpu_devices(target: CompileTarget, devices: int) -> list[Any]:
    """The first ``devices`` GPUs of a cluster of whole hosts; smaller than a host: all of one."""
    found = load_plugin("cuda")
    on_host = min(int(target.row["devices_per_host"]), devices)
    topology: Any = xla_client.make_c_api_device_topology(
        found, target_config=target.config, topology=f"1x{-(-devices // on_host)}x{on_host}"
    )
    return list(topology._make_compile_only_devices()[:devices])


def tpu_devices(target: CompileTarget, shape: Sequence[int]) -> list[Any]:
    """A slice's devices, in the order in which ``jax.make_mesh`` puts them on a mesh.

    Args:
        target: the TPU family.
        shape: of the mesh; the environment has ``TPU_ENVIRONMENT``.

    Raises:
        UsageError: no slice has that many devices.
    """
    from jax.experimental import mesh_utils

    name, host = tpu_topology(target, math.prod(shape))
    load_plugin("tpu")
    if not xla_client.pjrt_plugin_initialized("tpu"):
        xla_client.initialize_pjrt_plugin("tpu")
    topology: Any = xla_client.make_tfrt_tpu_c_api_device_topology(
        name, chips_per_host_bounds=list(host)
    )
    devices = list(topology._make_compile_only_devices())
    try:
        placed = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    except (AssertionError, NotImplementedError, ValueError):
        return devices  # jax.make_mesh has no place for them: v4's cores, a mesh with odd sizes
    return list(np.asarray(placed).flat)


def compile_for(devices: Sequence[Any], module: bytes, options: Any) -> Any:
    """Compile MLIR bytecode for absent devices.

    Raises:
        Exception: any error of the compiler.
    """
    from flint.stablehlo.read.bindings import parse

    parsed = parse(module, "program")
    return devices[0].client.compile(parsed, _jax.DeviceList(tuple(devices)), options)


def tools(folder: Path) -> Path | None:
    """A CUDA folder for the GPU compiler, with libdevice, and an assembler that does nothing.

    Nobody runs the machine code of absent devices, and assembling it takes longer than deciding
    on the kernels: more than a hundred runs of ptxas for a transformer.  The compiler reads back
    nothing but ptxas's version.

    Args:
        folder: where the folder is made.

    Returns:
        ``None`` if the package with ptxas is not installed: the compiler looks for its own then.
    """
    try:
        found = importlib.util.find_spec("nvidia.cuda_nvcc")
    except ModuleNotFoundError:
        return None
    if found is None or not found.submodule_search_locations:
        return None
    package = Path(next(iter(found.submodule_search_locations)))
    made = folder / "cuda"
    (made / "bin").mkdir(parents=True)
    (made / "nvvm").symlink_to(package / "nvvm")
    assembler = made / "bin" / "ptxas"
    real = shlex.quote(str(package / "bin" / "ptxas"))
    assembler.write_text(_ASSEMBLER.format(real=real), encoding="utf-8")
    assembler.chmod(0o700)
    return made


def set_dump(options: Any, folder: Path) -> None:
    """Make the compiler write modules to a folder, optimised ones among them, as ``HloProto``."""
    debug = options.executable_build_options.debug_options
    debug.xla_dump_to = str(folder)
    debug.xla_dump_hlo_as_proto = True


def set_options(options: Any, chosen: Mapping[str, Any]) -> None:
    """Pass the user's compiler options on, with bools, as XLA does not accept words for them."""
    words = {"true": True, "false": False}
    options.env_option_overrides = [
        (name, words.get(value.lower(), value) if isinstance(value, str) else value)
        for name, value in chosen.items()
    ]


def module_of(executable: Any) -> tuple[bytes, str]:
    """The compiled module, an ``HloModuleProto`` with its schedule, and its text."""
    module = executable.hlo_modules()[0]
    return module.as_serialized_hlo_module_proto(), module.to_string()


def memory_of(executable: Any) -> dict[str, int]:
    """Bytes per device that the compiler has planned, by our names."""
    stats = executable.get_compiled_memory_stats()
    return {name: int(getattr(stats, field)) for field, name in _SIZES.items()}


def cost_of(executable: Any, module: bytes) -> dict[str, float]:
    """The compiler's own cost analysis, by our names.

    For plugins without one (CUDA's), XLA's generic analysis of the compiled module is used, which
    counts nothing for library calls.
    """
    try:
        found = executable.cost_analysis()
    except Exception:  # a plugin's error for a feature that it does not offer
        found = _generic_cost(module)
    if isinstance(found, list):
        found = found[0] if found else {}
    return {name: float(found[key]) for key, name in _COSTS.items() if key in found}


def _generic_cost(module: bytes) -> Any:
    try:
        parsed = xla_client.XlaComputation(module).get_hlo_module()
        return _jax.hlo_module_cost_analysis(xla_client.make_cpu_client(), parsed)
    except Exception:  # an op that the generic analysis does not know
        return {}
