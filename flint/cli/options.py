"""Options and arguments that several commands share, each defined once.

The idea: a command's signature names a type of this module, so that an option has the same name,
help and rules everywhere; an option of a single command is defined in that command.

    def convert_command(..., mesh: MeshOption = None, ranks: RanksOption = "all") -> None: ...
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flint.cli.parsing import (
    a_folder,
    a_granularity,
    a_system,
    an_order,
    parts,
    positive,
    replaceable,
)

if TYPE_CHECKING:
    pass

# Saving would refuse this at the end; refuse it here, before minutes of work.


FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Workload folder.", callback=a_folder)
]
MeshOption = Annotated[
    str | None,
    typer.Option("--mesh", help="Device grid: 64,8 or data=64,model=8 [default: the module's]."),
]
ReplicasOption = Annotated[
    bool,
    typer.Option(
        "--replicas",
        help="Fill a mesh that is larger than the program's with independent copies of the "
        "program.",
    ),
]
AxesOption = Annotated[
    str | None, typer.Option("--axes", help="Names of the mesh axes, for example data,model.")
]
TripCountOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trip-count",
        help="Iterations of loops whose trip count depends on data: N, LOOP=N or, if a step "
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
ProfileStepOption = Annotated[
    str | None,
    typer.Option(
        "--step",
        help="Step of a profile, ProfilerStep#4 or 4; of PyTorch's, all takes the whole trace "
        "[default: the last in which anything ran].",
    ),
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
        help="Cost of the system to leave out: launches (of kernels and communications), "
        "protocols (for small messages), in-network (reductions in switches) or contention "
        "(communication slows kernels down); repeatable.",
        callback=parts,
    ),
]
RanksOption = Annotated[
    str, typer.Option("--ranks", help="Ranks to write traces for: all, 0-7, 0,3,8-11.")
]
GranularityOption = Annotated[
    str,
    typer.Option(
        "--granularity", help="op, kernel, xla, inductor or region.", callback=a_granularity
    ),
]
CommunicationOrderOption = Annotated[
    str,
    typer.Option(
        "--communication-order",
        help="rank: one chain of all communications of a rank; communicator: one chain per "
        "communicator, for consumers with one stream per communicator.",
        callback=an_order,
    ),
]
ReduceRanksOption = Annotated[
    int | None,
    typer.Option(
        "--reduce-ranks",
        help="Write traces for at most this many ranks, which stand for all ranks, for "
        "simulators that cannot run all of them. Axes get shorter, but rings take the same "
        "time.",
    ),
]
UnorderedStartsOption = Annotated[
    bool,
    typer.Option(
        "--unordered-starts",
        help="Do not chain compute nodes that have no dependencies; simulators then check each "
        "of them again and again.",
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
    typer.Option(
        "--memory-limit",
        help="Memory limit in GiB for the compiler, or for recording a rank.",
        callback=positive,
    ),
]
AuditOption = Annotated[
    int | None,
    typer.Option(
        "--audit",
        min=0,
        help="PyTorch: record N more ranks, chosen at random, and stop if one differs from its "
        "program; 0 for none [default: as many as add less than 20 % to the capture]. Not "
        "for JAX, where all ranks run one program.",
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


def _system_option(default: str) -> Any:
    return typer.Option(
        "--system",
        help=f"System to compute durations for: a name or a TOML file [default: {default}, else "
        "dgx-h100].",
        callback=a_system,
    )


TargetSystemOption = Annotated[str | None, _system_option("one of the target's devices")]
DeviceSystemOption = Annotated[str | None, _system_option("one of --device's")]
ConvertedSystemOption = Annotated[str | None, _system_option("that of a profile's devices")]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help="Algorithm of collectives: ring, tree, halving-doubling, direct, in-network, "
        "hierarchical or 'flat ring' [default: the fastest].",
    ),
]
