"""Reports of simulated steps: one self-contained HTML page.

The idea: the simulation's totals as tables, and the recording's details as pictures: streams over
time, time by layer, and each kernel's place under the roofline.

    write_report(workload.simulate(system), record(workload, system), Path("report.html"))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from flint.converters.pictures.charts import curves
from flint.converters.pictures.layers import layers
from flint.converters.pictures.network_svg import network
from flint.converters.pictures.rooflines import rooflines
from flint.cost.hardware import System
from flint.host.pages import bar, heading, page, paragraph, table
from flint.host.readable import human_bytes, human_flops, human_seconds, percentage
from flint.host.writing import replacing
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.recording import RankRecord, Recording
from flint.simulation.result import Figures, ProgramResult, SimulationResult
from flint.simulation.spans import union

Floats = NDArray[np.float64]

#: Number of parts of a step for the curves over time.
_BINS: Final = 400


def write_report(result: SimulationResult, recording: Recording, path: Path) -> None:
    """Write the page.

    Args:
        result: result of the simulation.
        recording: recording of the same workload on the same system at the same granularity.
        path: the file.

    Raises:
        FlintError: the file cannot be written.
    """
    with replacing(path) as partial:
        partial.write_text(report(result, recording), encoding="utf-8")


def report(result: SimulationResult, recording: Recording) -> str:
    """The page's text."""
    ranks = f"{result.ranks:,} rank{'s' if result.ranks != 1 else ''}"
    title = f"One step on {ranks} of {result.system}"
    overlap = "; communicators overlap" if result.communication_order == "communicator" else ""
    parts = [heading(title, 1)]
    parts.append(
        paragraph(
            f"Mesh {recording.mesh}; nodes at {result.granularity} granularity; {result.engine} "
            f"engine{overlap}. Numbers are means over ranks unless stated otherwise."
        )
    )
    parts += [paragraph(f"Note: {note}") for note in result.notes]
    parts += _summary(result)
    if drawn := network(recording):
        parts += [
            heading("Groups on the network"),
            Markup('<div class="wide">{}</div>').format(drawn),
        ]
        parts.append(
            paragraph(
                "One group of each kind is drawn in colour, on the tiers that it uses. Parts "
                "that look the same are drawn once and counted.",
                "small",
            )
        )
    for program, record in zip(result.programs, recording.ranks, strict=True):
        named = len(result.programs) > 1
        if named:
            parts.append(heading(f"Program {program.name} (ranks {program.ranks})"))
        parts += _program(program, record, recording.system, result.memory_bytes)
    return page(title, parts)


def _summary(result: SimulationResult) -> Iterator[Markup]:
    figures = result.figures
    step = figures.step_seconds
    yield heading("Step")
    yield _step_bar(figures)
    need, have = human_bytes(figures.peak_memory_bytes), human_bytes(result.memory_bytes)
    parts = (
        ("compute", figures.compute_seconds),
        ("communication", figures.communication_seconds),
        ("exposed communication", figures.exposed_communication_seconds),
        ("idle", figures.idle_seconds),
    )
    yield table(
        ("what", ">value", ">of step"),
        [
            ("step", human_seconds(step), ""),
            *((name, human_seconds(value), percentage(value, step)) for name, value in parts),
            ("peak memory per rank", f"{need} of {have}", ""),
            ("FLOPs of all ranks", human_flops(figures.flops), ""),
            ("model FLOPs utilisation", percentage(figures.mfu, 1), ""),
        ],
    )
    if result.fits is False:
        yield paragraph(f"The step does not fit: a rank needs {need} and has {have}.", "warn")
    if len(result.programs) > 1:
        yield heading("Programs")
        yield table(
            ("program", "ranks", ">step", ">compute", ">communication", ">exposed", ">idle",
             ">memory", ">MFU"),
            [
                (p.name, p.ranks, human_seconds(f.step_seconds), human_seconds(f.compute_seconds),
                 human_seconds(f.communication_seconds),
                 human_seconds(f.exposed_communication_seconds),
                 human_seconds(f.idle_seconds), human_bytes(f.peak_memory_bytes),
                 percentage(f.mfu, 1))
                for p in result.programs
                for f in (p.figures,)
            ],
        )  # fmt: skip


def _step_bar(figures: Figures) -> Markup:
    sizes = (
        ("compute", figures.compute_seconds),
        ("exposed communication", figures.exposed_communication_seconds),
        ("idle", figures.idle_seconds),
    )
    return bar([(name, size, human_seconds(size)) for name, size in sizes], figures.step_seconds)


