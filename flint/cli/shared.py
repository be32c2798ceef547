"""Options that several commands share, and the terminal's part of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from flint.errors import UsageError
from flint.mesh import parse_mesh
from flint.workload import Workload

MeshOption = Annotated[
    str | None,
    typer.Option("--mesh", help="Device grid, for example 64,8 [default: the module's]."),
]
AxesOption = Annotated[
    str | None, typer.Option("--axes", help="Names of the mesh axes, for example data,model.")
]
TripCountOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trip-count",
        help="Iterations of loops whose end depends on data: N, or LOOP=N (repeatable).",
    ),
]
BranchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--branch", help="Branch of conditionals that data decides: N, or NAME=N (repeatable)."
    ),
]
NoReduceScatterOption = Annotated[
    bool,
    typer.Option(
        "--no-reduce-scatter",
        help="Keep all-reduce + own slice as written instead of making it a reduce-scatter.",
    ),
]
KeepBarriersOption = Annotated[
    bool, typer.Option("--keep-barriers", help="Optimization barriers join their operands.")
]
FuseOption = Annotated[
    bool,
    typer.Option(
        "--fuse", help="Open PyTorch's kernels, as a compiler would, in a modelled order."
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Unknown ops and custom calls are errors.")
]
LookaheadOption = Annotated[
    str, typer.Option("--loop-lookahead", help="Loop iterations that may overlap: K or inf.")
]
EntryOption = Annotated[
    str | None,
    typer.Option("--entry", help="Function to start from, where there is no @main."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable result on stdout.")]


def convert_file(
    path: Path,
    mesh: str | None,
    axes: str | None,
    trip_count: list[str] | None,
    branch: list[str] | None,
    no_reduce_scatter: bool,
    keep_barriers: bool,
    strict: bool,
    loop_lookahead: str,
    fuse: bool,
    entry: str | None,
) -> Workload:
    """``flint.convert`` with the command line's words."""
    from flint.converting import convert

    return convert(
        path,
        mesh=parse_mesh(mesh, axes) if mesh else None,
        axes=None if mesh or not axes else [part.strip() for part in axes.split(",")],
        trip_count=by_name("--trip-count", trip_count),
        branch=by_name("--branch", branch),
        reduce_scatter=not no_reduce_scatter,
        keep_barriers=keep_barriers,
        strict=strict,
        loop_lookahead=lookahead(loop_lookahead),
        fuse=fuse,
        entry=entry,
    )


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
            raise UsageError(f"{option} {entry!r}: expected a number from 0 on")
        values[name] = value
    return values


def lookahead(text: str) -> int | None:
    """``--loop-lookahead`` as a number, None for no limit.

    Raises:
        UsageError: neither a number nor ``inf``.
    """
    if text == "inf":
        return None
    if text.isdigit():
        return int(text)
    raise UsageError(f"--loop-lookahead {text!r}: expected a number of iterations or inf")


def print_json(document: Any) -> None:
    """A JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def print_warnings(warnings: dict[str, int]) -> None:
    """Warnings on stderr, each once with its count."""
    for text, count in sorted(warnings.items(), key=lambda item: (-item[1], item[0])):
        sys.stderr.write(f"flint: warning: {text}" + (f" ({count} times)\n" if count > 1 else "\n"))


@contextmanager
def results_only_on_stdout() -> Iterator[None]:
    """Meanwhile stdout is stderr, for child processes and libraries in C too.

    What the user's code prints is no result of ours.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()  # of those who keep the stream itself
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal's stderr; None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
