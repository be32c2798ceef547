"""A summary as tables for people.

The idea: each table is its columns and one function from row to cells; numbers are shown in
readable units (binary for bytes, decimal for FLOPs); ``--json`` has exact ones.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from flint.cli.tables import Printer, Table
from flint.host.readable import UNKNOWN, counted, human_bytes, human_flops, percentage
from flint.workload.call_rows import CallRow
from flint.workload.compiler_report import CompilerReport
from flint.workload.programs import Level
from flint.workload.summary import ProgramSummary, Summary
from flint.workload.summary_rows import (
    CollectiveRow,
    GemmRow,
    InputRow,
    LayerRow,
    LoopRow,
    OpRow,
    PhaseRow,
    WorkRow,
)

#: The most kinds of work in an op's row.
_KINDS = 3


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
    printer = Printer(out or sys.stdout)
    name = summary.input.get("file", "workload")
    printer.line(f"{name}: {summary.level} program, {summary.order} order")
    logical = summary.level == Level.LOGICAL
    total = "" if logical else f", {human_flops(summary.cluster_flops)} in total"
    printer.line(
        f"mesh {summary.mesh}: {counted(summary.mesh.size, 'rank')}, "
        f"{counted(len(summary.programs), 'program')}{total}"
    )
    if "ranks recorded" in summary.input:
        audited = summary.input.get("ranks audited", "none")
        printer.line(f"recorded ranks: {summary.input['ranks recorded']}; audited: {audited}")
    if summary.compiled:
        for line in _compiled(summary.compiled):
            printer.line(line)
    for program in summary.programs:
        printer.line("")
        for line in _headline(program, logical):
            printer.line(line)
        for table in _tables(program, top):
            printer.table(table)
    for table in extra:
        printer.table(table)
    if summary.warnings:
        warnings = sorted(summary.warnings.items(), key=lambda item: (-item[1], item[0]))
        rows = [(f"{count:,}", text) for text, count in warnings]
        printer.table(Table("warnings", (">times", "what"), rows))


def _compiled(report: CompilerReport) -> list[str]:
    """What the compiler reports, per device."""
    sizes = {
        "arguments": report.argument_bytes,
        "outputs": report.output_bytes,
        "temporary": report.temporary_bytes,
        "aliased": report.alias_bytes,
    }
    parts = ", ".join(f"{name} {human_bytes(size)}" for name, size in sizes.items() if size)
    needed, has = report.needed_bytes, human_bytes(report.memory)
    facts = {
        "memory": f"more than the device has, {has}"
        if needed is None
        else f"{human_bytes(needed)} of {has} ({parts})"
    }
    if report.flops is not None:
        moved = report.bytes_accessed
        accessed = f", {human_bytes(moved)} accessed" if moved is not None else ""
        facts["its own FLOPs"] = f"{human_flops(report.flops)}{accessed} (a loop's body once)"
    if report.options:
        facts["options"] = ", ".join(f"{name}={value}" for name, value in report.options.items())
    first = f"compiled for {report.target} by {report.compiler}, per device"
    return [first, *(f"  {name:<17}{text}" for name, text in facts.items())]


def _headline(program: ProgramSummary, logical: bool) -> list[str]:
    calls = sum(row.count for row in program.collectives)
    intensity = program.arithmetic_intensity
    facts = {
        "nodes": f"{program.nodes:,} with loops unrolled, {program.stored_nodes:,} stored; they "
        f"stand for {program.stablehlo_ops:,} ops",
        "compute": human_flops(program.flops),
        **_units(program.work),
        "memory": f"{human_bytes(program.bytes_read)} read, "
        f"{human_bytes(program.bytes_written)} written",
        "intensity": "no bytes moved"
        if intensity is None
        else UNKNOWN
        if math.isnan(intensity)
        else f"{intensity:.3g} FLOP per byte read or written",
        "communication": f"{human_bytes(program.communication_bytes)} of operands "
        f"in {calls:,} call{'s' * (calls != 1)}",
        "outputs": f"{program.output_count:,}, {human_bytes(program.output_bytes)}",
    }
    whose = "with global shapes (in shard_map those of a rank)" if logical else "per rank"
    ranks = counted(program.rank_count, "rank")
    first = f"program {program.name} on {ranks} ({program.ranks}), {whose}"
    return [first, *(f"  {name:<17}{text}" for name, text in facts.items())]


def _tables(program: ProgramSummary, top: int) -> list[Table]:
    flops = program.flops or 1
    moved = program.traffic or 1
    spent = sum(row.measured or 0 for row in program.ops)
    return [
        item
        for item in (
            _cut("programs in sequence", _CALLS, program.calls, _call, max(top, _LISTED)),
            _cut("ops", _TIMED, program.ops, lambda row: _timed(row, spent), top)
            if spent
            else _cut("ops", _OPS, program.ops, lambda row: _op(row, flops, moved), top),
            _cut("collectives", _COLLECTIVES, program.collectives, _collective, top),
            _cut("matrix products and convolutions", _GEMMS, program.gemms, _gemm, top),
            _cut("inputs", _INPUTS, program.inputs, _input, top),
            _cut("loops, per iteration", _LOOPS, program.loops, _loop, top),
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


#: At least this many programs in sequence are shown, because their order matters.
_LISTED = 20
_CALLS = (
    "program", ">nodes", ">FLOPs", ">communications", ">operands", "?>returns", "?>donated",
    "?called at", "?the host then reads at",
)  # fmt: skip


def _call(row: CallRow) -> Sequence[str]:
    name = row.name if row.jitted else f"{row.name} (op)"
    return (
        name, f"{row.nodes:,}", human_flops(row.flops) if row.flops else "-",
        f"{row.communications:,}", human_bytes(row.operand_bytes), human_bytes(row.returned_bytes),
        human_bytes(row.donated_bytes), _where("", row.file, row.line), ", ".join(row.reads),
    )  # fmt: skip


_OPS = (
    "op", "?category", ">count", ">FLOPs", ">share", "?>read", "?>written", ">traffic", "?work",
)  # fmt: skip


def _op(row: OpRow, flops: float, moved: float) -> Sequence[str]:
    return (
        row.op, row.does or row.category, f"{row.count:,}",
        human_flops(row.flops) if row.flops else "-",
        percentage(row.flops, flops) if row.flops else "-", human_bytes(row.bytes_read),
        human_bytes(row.bytes_written), percentage(row.traffic, moved), _kinds(row.work),
    )  # fmt: skip


#: Columns for measured ops.
_TIMED = ("op", "?category", ">count", ">time", ">share", "?>FLOPs", "?>read", "?work")


def _timed(row: OpRow, spent: int) -> Sequence[str]:
    time = row.measured or 0
    return (
        row.op, row.does or row.category, f"{row.count:,}", f"{time / 1e6:,.3f} ms",
        f"{time / spent:.1%}",
        human_flops(row.flops) if row.flops else "-", human_bytes(row.bytes_read),
        _kinds(row.work),
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
