"""Options and arguments that several commands have, each in one place, and how they are parsed.

The idea: a command's signature names a type of this module, so that an option has the same name,
help and rules everywhere; an option of a single command is defined in that command.

    def convert_command(..., mesh: MeshOption = None, ranks: RanksOption = "all") -> None: ...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flint.errors import UsageError
from flint.mesh.mesh import Mesh, parse_mesh

if TYPE_CHECKING:
    from flint.cost.hardware import System

#: The system that times are computed for by default.
DEFAULT_SYSTEM: Final = "dgx-h100"


def existing(path: Path) -> Path:
    """A path of the command line that must exist.

    Raises:
        UsageError: nothing is there.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    return path


def _a_folder(path: Path) -> Path:
    if existing(path).is_file():
        raise UsageError(
            f"{path}: is a file, not a workload folder; flint convert makes a folder from a "
            "saved program"
        )
    return path


# What saving would refuse at the end is refused here, before minutes of work.


def replaceable(path: Path | None) -> Path | None:
    """A path that a workload folder can be written to."""
    from flint.workload.folder import check_replaceable

    if path is not None:
        check_replaceable(path)
    return path


def _a_system(name: str | None) -> str | None:
    from flint.cost.systems import load_system

    if name is not None:
        load_system(name)
    return name


def _parts(texts: list[str] | None) -> list[str] | None:
    from flint.cost.simplified import parse_parts

    return list(parse_parts(texts)) if texts else None


def _a_granularity(name: str) -> str:
    from flint.passes import check_granularity

    check_granularity(name)
    return name


def _an_order(name: str) -> str:
    from flint.execution.chains import as_communication_order

    return as_communication_order(name)


#: GiB or seconds.
_MOST = 1e9


def positive(parameter: typer.CallbackParam, value: float | None) -> float | None:
    """A limit that is a number above 0, and one that a machine can count to.

    Raises:
        UsageError: it is not.
    """
    if value is not None and not 0 < value <= _MOST:
        raise UsageError(
            f"--{(parameter.name or '').replace('_', '-')} {value:g}: expected a positive number"
        )
    return value


FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Workload folder.", callback=_a_folder)
]
MeshOption = Annotated[
    str | None,
    typer.Option("--mesh", help="Device grid, for example 64,8 [default: the module's]."),
]
ReplicasOption = Annotated[
    bool,
    typer.Option(
        "--replicas",
        help="Fill a mesh that is larger than the program is for with independent copies of it.",
    ),
]
AxesOption = Annotated[
    str | None, typer.Option("--axes", help="Names of the mesh axes, for example data,model.")
]
TripCountOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trip-count",
        help="Iterations of loops whose trip count depends on data: N, LOOP=N or, where a step "
        "runs several programs, PROGRAM/LOOP=N (repeatable).",
    ),
]
BranchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--branch",
        help="Branch to take in conditionals that depend on data: N, or NAME=N (repeatable).",
    ),
]
EntryOption = Annotated[
    str | None,
    typer.Option("--entry", help="Function to start from, if there is no @main."),
]
ReaderMemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory-limit",
        help="Memory limit in GiB for reading a file; a program may be a quarter as large "
        "[default: 0.5].",
        callback=positive,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable result on stdout.")]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PART",
        help="Leave out of the system's costs: launches (of kernels and communications), "
        "protocols (for small messages), in-network (reductions in switches); repeatable.",
        callback=_parts,
    ),
]
RanksOption = Annotated[
    str, typer.Option("--ranks", help="Ranks to write traces for: all, 0-7, 0,3,8-11.")
]
GranularityOption = Annotated[
    str,
    typer.Option("--granularity", help="op, kernel, xla or region.", callback=_a_granularity),
]
CommunicationOrderOption = Annotated[
    str,
    typer.Option(
        "--communication-order",
        help="rank: one chain of all communications of a rank; communicator: one chain per "
        "communicator, for consumers with a stream for each.",
        callback=_an_order,
    ),
]
ReduceRanksOption = Annotated[
    int | None,
    typer.Option(
        "--reduce-ranks",
        help="Write traces of at most this many ranks, which stand for all of them, for "
        "simulators that cannot run all: axes are shorter, and rings take as long.",
    ),
]
UnorderedStartsOption = Annotated[
    bool,
    typer.Option(
        "--unordered-starts",
        help="Leave compute nodes that wait for nothing without dependencies, instead of one "
        "after another; simulators look at each of them again and again.",
    ),
]
AnnotateOption = Annotated[
    bool, typer.Option("--annotate", help="Put op, layer, source and shapes into every node.")
]
OutputOption = Annotated[
    Path,
    typer.Option("-o", "--output", help="Workload folder to write.", callback=replaceable),
]
TimeLimitOption = Annotated[
    float,
    typer.Option(
        "--time-limit",
        help="Time limit in seconds for the compiler, or for recording a rank.",
        callback=positive,
    ),
]
MemoryLimitOption = Annotated[
    float,
    typer.Option("--memory-limit", help="Memory limit in GiB for the same.", callback=positive),
]
AuditOption = Annotated[
    int | None,
    typer.Option(
        "--audit",
        min=0,
        help="PyTorch: record N more ranks, chosen at random, and stop if one does not do what "
        "its program says; 0 for none [default: as many as cost less than 20 % of the "
        "capture]. Not for JAX, whose one program is every rank's.",
    ),
]
SetupOption = Annotated[
    str | None,
    typer.Option("--setup", help="Function in the file that makes the arguments for a mesh."),
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Device to compile for: see flint targets."),
]
XlaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--xla-option",
        help="One of XLA's flags for the optimized level, as NAME=VALUE (repeatable).",
    ),
]
TargetSystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        help="System to compute durations for: a name or a TOML file [default: one of the "
        "target's devices, else dgx-h100].",
        callback=_a_system,
    ),
]
DeviceSystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        help="System to compute durations for: a name or a TOML file [default: one of --device's, "
        "else dgx-h100].",
        callback=_a_system,
    ),
]
ConvertedSystemOption = Annotated[
    str | None,
    typer.Option(
        "--system",
        help="System to compute durations for: a name or a TOML file [default: that of a "
        "profile's devices, else dgx-h100].",
        callback=_a_system,
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help="Algorithm of collectives: ring, tree, halving-doubling, direct, in-network, "
        "hierarchical or 'flat ring' [default: the cheapest].",
    ),
]


