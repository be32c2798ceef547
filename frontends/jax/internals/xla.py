"""XLA without JAX: clients that compile for any number of devices and stop after partitioning.

The idea: only the passes up to the SPMD partitioner are enabled and its result is dumped; the
compilation then fails as intended, because code generation was not prepared.  All private parts of
jaxlib that the child process uses are here.

    compiler = cpu_compiler(512, folder)
    compiler.run(module, partitioner_only(compiler.numbers, folder, request))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxlib import _jax, version, xla_client

from flint.errors import UsageError
from flint.frontends.jax.internals import compile_only, cpu_devices
from flint.frontends.jax.requests import Compilation
from flint.frontends.jax.targets.table import plugin, table
from flint.graph.transfers import TO_DEVICE, TO_HOST
from flint.host.environment import satisfies

#: The passes up to the partitioner, with those of its pipeline or, for one device, its replacement.
_PASSES = (
    "flatten-call-graph", "call-inliner", "zero_sized_hlo_elimination",
    "conditional-canonicalizer", "shardy-xla", "sharding-propagation", "spmd-partitioning",
    "dce", "tuple-simplifier", "cse", "control-dep-rewriter", "async-collective-replacer",
    "sharding-remover",
)  # fmt: skip
#: The passes that remove annotations of memories, and ops that copy between them.
_STRIPPING = "strip-memory-placement-annotations"

#: Devices beyond which the CPU client requires the name of a communication library; none is used.
_NEEDS_COLLECTIVES = 2048
#: With more local devices, each with its threads, the CPU client does not start reliably.
MAX_OWN_DEVICES = 8192
#: jaxlib whose CPU client compiles for devices of other processes.
_COMPILES_FOR_OTHERS = ">=0.9.2"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A client.

    Attributes:
        run: compiles MLIR bytecode with options.
        numbers: numbers of its devices.
        plugin: the C API of its plugin; None for jaxlib's own client.
    """

    run: Callable[[bytes, Any], None]
    numbers: npt.NDArray[np.int64]
    plugin: Any = None


def partitioner_only(numbers: npt.NDArray[np.int64], folder: Path, request: Compilation) -> Any:
    """Compile options that stop after the partitioner.

    Args:
        numbers: of the devices that the partitions are on; there is one replica.
        folder: where the dump goes.
        request: the program.
    """
    options = partitioned(numbers, request)
    debug = options.executable_build_options.debug_options
    debug.xla_dump_to = str(folder)
    # With one partition XLA instead removes shardings, in a pipeline with a pass of this name.
    debug.xla_dump_hlo_pass_re = "spmd-partitioning" if len(numbers) > 1 else ".*"
    debug.xla_dump_hlo_as_proto = True
    copies = any(name.encode() in request.module for name in (TO_HOST, TO_DEVICE))
    passes = _PASSES if copies else (*_PASSES, _STRIPPING)
    debug.xla_enable_hlo_passes_only = ",".join(passes)
    return options


def partitioned(numbers: npt.NDArray[np.int64], request: Compilation) -> Any:
    """Compile options as JAX's own for an SPMD program.

    Args:
        numbers: of the devices that the partitions are on, replica by replica.
        request: the program.
    """
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = request.replicas
    options.num_partitions = build.num_partitions = len(numbers) // request.replicas
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = request.shardy
    build.allow_spmd_sharding_propagation_to_parameters = list(request.inputs_free)
    build.allow_spmd_sharding_propagation_to_output = list(request.outputs_free)
    assignment = xla_client.DeviceAssignment.create(numbers.reshape(request.replicas, -1))
    options.device_assignment = build.device_assignment = assignment
    return options


def split_by_batch(calls: Sequence[str], plugin: Any = None) -> None:
    """Let XLA's partitioner split custom calls along their operands' batch dims.

    Args:
        calls: their targets.
        plugin: the C API of the PJRT plugin that compiles; None for jaxlib's own CPU client.
    """
    more = {} if plugin is None else {"c_api": plugin}
    for name in calls:
        xla_client.register_custom_call_as_batch_partitionable(name, **more)


def cpu_compiler(devices: int, folder: Path) -> Compiler:
    """The CPU client with that many devices, almost none of them local.

    If that client cannot be created, for example because the system refuses a socket, all devices
    are local if there are few of them; beyond that the GPU's compile-only client is used.

    Args:
        devices: number of devices.
        folder: for the client's socket.

    Raises:
        UsageError: no client takes that many devices here.
    """
    if devices <= MAX_OWN_DEVICES and not satisfies(version.__version__, _COMPILES_FOR_OTHERS):
        return own_devices_compiler(devices, folder)
    try:
        return _cpu(cpu_devices.make_client(devices, folder), np.arange(devices))
    except RuntimeError as error:
        if devices <= MAX_OWN_DEVICES:
            return own_devices_compiler(devices, folder)
        if plugin("cuda") is not None:
            return gpu_compiler(devices, folder)
        raise UsageError(
            f"a mesh of {devices:,} devices: XLA's CPU client supports at most {MAX_OWN_DEVICES:,} "
            f"here ({' '.join(str(error).split())}); the compile-only GPU client, which needs no "
            "GPU, supports any number: pip install 'flint-workload[gpu]'"
        ) from error


def own_devices_compiler(devices: int, folder: Path) -> Compiler:
    """The CPU client with threads for each of its devices; ``folder`` is not needed."""
    more: dict[str, Any] = {}
    if devices > _NEEDS_COLLECTIVES:
        more["collectives"] = _jax.make_mpi_collectives()
    client = xla_client.make_cpu_client(num_devices=devices, asynchronous=False, **more)
    return _cpu(client, np.arange(devices))


def _cpu(client: Any, numbers: npt.NDArray[np.int64]) -> Compiler:
    def run(module: bytes, options: Any) -> None:
        client.compile_and_load(module, _jax.DeviceList(tuple(client.devices())), options)

    return Compiler(run, numbers)


def gpu_compiler(devices: int, folder: Path) -> Compiler:
    """The compile-only GPU client, which needs neither GPU nor driver; nor ``folder``.

    Raises:
        UsageError: the plugin is not installed.
    """
    if plugin("cuda") is None:
        raise UsageError("the extra `gpu` is not installed")
    found = compile_only.gpu_devices(table()["h100"], devices)

    def run(module: bytes, options: Any) -> None:
        compile_only.compile_for(found, module, options)

    return Compiler(run, np.arange(devices), compile_only.load_plugin("cuda"))
