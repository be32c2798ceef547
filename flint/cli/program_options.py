"""What a user decides about a program to be converted, as one object for all commands.

@with_options
def convert_command(file: Path, *, options: ProgramOptions, saved: SavedOptions) -> None:
    convert(file, **options.decisions(), **saved.choices())
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flint.cli.options import BranchOption, TripCountOption
from flint.cli.parsing import by_name, grid, parse_shapes
from flint.errors import UsageError

if TYPE_CHECKING:
    from flint.host.packed_files import Content
    from flint.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """Decisions about loops, branches and ops, as given on the command line."""

    trip_count: TripCountOption = None
    branch: BranchOption = None
    no_reduce_scatter: Annotated[
        bool,
        typer.Option(
            "--no-reduce-scatter",
            help="Keep an all-reduce and a slice of its result as written, instead of combining "
            "them into a reduce-scatter.",
        ),
    ] = False
    drop_barriers: Annotated[
        bool,
        typer.Option(
            "--drop-barriers",
            help="Let optimization barriers pass each operand through at once, instead of "
            "waiting for all operands.",
        ),
    ] = False
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Treat unknown ops and custom calls as errors; in profiles, also facts that "
            "would be inferred.",
        ),
    ] = False
    loop_lookahead: Annotated[
        str, typer.Option("--loop-lookahead", help="Loop iterations that may overlap: K or inf.")
    ] = "0"
    fuse: Annotated[
        bool,
        typer.Option(
            "--fuse",
            help="Open PyTorch's kernels and fuse their ops like a compiler, within the "
            "recorded order.",
        ),
    ] = False

    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            help="How tokens are distributed over experts, if sizes depend on it: balanced, "
            "zipf:1.2 (for 64 experts: zipf:1.2/64) or a file of the experts' loads.",
        ),
    ] = None

    def decisions(self) -> dict[str, Any]:
        """The arguments for ``flint.convert`` and for a capture.

        Raises:
            UsageError: a value is not a number, or a name is given twice.
        """
        return {
            "trip_count": by_name("--trip-count", self.trip_count),
            "branch": by_name("--branch", self.branch),
            "reduce_scatter": not self.no_reduce_scatter,
            "drop_barriers": self.drop_barriers,
            "strict": self.strict,
            "loop_lookahead": _lookahead(self.loop_lookahead),
            "fuse": self.fuse,
            "routing": self.routing,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOptions:
    """What of a saved program is read, and for which sizes."""

    entry: Annotated[
        str | None,
        typer.Option("--entry", help="Function to start from, if there is no @main."),
    ] = None
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="ARGUMENT=SIZES",
            help="Sizes of an argument that a StableHLO program leaves open, for example 1=64x128; "
            "arguments are numbered from 0, or have names (repeatable).",
        ),
    ] = None

    def choices(self) -> dict[str, Any]:
        """The arguments for ``flint.convert``.

        Raises:
            UsageError: not sizes, or an argument twice.
        """
        return {"entry": self.entry, "shapes": parse_shapes(self.shape)}


def convert_file(
    path: Path | Content,
    mesh: str | None,
    axes: str | None,
    options: ProgramOptions,
    saved: SavedOptions,
    *,
    replicas: bool,
    memory_limit: int,
    **level: Any,
) -> Workload:
    """Call ``flint.convert`` with options of the command line; the limit is in bytes.

    ``level`` has its arguments for the level and the compiler.
    """
    from flint.capturing.saved_files import convert

    given, names = grid(mesh, axes)
    return convert(
        path, mesh=given, axes=names, replicas=replicas, memory_limit=memory_limit,
        **options.decisions(), **saved.choices(), **level,
    )  # fmt: skip


def _lookahead(text: str) -> int | None:
    """``--loop-lookahead`` as a number, None for no limit.

    Raises:
        UsageError: neither a number nor ``inf``.
    """
    if text == "inf":
        return None
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    raise UsageError(f"--loop-lookahead {text!r}: expected a number of iterations or inf")
