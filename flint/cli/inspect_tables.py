"""A summary as tables: boxes and colours on a terminal, plain columns in a pipe.

The idea: each table is its columns and one function from row to cells; numbers are shown in units
that a person reads (binary for bytes, decimal for FLOPs), exact ones are in ``--json``.  Text that
comes from the input is shown without control characters.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from flint.cli.shared import human_bytes
from flint.summary import (
    CollectiveRow,
    ConditionalRow,
    GemmRow,
    InputRow,
    LayerRow,
    LoopRow,
    OpRow,
    PhaseRow,
    ProgramSummary,
    Summary,
    WorkRow,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
#: A pipe has no width: lines are as long as what they say.
_NO_WIDTH = 10_000
#: Columns between two columns, at most.
_GAP = 3
#: Kinds of work that an op's row names.
_KINDS = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A table to show.

    Attributes:
        title: what it lists.
        columns: headings; ``?`` in front is a column that may be left out where there is too little
            width, ``>`` one of numbers, aligned right.
        rows: cells.
        hidden: rows that are left out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    hidden: int = 0


def show(
    summary: Summary, top: int, extra: Iterable[Table] = (), out: TextIO | None = None
) -> None:
    """Write a summary for people.

    Args:
        summary: what to show.
        top: rows per table.
        extra: more tables.
        out: where; standard output when None.
    """
    printer = _Printer(out or sys.stdout)
    name = summary.input.get("file", "workload")
    printer.line(f"{name}: {summary.level} program, {summary.order} order")
    programs = len(summary.programs)
    printer.line(
        f"mesh {summary.mesh}: {summary.mesh.size:,} ranks, {programs} program"
        f"{'s' if programs > 1 else ''}, {human_flops(summary.cluster_flops)} in all"
    )
    for program in summary.programs:
        printer.line("")
        for line in _headline(program):
            printer.line(line)
        for table in _tables(program, top):
            printer.table(table)
    for table in extra:
        printer.table(table)
    if summary.warnings:
        warnings = sorted(summary.warnings.items(), key=lambda item: (-item[1], item[0]))
        rows = [(f"{count:,}", text) for text, count in warnings]
        printer.table(Table("warnings", (">times", "what"), rows))


def human_flops(number: float) -> str:
    """FLOPs in decimal units."""
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "FLOP" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} ZFLOP"


def _headline(program: ProgramSummary) -> list[str]:
    calls = sum(row.count for row in program.collectives)
    intensity = program.arithmetic_intensity
    facts = {
        "nodes": f"{program.nodes:,} with loops unrolled, {program.stored_nodes:,} stored; they "
        f"stand for {program.stablehlo_ops:,} ops",
        "compute": human_flops(program.flops),
        **_units(program.work),
        "memory": f"{human_bytes(program.bytes_read)} read, "
        f"{human_bytes(program.bytes_written)} written",
        "intensity": "nothing moved"
        if intensity is None
        else f"{intensity:.3g} FLOP per byte read or written",
        "communication": f"{calls:,} call{'s' * (calls != 1)}, {human_bytes(program.communication_bytes)} of operands",
        "outputs": f"{program.output_count:,}, {human_bytes(program.output_bytes)}",
    }
    first = f"program {program.name} on {program.rank_count:,} ranks ({program.ranks}), per rank"
    return [first, *(f"  {name:<17}{text}" for name, text in facts.items())]


def _tables(program: ProgramSummary, top: int) -> list[Table]:
    flops = program.flops or 1
    moved = program.traffic or 1
    return [
        item
        for item in (
            _cut("ops", _OPS, program.ops, lambda row: _op(row, flops, moved), top),
            _cut("collectives", _COLLECTIVES, program.collectives, _collective, top),
            _cut("matrix products and convolutions", _GEMMS, program.gemms, _gemm, top),
            _cut("inputs", _INPUTS, program.inputs, _input, top),
            _cut("loops, per iteration", _LOOPS, program.loops, _loop, top),
            _cut("conditionals", _CONDITIONALS, program.conditionals, _conditional, top),
            _cut("phases", _PHASES, program.phases, _phase, top),
            _cut("layers", _LAYERS, program.layers, _layer, top),
        )
        if item.rows
    ]


def _cut(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Any],
    cells: Callable[[Any], Sequence[str]],
    top: int,
) -> Table:
    return Table(title, columns, [cells(row) for row in rows[:top]], max(0, len(rows) - top))


_OPS = (
    "op", "?category", ">count", ">FLOPs", ">share", "?>read", "?>written", ">traffic", "?work",
)  # fmt: skip


def _op(row: OpRow, flops: int, moved: int) -> Sequence[str]:
    return (
        row.op, row.category, f"{row.count:,}", human_flops(row.flops) if row.flops else "-",
        f"{row.flops / flops:.1%}" if row.flops else "-", human_bytes(row.bytes_read),
        human_bytes(row.bytes_written), f"{row.traffic / moved:.1%}", _kinds(row.work),
    )  # fmt: skip


_COLLECTIVES = (
    "kind", "?reduction", "over", "?>ranks", "type", ">calls", "?>in loops", ">operands",
    "?>results", "?>per call", "?from",
)  # fmt: skip


def _collective(row: CollectiveRow) -> Sequence[str]:
    small, large = human_bytes(row.smallest), human_bytes(row.largest)
    per_call = large if row.smallest == row.largest else f"{small} to {large}"
    bound = "" if row.exact else "at most "
    over = f"{row.group} [{row.process_group}]" if row.process_group else row.group
    return (
        row.kind, row.reduction or "", over, f"{row.group_size:,}" if row.group_size else "",
        row.dtype, f"{row.count:,}", f"{row.in_loops:,}", bound + human_bytes(row.operand_bytes),
        bound + human_bytes(row.result_bytes), per_call, row.origin,
    )  # fmt: skip


_GEMMS = (">batch", ">m", ">n", ">k", "type", ">count", ">FLOPs")


def _gemm(row: GemmRow) -> Sequence[str]:
    sizes = (f"{size:,}" for size in (row.batch, row.m, row.n, row.k))
    return (*sizes, row.dtype, f"{row.count:,}", human_flops(row.flops))


_INPUTS = ("role", ">count", ">bytes", ">donated", ">donated bytes")


def _input(row: InputRow) -> Sequence[str]:
    donated = human_bytes(row.donated_bytes)
    return (row.role, f"{row.count:,}", human_bytes(row.bytes), f"{row.donated:,}", donated)


_LOOPS = (
    "node", ">iterations", "known", "?>entered", "?lookahead", ">nodes", "?>communications",
    ">FLOPs", "?where",
)  # fmt: skip


def _loop(row: LoopRow) -> Sequence[str]:
    lookahead = "no limit" if row.lookahead is None else str(row.lookahead)
    return (
        row.node, f"{row.trip_count:,}", row.known_by, f"{row.entered:,}", lookahead,
        f"{row.nodes:,}", f"{row.communications:,}", human_flops(row.flops),
        _where(row.layer, row.file, row.line),
    )  # fmt: skip


_CONDITIONALS = ("node", ">branches", ">counted", "known", ">reached", "where")


def _conditional(row: ConditionalRow) -> Sequence[str]:
    place = _where("", row.file, row.line)
    return (row.node, str(row.branches), str(row.taken), row.known_by, f"{row.reached:,}", place)


_PHASES = ("phase", ">nodes", ">FLOPs", ">traffic", ">communications", ">operands")


def _phase(row: PhaseRow) -> Sequence[str]:
    return (
        row.phase, f"{row.nodes:,}", human_flops(row.flops), human_bytes(row.bytes),
        f"{row.communications:,}", human_bytes(row.communication_bytes),
    )  # fmt: skip


_LAYERS = ("layer", ">nodes", ">FLOPs", ">traffic")


def _layer(row: LayerRow) -> Sequence[str]:
    name = row.layer or "(unknown)"
    return (name, f"{row.nodes:,}", human_flops(row.flops), human_bytes(row.bytes))


def _units(work: Sequence[WorkRow]) -> dict[str, str]:
    """Amounts by element type, for each unit."""
    units: dict[str, list[str]] = defaultdict(list)
    for row in work:
        amount = human_flops(row.flops).removesuffix("FLOP").strip()
        units[f"  {row.unit}"].append(f"{row.dtype} {amount}")
    return {unit: ", ".join(amounts) for unit, amounts in units.items()}


def _kinds(work: Sequence[WorkRow]) -> str:
    found = [f"{row.unit} {row.dtype}" for row in work]
    return ", ".join([*found[:_KINDS], *(["..."] if len(found) > _KINDS else [])])


def _where(layer: str, file: str, line: int) -> str:
    place = f"{file}:{line}" if file else ""
    return " ".join(part for part in (layer, place) if part)


class _Printer:
    """Tables by rich on a terminal; the same tables without lines and colours in a pipe."""

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        self.out = out
        self.terminal = out.isatty()
        self.width = shutil.get_terminal_size().columns if self.terminal else _NO_WIDTH
        self.console = Console(
            file=out,
            markup=False,
            highlight=False,
            emoji=False,
            no_color=not self.terminal,
            force_terminal=self.terminal,
            # What does not fit although columns were left out is wrapped by the terminal, not cut.
            width=_NO_WIDTH,
        )

    def line(self, text: str) -> None:
        self.out.write(_clean(text) + "\n")

    def table(self, table: Table) -> None:
        from rich import box
        from rich.table import Table as RichTable

        kept = self._fitting(table)
        shown = RichTable(
            box=box.SIMPLE_HEAD if self.terminal else None,
            header_style="bold" if self.terminal else "",
            pad_edge=False,
        )
        for number in kept:
            heading = table.columns[number].removeprefix("?")
            right = heading.startswith(">")
            justify: Literal["left", "right"] = "right" if right else "left"
            shown.add_column(heading.removeprefix(">"), justify=justify, no_wrap=True)
        for row in table.rows:
            shown.add_row(*(_clean(row[number]) for number in kept))
        self.line("")
        self.line(table.title)
        with self.console.capture() as captured:
            self.console.print(shown)
        for line in captured.get().splitlines():
            self.out.write(f"  {line.rstrip()}\n" if line.strip() else "")
        if table.hidden:
            self.line(f"  ... and {table.hidden:,} more (--top)")

    def _fitting(self, table: Table) -> list[int]:
        """Columns to show: the last optional ones are left out until the table fits."""
        widths = [
            max(len(heading.lstrip("?>")), *(len(row[i]) for row in table.rows)) + _GAP
            for i, heading in enumerate(table.columns)
        ]
        kept = list(range(len(widths)))
        optional = [i for i in kept if table.columns[i].startswith("?")]
        while optional and _GAP + sum(widths[i] for i in kept) > self.width:
            kept.remove(optional.pop())
        return kept


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