def _program(
    program: ProgramResult, record: RankRecord, system: System, capacity: int
) -> Iterator[Markup]:
    figures = program.figures
    yield heading("Streams over time")
    yield _streams(record)
    yield paragraph(
        f"How busy the streams of rank {record.rank} are, in {_BINS} intervals of its time.",
        "small",
    )
    yield heading("Time by class, per rank")
    yield table(
        ("what", ">count", ">time", ">of step", ">exposed", ">FLOPs", ">bytes"),
        [
            (
                row.name.replace("_", "-"),
                f"{row.count:,.0f}",
                human_seconds(row.seconds),
                percentage(row.seconds, figures.step_seconds),
                human_seconds(row.exposed_seconds) if row.communicates else "",
                human_flops(row.flops) if row.flops else "",
                human_bytes(row.bytes),
            )
            for row in program.classes
        ],
    )
    yield from _axes(program)
    yield from layers(record)
    yield from rooflines(record, system)
    if not program.memory:
        yield paragraph("Memory: unknown; the profile has no tensors.")
        return
    held = "free blocks of the allocator" in program.memory
    yield from _memory(record, figures.peak_memory_bytes if held else 0.0)
    yield heading("Memory at the peak, per rank")
    parts = sorted(program.memory.items(), key=lambda item: -item[1])
    yield bar(
        [(name, size, human_bytes(size)) for name, size in parts],
        max(capacity, figures.peak_memory_bytes),
    )
    yield table(
        ("what", ">bytes", ">of the device"),
        [
            *((name, human_bytes(size), percentage(size, capacity)) for name, size in parts),
            (
                "together",
                human_bytes(figures.peak_memory_bytes),
                percentage(figures.peak_memory_bytes, capacity),
            ),
        ],
    )


def _streams(record: RankRecord) -> Markup:
    last = int(record.end.max(initial=0))
    if not last:
        return paragraph("Nothing takes time.")
    edges = np.linspace(0, last, _BINS + 1)
    lines = []
    for name, chosen in (("compute", record.computes), ("communication", record.communicates)):
        chosen = chosen & (record.end > record.start)
        begins, ends = union(record.start[chosen], record.end[chosen])
        times = np.concatenate([[0], np.stack([begins, ends], axis=1).ravel(), [last]])
        busy = np.cumsum(ends - begins)
        sums = np.concatenate([[0], np.stack([busy - (ends - begins), busy], axis=1).ravel()])
        done = np.interp(edges, times, np.append(sums, sums[-1]))
        shares = (np.diff(done) / np.diff(edges)).clip(0, 1).tolist()
        points = [p for i, y in enumerate(shares) for p in ((float(i), y), (i + 1.0, y))]
        lines.append((name, points))
    return curves(lines, _BINS, 1.0, (human_seconds(last / TICKS_PER_SECOND), "100%"))


def _memory(record: RankRecord, peak: float) -> Iterator[Markup]:
    """Bytes over time, the most in each part of it, up to the peak.

    Args:
        record: record of one rank.
        peak: bytes that PyTorch's allocator reserves, if known; else 0.
    """
    found = record.memory_over_time()
    last = int(record.end.max(initial=0))
    if found is None or not last:
        return
    times, alive = found
    edges = np.linspace(0, last, _BINS + 1)
    most = alive[np.maximum(np.searchsorted(times, edges[:-1], side="right") - 1, 0)]
    np.maximum.at(most, np.minimum(times * _BINS // last, _BINS - 1), alive)
    top = int(most.max())
    points = [p for i, y in enumerate(most.tolist()) for p in ((float(i), y), (i + 1.0, y))]
    yield heading("Memory over time")
    lines, remark = [("alive", points)], ""
    if peak > top:  # a framework that keeps more than what will still be read
        lines.append(("reserved at the peak", [(0.0, peak), (float(_BINS), peak)]))
        remark = (
            " Live memory is what the program still reads; PyTorch's allocator reserves more: what "
            "autograd holds, rounding and free blocks."
        )
    top = max(top, int(peak), 1)
    ends = (human_seconds(last / TICKS_PER_SECOND), human_bytes(top))
    yield curves(lines, _BINS, top, ends)
    yield paragraph(
        f"Of rank {record.rank}, including inputs. For a loop, the curve shows its highest use "
        f"throughout.{remark}",
        "small",
    )


def _axes(program: ProgramResult) -> Iterator[Markup]:
    """Communication by the mesh axes that it runs along."""
    sums: dict[str, Floats] = defaultdict(lambda: np.zeros(4))
    kinds: dict[str, list[str]] = defaultdict(list)
    for row in program.classes:
        if row.communicates:
            kind, _, axes = row.name.partition(" over ")
            sums[axes] += (row.count, row.seconds, row.exposed_seconds, row.bytes)
            kinds[axes].append(kind.replace("_", "-"))
    if not sums:
        return
    yield heading("Communication by axis, per rank")
    yield table(
        ("over", "what", ">count", ">time", ">of step", ">exposed", ">operand bytes"),
        [
            (axes, ", ".join(kinds[axes]), f"{count:,.0f}", human_seconds(spent),
             percentage(spent, program.figures.step_seconds), human_seconds(exposed),
             human_bytes(size))
            for axes, (count, spent, exposed, size) in sorted(
                sums.items(), key=lambda item: -item[1][1]
            )
        ],
    )  # fmt: skip
