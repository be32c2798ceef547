"""``flint diff``: what differs between two workloads, above all what a backend has changed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from flint.cli.options import FolderArgument, JsonOption
from flint.cli.shared import loaded, print_json
from flint.cli.tables import Printer, Table
from flint.host.readable import counted, human_bytes, human_flops
from flint.workload.differences import Calls, CollectiveDifference, Differences, differences
from flint.workload.program_differences import ProgramDifference

#: Rows of the table of kernels.
_TOP = 15


def diff_command(
    before: FolderArgument,
    after: FolderArgument,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of the table of kernels.")] = _TOP,
    json_output: JsonOption = False,
) -> None:
    """Compare two workloads: collectives combined, split or made asynchronous; kernels; work."""
    found = differences(loaded(before), loaded(after))
    if json_output:
        print_json(found.to_json())
        return
    printer = Printer(sys.stdout)
    for folder, side in ((before, found.before), (after, found.after)):
        target = f" for {side.target}" if side.target else ""
        printer.line(
            f"{folder}: {side.level} program{target}, {side.order} order, "
            f"{counted(side.ranks, 'rank')}"
        )
    printer.table(Table("totals per rank", ("", ">before", ">after", ">change"), _totals(found)))
    if found.programs:
        rows = [_program_row(row, found.moved) for row in found.programs]
        printer.table(Table("programs in sequence, per rank", _PROGRAMS, rows))
    rows = [
        _row(row, found) for row in (*found.collectives, *found.families) if row.before or row.after
    ]
    if rows:
        printer.table(Table("communication per rank", _COLLECTIVES, rows))
    changed = [row for row in found.kernels if row.before or row.after]
    kernels = [
        (
            row.op,
            _count(row.before, found.before.traced),
            _count(row.after, found.after.traced),
        )
        for row in changed[:top]
    ]
    if kernels:
        hidden = max(0, len(changed) - top)
        printer.table(Table("kernels per rank", ("kernel", ">before", ">after"), kernels, hidden))


_PROGRAMS = (
    "program", "?>nodes", "?>after", ">FLOPs", ">after", ">communications", ">after",
    ">operands", ">after", "change",
)  # fmt: skip


def _program_row(row: ProgramDifference, moved: frozenset[str]) -> Sequence[str]:
    sides = (row.before, row.after)

    def cells(name: str, shown: Callable[[float], str]) -> list[str]:
        return [shown(getattr(side, name) / side.ranks) if side else "-" for side in sides]

    def number(value: float) -> str:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"

    happened = "in another order" if row.name in moved else ""
    if row.before is None or row.after is None:
        happened = "removed" if row.before else "new"
    return (
        row.name,
        *cells("nodes", number),
        *cells("flops", human_flops),
        *cells("communications", number),
        *cells("operand_bytes", human_bytes),
        happened,
    )


_COLLECTIVES = (
    "kind", ">calls", ">after", "?>tensors", "?>after", "?>async", "?>after", ">payload", ">after",
    "change",
)  # fmt: skip


def _row(row: CollectiveDifference, found: Differences) -> Sequence[str]:
    sides = ((row.before, found.before), (row.after, found.after))
    cells = [row.kind]
    for name in ("calls", "tensors", "asynchronous"):
        cells += [_count(getattr(calls, name), side.ranks) for calls, side in sides]
    cells += [human_bytes(calls.payload / side.ranks) for calls, side in sides]
    return (*cells, what_happened(row.before, row.after, found.before.ranks, found.after.ranks))


def what_happened(before: Calls, after: Calls, ranks_before: int, ranks_after: int) -> str:
    """The change of one kind in words.

    Args:
        before, after: over all ranks.
        ranks_before, ranks_after: of the two meshes.
    """
    if not before.calls or not after.calls:
        return "new" if after.calls else "removed" if before.calls else ""
    words = []
    calls = after.calls * ranks_before - before.calls * ranks_after
    payload = after.payload * ranks_before - before.payload * ranks_after
    if calls < 0:
        words.append("combined" if not payload or after.tensors > after.calls else "fewer calls")
    elif calls > 0:
        words.append("more calls" if payload else "split")
    if after.asynchronous * before.calls > before.asynchronous * after.calls:
        words.append("asynchronous" if after.asynchronous == after.calls else "partly asynchronous")
    if not payload:
        words.append("same payload")
    elif before.payload:
        words.append(f"payload {payload / (before.payload * ranks_after):+.1%}")
    return ", ".join(words)


def _count(number: int, ranks: int) -> str:
    """A total over some ranks, per rank."""
    whole, rest = divmod(number, max(ranks, 1))
    return f"{number / ranks:,.2f}" if rest else f"{whole:,}"


def _totals(found: Differences) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name, key, human in (
        ("kernels", "kernels", None),
        ("FLOPs", "flops", human_flops),
        ("of these in matrix products", "matmul_flops", human_flops),
        ("transcendentals", "transcendentals", human_flops),
        ("bytes read", "bytes_read", human_bytes),
        ("bytes written", "bytes_written", human_bytes),
    ):
        old, new = (getattr(side, key) for side in (found.before, found.after))
        shown = [
            human(number / side.traced) if human else _count(number, side.traced)
            for number, side in ((old, found.before), (new, found.after))
        ]
        old, new = old * found.after.traced, new * found.before.traced
        rows.append((name, *shown, _change(old, new)))
    return rows


def _change(old: float, new: float) -> str:
    """The change of a total; empty if there is none or a total is unknown."""
    return "-" if not old or math.isnan(old + new) else f"{(new - old) / old:+.1%}"
