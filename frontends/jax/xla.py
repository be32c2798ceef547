"""XLA without JAX: clients that compile for any number of devices, told to stop after partitioning.

The idea: only the passes up to the SPMD partitioner are enabled and its result is dumped; the
compilation then fails, because code generation was not prepared, and that is as planned.  All
private parts of jaxlib that the child process uses stand here.

    compile_ = cpu_compiler(512)
    compile_(module, partitioner_only(512, folder, shardy=True))
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client

from flint.errors import UsageError

#: Up to the partitioner, and what belongs to its pipeline.
PASSES = ",".join(
    (
        "flatten-call-graph", "call-inliner", "zero_sized_hlo_elimination",
        "conditional-canonicalizer", "shardy-xla", "spmd-partitioning", "dce", "tuple-simplifier",
        "cse", "control-dep-rewriter", "strip-memory-placement-annotations",
        "async-collective-replacer",
    )
)  # fmt: skip

#: Devices beyond which the CPU client wants a communication library to be named; none is used.
_NEEDS_COLLECTIVES = 2048
#: GPUs per host, in topologies that nobody looks at before the backend's own passes.
_GPUS_PER_HOST = 8
_GPU_PLUGIN = "jax_plugins.xla_cuda12"
_GPU_TARGET = Path(__file__).parent / "targets" / "h100.txtpb"

Compiler = Callable[[bytes, Any], None]


def partitioner_only(
    devices: int,
    folder: Path,
    *,
    shardy: bool = True,
    inputs_free: Sequence[bool] = (),
    outputs_free: Sequence[bool] = (),
) -> Any:
    """Compile options that stop after the partitioner.

    Args:
        devices: partitions; there is one replica.
        folder: where the dump goes.
        shardy: propagate with Shardy, as JAX does by default, instead of GSPMD.
        inputs_free, outputs_free: parameters and results whose sharding XLA may choose.
    """
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = devices
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = shardy
    build.allow_spmd_sharding_propagation_to_parameters = list(inputs_free)
    build.allow_spmd_sharding_propagation_to_output = list(outputs_free)
    numbers = np.arange(devices).reshape(1, devices)
    assignment = xla_client.DeviceAssignment.create(numbers)
    options.device_assignment = build.device_assignment = assignment
    debug = build.debug_options
    debug.xla_dump_to = str(folder)
    debug.xla_dump_hlo_pass_re = "spmd-partitioning"
    debug.xla_dump_hlo_as_proto = True
    debug.xla_enable_hlo_passes_only = PASSES
    return options


def cpu_compiler(devices: int) -> Compiler:
    """The CPU client with that many devices."""
    more: dict[str, Any] = {}
    if devices > _NEEDS_COLLECTIVES:
        more["collectives"] = _jax.make_mpi_collectives()
    client: Any = xla_client.make_cpu_client(num_devices=devices, asynchronous=False, **more)

    def compile_(module: bytes, options: Any) -> None:
        client.compile_and_load(module, _jax.DeviceList(tuple(client.devices())), options)

    return compile_


def gpu_compiler(devices: int) -> Compiler:
    """The compile-only GPU client, which needs neither GPU nor driver.

    Raises:
        UsageError: the plugin is not installed.
    """
    library = gpu_plugin()
    if library is None:
        raise UsageError("the extra `gpu` is not installed")
    plugin = xla_client.load_pjrt_plugin_dynamically("cuda", str(library))
    hosts = -(-devices // _GPUS_PER_HOST)
    topology: Any = xla_client.make_c_api_device_topology(
        plugin,
        target_config=_GPU_TARGET.read_text(encoding="utf-8"),
        topology=f"1x{hosts}x{_GPUS_PER_HOST}",
    )
    found = topology._make_compile_only_devices()[:devices]

    def compile_(module: bytes, options: Any) -> None:
        from flint.stablehlo.bindings import parse

        found[0].client.compile(parse(module, "program"), _jax.DeviceList(tuple(found)), options)

    return compile_


def gpu_plugin() -> Path | None:
    """The library of the GPU plugin, None where it is not installed."""
    try:
        found = importlib.util.find_spec(_GPU_PLUGIN)
    except ModuleNotFoundError:
        return None
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).parent / "xla_cuda_plugin.so"
    return library if library.is_file() else None