def simplified(system: str | System, parts: list[str] | None) -> str | System:
    """A system without the parts that ``--without`` names.

    Raises:
        UsageError: there is no such system, or no such part.
    """
    if not parts:
        return system
    from flint.cost.simplified import without
    from flint.cost.systems import load_system

    return without(load_system(system) if isinstance(system, str) else system, parts)


def xla_options(entries: list[str] | None) -> dict[str, str]:
    """``["xla_flag=true"]`` as ``{"xla_flag": "true"}``.

    Raises:
        UsageError: not NAME=VALUE, or a name twice.
    """
    chosen: dict[str, str] = {}
    for entry in entries or ():
        name, equals, value = entry.removeprefix("--").partition("=")
        if not name or not equals:
            raise UsageError(f"--xla-option {entry!r}: expected NAME=VALUE")
        if name in chosen:
            raise UsageError(f"--xla-option {name}: given twice")
        chosen[name] = value
    return chosen


def level_and_target(
    level: str | None, target: str | None, system: str | None, otherwise: str | None
) -> tuple[str | None, str | None]:
    """The level and the target: with level auto, the target whose devices the system has.

    Args:
        level, target, system: as given.
        otherwise: the level where no target has devices of that system.

    Raises:
        UsageError: no such system.
    """
    from flint.capturing.targets import AUTO, target_of_system

    if level != AUTO or target is not None:
        return level, target
    name = system or DEFAULT_SYSTEM
    found = target_of_system(name)
    if found is None:
        sys.stderr.write(
            f"flint: level auto: no target has the devices of {name}, see flint targets\n"
        )
        return otherwise, None
    return level, found.name


def system_of(target: str | None) -> str:
    """The system that times are computed for if only a target is given: one of its devices.

    Raises:
        UsageError: there is no such target.
    """
    if target is None:
        return DEFAULT_SYSTEM
    from flint.capturing.targets import named  # most commands get no target

    return named(target).system


def grid(mesh: str | None, axes: str | None) -> tuple[Mesh | None, list[str] | None]:
    """``--mesh`` and ``--axes``: a mesh, or axis names for the program's own mesh.

    Raises:
        UsageError: not a list of positive integers, or names that do not match.
    """
    if mesh is not None:
        return parse_mesh(mesh, axes), None
    return None, axis_names(axes)


def axis_names(axes: str | None) -> list[str] | None:
    """``--axes`` as names."""
    return None if axes is None else [part.strip() for part in axes.split(",")]


def by_name(option: str, entries: list[str] | None) -> dict[str, int] | None:
    """``["3", "while_1=7"]`` as ``{"": 3, "while_1": 7}``.

    Raises:
        UsageError: not numbers, or a name twice.
    """
    if not entries:
        return None
    values: dict[str, int] = {}
    for entry in entries:
        name, equals, number = entry.rpartition("=")
        try:
            value = int(number)
        except ValueError:
            raise UsageError(f"{option} {entry!r}: expected N or NAME=N") from None
        if name in values or (equals and not name):
            raise UsageError(f"{option} {entry!r}: named twice, or the name is missing")
        if value < 0:
            raise UsageError(f"{option} {entry!r}: expected a number of at least 0")
        values[name] = value
    return values
