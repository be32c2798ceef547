"""Frontends and converters by name: how the core uses modules that it must not import.

The idea: Flint's own are in a literal table, name -> "module:attribute", and are imported on
request. Only for a name that is not in the table are the environment's entry points read, where
other distributions offer theirs under the groups `flint.frontends`, `flint.converters` and
`flint.engines`.

    write = converter("chakra")     # flint.converters.chakra.write.writer.write

A distribution adds one of its own in its pyproject.toml:

    [project.entry-points."flint.converters"]
    my-format = "my_package.flint_writer:write"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from flint.errors import FlintError, UsageError

FRONTENDS: Mapping[str, str] = {
    "saved": "flint.frontends.saved.reading:begin",
    "sizes of saved": "flint.frontends.saved.reading:sized",
    "kind of saved": "flint.frontends.saved.kinds:described",
    "jax": "flint.frontends.jax.capturing:capture",
    "torch": "flint.frontends.torch.capturing:capture",
}

#: Functions that compile and that partition a saved program (see ``flint.capturing.saved_levels``).
SAVED_COMPILER = "flint.frontends.jax.saved_programs:compiled"
SAVED_PARTITIONER = "flint.frontends.jax.saved_programs:partitioned"

#: Capturing frontend -> the packages of its arguments' types.
FRAMEWORKS: Mapping[str, frozenset[str]] = {
    "jax": frozenset({"jax", "jaxlib", "flax", "optax", "equinox"}),
    "torch": frozenset({"torch"}),
}

#: Framework -> its hooks into whole programs (see ``flint.launching.hooks``).
PROGRAMS: Mapping[str, str] = {
    "jax": "flint.frontends.jax.programs.hooks",
    "torch": "flint.frontends.torch.programs.hooks",
}

#: Launcher -> parser of its command line.
LAUNCHERS: Mapping[str, str] = {
    "torchrun": "flint.frontends.torch.programs.launchers:torchrun",
    "torch.distributed.launch": "flint.frontends.torch.programs.launchers:torch_launch",
    "accelerate": "flint.frontends.torch.programs.launchers:accelerate",
    "deepspeed": "flint.frontends.torch.programs.launchers:deepspeed",
    "composer": "flint.frontends.torch.programs.launchers:composer",
    "deepspeed.launcher.launch": "flint.frontends.torch.programs.launchers:deepspeed_launch",
}
#: Modules by which ``python -m`` starts a launcher.
LAUNCHER_MODULES: Mapping[str, str] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "composer.cli.launcher": "composer",
    "deepspeed.launcher.launch": "deepspeed.launcher.launch",
}

#: Frameworks without some levels -> the levels that they have.
LEVELS: Mapping[str, tuple[str, ...]] = {"torch": ("partitioned", "optimized")}

#: Frameworks that include their compiler -> platforms that it compiles for.  It compiles the parts
#: that the program marks, and nothing more has to be installed.
OWN_COMPILERS: Mapping[str, tuple[str, ...]] = {"torch": ("cuda",)}

#: Called with the number of devices before a user's file is imported; must import no framework.
PREPARATIONS: tuple[str, ...] = ("flint.frontends.jax.lower.host_devices:prepare",)

#: Targets of the capturing frontends' compilers; must import no framework.
TARGETS: tuple[str, ...] = ("flint.frontends.jax.targets.table:targets",)

#: Modules that run in separate processes and whose imports can be shared -> their frontend.
SPARES: Mapping[str, str] = {
    "flint.frontends.jax.partition.child": "jax",
    "flint.frontends.saved.child": "saved",
    "flint.frontends.torch.emission": "torch",
    "flint.frontends.torch.session": "torch",
    "torch.distributed.fsdp": "torch",
    "torch.distributed.pipelining": "torch",
    "torch.testing._internal.distributed.fake_pg": "torch",
    "torch.utils.backend_registration": "torch",
}

#: What a process that others are forks of calls before it imports a package: package -> function.
BEFORE_IMPORT: Mapping[str, str] = {"jax": "flint.frontends.jax.internals.questions:stand_between"}

#: The framework of a step if no argument's type shows it.
DEFAULT_FRAMEWORK = "jax"

#: The deepest level of containers that is searched, and the most values.
_LOOKED_AT = 4096

CONVERTERS: Mapping[str, str] = {
    "chakra": "flint.converters.chakra.write.writer:write",
    "chakra-ahead": "flint.converters.chakra.write.parquet_process:prepare",
    "chakra-nodes": "flint.converters.chakra.write.parquet:ParquetFile",
    "chakra-workload": "flint.converters.chakra.workloads.converting:convert",
    "chakra-check": "flint.converters.chakra.check.checker:check",
    "networkx": "flint.converters.graphs.networkx:to_networkx",
    "graphml": "flint.converters.graphs.graph_text:write_graphml",
    "dot": "flint.converters.graphs.graph_text:write_dot",
    "nodes-frame": "flint.converters.graphs.frames:nodes_frame",
    "communications-frame": "flint.converters.graphs.frames:communications_frame",
    "perfetto": "flint.converters.pictures.perfetto:write_perfetto",
    "timeline": "flint.converters.pictures.timeline:write_timeline",
    "report": "flint.converters.pictures.report:write_report",
    "scale-sim": "flint.converters.scale_sim.write:write_scale_sim",
    "scale-sim-report": "flint.converters.scale_sim.read:read_report",
    "network": "flint.converters.pictures.network_svg:write_network",
    "kineto-ops": "flint.converters.profilers.kineto.observe:observe",
    "kineto-device-events": "flint.converters.profilers.kineto.device_events:device_events",
    "kineto-links": "flint.converters.profilers.kineto.observe:linked",
    "pytorch-et-ops": "flint.converters.profilers.pytorch_et.observe:observe",
    "pytorch-et-links": "flint.converters.profilers.pytorch_et.observe:linked",
    "nsys-ops": "flint.converters.profilers.nsys.observe:observe",
    "nsys-links": "flint.converters.profilers.nsys.observe:linked",
    "rocprof-ops": "flint.converters.profilers.rocprof.observe:observe",
    "rocprof-links": "flint.converters.profilers.rocprof.observe:linked",
    "xplane-ops": "flint.converters.profilers.xplane.observe:observe",
    "xplane-links": "flint.converters.profilers.xplane.kernels:linked",
    "xplane-runs": "flint.converters.profilers.xplane.program_runs:program_runs",
    "xplane-times": "flint.converters.profilers.xplane.times:times_of",
    "chakra-ops": "flint.converters.chakra.read.observe:observe",
    "engines-compared": "flint.converters.chakra.astra_sim.comparison:compare",
}

#: Framework -> the module that times single ops on its device.
MICROBENCHMARKS: Mapping[str, str] = {
    "jax": "flint.frontends.jax.microbench",
    "torch": "flint.frontends.torch.microbench",
}

#: Engines that simulate a workload (see ``Workload.simulate``).
ENGINES: Mapping[str, str] = {
    "embedded": "flint.simulation.running:simulate",
    "astra-sim": "flint.converters.chakra.astra_sim.engine:simulate",
}


def frontend(name: str) -> Any:
    """The frontend of that name: Flint's own, or one that an installed distribution offers.

    Raises:
        UsageError: there is none; the message lists the existing names.
        FlintError: it is offered but cannot be loaded, or two distributions offer it.
    """
    return _find(name, "frontend", FRONTENDS)


def converter(name: str) -> Any:
    """The converter of that name; raises like `frontend`."""
    return _find(name, "converter", CONVERTERS)


def engine(name: str) -> Any:
    """The engine of that name, a function of workload and system; raises like `frontend`."""
    return _find(name, "engine", ENGINES)


def program_hooks(framework: str) -> Any:
    """The hooks of a framework into whole programs: a module."""
    return import_module(PROGRAMS[framework])


def launcher(name: str) -> Any:
    """The parser of a launcher's command line."""
    return _attribute(LAUNCHERS[name])


