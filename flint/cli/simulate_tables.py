"""What ``flint simulate`` shows of a result: its figures, programs and classes of work."""

from __future__ import annotations

import math
import sys
from typing import Final

from flint.cli.tables import Printer, Table
from flint.cost.uncertainty import Spread
from flint.host.readable import (
    UNKNOWN,
    counted,
    human_bytes,
    human_flops,
    human_seconds,
    percentage,
)
from flint.simulation.result import Figures, ProgramResult, SimulationResult


def show(result: SimulationResult) -> None:
    """Print a result for people."""
    printer = Printer(sys.stdout)
    mesh = f"{result.ranks:,} rank{'s' if result.ranks != 1 else ''}"
    by = "" if result.engine == "embedded" else f", {result.engine}"
    overlap = ", communicators overlap" if result.communication_order == "communicator" else ""
    how = f"{result.granularity} granularity{overlap}{by}"
    printer.line(f"one step on {mesh} of {result.system} ({how}{_sources(result)})")
    for note in result.notes:
        printer.line(f"note: {note}")
    printer.line("")
    for label, text in _lines(result.figures, result):
        printer.line(f"  {label:<24}{text}")
    if len(result.programs) > 1:
        printer.table(_program_table(result))
    for program in result.programs:
        if program.classes:
            printer.table(_class_table(program, len(result.programs) > 1))


def _sources(result: SimulationResult) -> str:
    """What is measured and what is modelled in a recorded step."""
    if result.kernels != "measured":
        return ""
    parts = {"kernels": "measured", "communication": result.communication, "host": result.host}
    words = {"measured": "measured", "modelled": "modelled", "none": "left out"}
    return "".join(
        f"; {_listed(names)} {words[source]}"
        for source in words
        if (names := [name for name, value in parts.items() if value == source])
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def _lines(figures: Figures, result: SimulationResult) -> list[tuple[str, str]]:
    step = figures.step_seconds

    def part(seconds: float) -> str:
        if math.isnan(seconds):
            return UNKNOWN
        return f"{human_seconds(seconds)}  ({percentage(seconds, step)} of the step)"

    need, have = human_bytes(figures.peak_memory_bytes), human_bytes(result.memory_bytes)
    computing = sum(p.rank_count for p in result.programs if p.figures.compute_seconds > 0)
    ranks = counted(computing, "rank") if 0 < computing < result.ranks else "all ranks"
    runtime = f" together with {human_bytes(result.reserve_bytes)} for the runtime"
    have += runtime if result.reserve_bytes else ""
    verdicts = {True: f", which fits into {have}", False: f", which DOES NOT FIT into {have}"}
    verdict = verdicts[result.fits] if result.fits is not None else ""
    return [
        ("step", _with_range(step, result.spread)),
        *([("range of all times", _rests_on(result.spread))] if result.spread else []),
        ("compute", part(figures.compute_seconds)),
        ("communication", part(figures.communication_seconds)),
        ("exposed communication", part(figures.exposed_communication_seconds)),
        ("idle", part(figures.idle_seconds)),
        ("peak memory per rank", need + verdict),
        (f"FLOPs of {ranks}", human_flops(figures.flops)),
        ("model FLOPs utilisation", percentage(figures.mfu, 1)),
    ]


#: The widest range that is shown as a time +- a deviation; wider ones are shown as bounds.
_NARROW: Final = 0.3


def _with_range(seconds: float, spread: Spread | None) -> str:
    """``3.5 s +- 0.4 s``, or ``3.5 s (1.9 s to 6.4 s)``, in two digits."""
    if spread is None or math.isnan(seconds):
        return human_seconds(seconds)
    if spread.share <= _NARROW:
        return f"{human_seconds(seconds)} +- {_two_digits(seconds * spread.share)}"
    low, high = spread.bounds(seconds)
    return f"{human_seconds(seconds)} ({_two_digits(low)} to {_two_digits(high)})"


def _two_digits(seconds: float) -> str:
    return human_seconds(float(f"{seconds:.2g}"))


def _rests_on(spread: Spread) -> str:
    basis = f"products {spread.basis}, network {spread.network}"
    width = (
        f"+- {spread.share:.0%}" if spread.share <= _NARROW else f"factor {1 + spread.share:.2g}"
    )
    return f"{width}  ({basis}; from {spread.runs} similar blind runs, {spread.program})"


def _program_table(result: SimulationResult) -> Table:
    columns = (
        "program", "?>ranks", ">step", ">compute", ">communication", ">exposed", ">idle",
        ">memory", ">MFU",
    )  # fmt: skip
    rows = []
    for program in result.programs:
        figures = program.figures
        rows.append(
            (
                program.name,
                f"{program.rank_count:,}",
                human_seconds(figures.step_seconds),
                human_seconds(figures.compute_seconds),
                human_seconds(figures.communication_seconds),
                human_seconds(figures.exposed_communication_seconds),
                human_seconds(figures.idle_seconds),
                human_bytes(figures.peak_memory_bytes),
                percentage(figures.mfu, 1),
            )
        )
    return Table("programs (means over their ranks)", columns, rows)


def _class_table(program: ProgramResult, named: bool) -> Table:
    step = program.figures.step_seconds
    columns = ("what", ">count", ">time", ">of step", ">exposed", "?>FLOPs", "?>bytes")
    rows = [
        (
            row.name.replace("_", "-"),
            f"{row.count:,.0f}",
            human_seconds(row.seconds),
            percentage(row.seconds, step),
            human_seconds(row.exposed_seconds) if row.communicates else "",
            human_flops(row.flops) if row.flops else "",
            human_bytes(row.bytes),
        )
        for row in program.classes
    ]
    title = f"time by class, per rank{f' of {program.name}' if named else ''}"
    return Table(title, columns, rows)
