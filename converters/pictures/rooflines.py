"""The place of each kernel of a rank under the roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
from markupsafe import Markup

from flint.converters.pictures.charts import Point, roofline
from flint.cost.classes import KERNELS, kernel_classes
from flint.cost.hardware import System
from flint.cost.roofline import rate_table
from flint.graph.nesting import blocks
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Unit
from flint.host.pages import COLOURS, heading, key, paragraph
from flint.host.readable import human_seconds
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.recording import RankRecord

#: The most points of a roofline, those with the most time.
MAX_POINTS: Final = 1500


def rooflines(record: RankRecord, system: System) -> Iterator[Markup]:
    """The roofline with a circle for each kernel of a rank; nothing if none has FLOPs."""
    unrolled = record.unrolled
    computes = record.computes & (record.end > record.start)
    template = unrolled.template[record.instance[computes]]
    size = int(unrolled.start[-1])
    times = np.bincount(template, minlength=size)
    ticks = (record.end - record.start)[computes]
    spent = np.bincount(template, weights=ticks, minlength=size) / TICKS_PER_SECOND
    flops = np.concatenate([graph.flops_by_node() for graph in unrolled.graphs]).astype(float)
    moved = unrolled.column("bytes_read") + unrolled.column("bytes_written")
    classes = np.concatenate([kernel_classes(graph) for graph in unrolled.graphs])
    chosen = np.flatnonzero((spent > 0) & (flops > 0) & (moved > 0))
    if not len(chosen):
        return
    chosen = chosen[np.argsort(-spent[chosen], kind="stable")]
    left_out, chosen = len(chosen) - MAX_POINTS, chosen[:MAX_POINTS]
    paths = [
        (block.path(node), block.graph.tables.ops[op])
        for block in blocks(record.graph)
        for node, op in enumerate(block.graph.op.tolist())
    ]
    whole = float(spent.sum())
    points = []
    for at in chosen.tolist():
        path, op = paths[at]
        rate = flops[at] * times[at] / spent[at]
        label = (
            f"{op} (node {path}): {times[at]:,} times, {human_seconds(spent[at])} together, "
            f"{flops[at] / moved[at]:.3g} FLOPs per byte, {rate:.3g} FLOP/s"
        )
        colour = COLOURS[int(classes[at]) % len(COLOURS)]
        points.append(Point(flops[at] / moved[at], rate, spent[at] / whole, colour, label))
    yield heading("Roofline")
    yield roofline(points, _roofs(record, system), system.accelerator.memory_bandwidth)
    yield key([(name, COLOURS[number]) for number, name in enumerate(KERNELS)])
    more = f" {left_out:,} kernels with the least time are left out." if left_out > 0 else ""
    yield paragraph(
        f"Each circle is a kernel of rank {record.rank}; its area is its share of the time of all "
        f"kernels. Lines are the peaks of {system.accelerator.name}.{more}",
        "small",
    )


def _roofs(record: RankRecord, system: System) -> list[tuple[str, float]]:
    """The peaks that apply to the program, by unit and element type; equal ones are combined."""
    rates = rate_table(system.accelerator)
    used: dict[float, list[str]] = defaultdict(list)
    for graph in record.unrolled.graphs:
        work = np.stack([graph.work_unit, graph.work_dtype], axis=1)
        for unit, dtype in np.unique(work, axis=0).tolist():
            name = f"{Unit(unit).name.lower()} {DTYPES[dtype]}"
            if unit < Unit.TRANSCENDENTAL and name not in used[rates[unit, dtype]]:
                used[rates[unit, dtype]].append(name)
    return sorted((", ".join(sorted(names)), rate) for rate, names in used.items() if names)