def microbenchmarks(name: str) -> Any:
    """The module that times ops in a framework: ``device()`` and ``time_kernels``."""
    return import_module(MICROBENCHMARKS[name])


def prepare(devices: int | None) -> None:
    """Let the capturing frontends prepare the process for user code with that many devices."""
    for target in PREPARATIONS:
        _attribute(target)(devices)


def before_import(modules: Iterable[str]) -> None:
    """Prepare a process that others are forks of for these modules."""
    for package in BEFORE_IMPORT.keys() & {name.partition(".")[0] for name in modules}:
        _attribute(BEFORE_IMPORT[package])()


def saved_compiler() -> Any:
    """The function that compiles a saved program for a target."""
    return _attribute(SAVED_COMPILER)


def saved_partitioner() -> Any:
    """The function that partitions a saved global program."""
    return _attribute(SAVED_PARTITIONER)


def targets() -> list[Any]:
    """The targets of each compiling frontend (see ``flint.capturing.targets``)."""
    return [_attribute(target)() for target in TARGETS]


def framework_of(arguments: object) -> str | None:
    """The capturing frontend whose types are found in arguments; None if there is none.

    Tuples, lists, dicts and the attributes of dataclasses are searched.
    """
    pending, looked_at = [arguments], 0
    while pending and looked_at < _LOOKED_AT:
        item = pending.pop()
        looked_at += 1
        origins = {cls.__module__.partition(".")[0] for cls in type(item).__mro__}
        for name, packages in FRAMEWORKS.items():
            if origins & packages:
                return name
        if isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, tuple | list):
            pending += item
        elif hasattr(item, "__dataclass_fields__"):
            pending += [getattr(item, name, None) for name in item.__dataclass_fields__]
    return None


def _attribute(target: str) -> Any:
    """The object named by "module:attribute"."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _find(name: str, kind: str, ours: Mapping[str, str]) -> Any:
    target = ours.get(name)
    if target is not None:
        return _attribute(target)
    return _find_entry_point(name, kind, ours)


def _find_entry_point(name: str, kind: str, ours: Mapping[str, str]) -> Any:
    from importlib import (
        metadata,
    )  # takes a twentieth of a command's start, and few users have plugins

    offered = metadata.entry_points(group=f"flint.{kind}s")
    # The same distribution can be on sys.path twice (an editable copy and an installed one).
    targets = {point.value: point for point in offered if point.name == name}
    if not targets:
        known = ", ".join(sorted({*ours, *offered.names}))
        raise UsageError(f"unknown {kind} {name!r}; choose from: {known}")
    if len(targets) > 1:
        raise FlintError(
            f"{kind} {name!r} is registered more than once ({', '.join(sorted(targets))}): "
            "uninstall all but one"
        )
    [point] = targets.values()
    try:
        return point.load()
    except Exception as error:  # another distribution's module: it may fail in any way
        owner = point.dist.name if point.dist is not None else point.value
        raise FlintError(f"{kind} {name!r} of {owner} cannot be loaded: {error}") from error
