"""Time by layer, as the report of a step shows it.

The idea: a layer's path has a number that distinguishes the model's blocks.  The blocks are drawn
as columns, and the same layer of all blocks is one row of the table.

    layer_seconds(recording.ranks[0])["block_0/attn"]      # array([compute, communication, FLOPs])
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from flint.converters.pictures.charts import columns
from flint.host.pages import heading, paragraph, table
from flint.host.readable import human_flops, human_seconds
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.recording import RankRecord
from flint.simulation.spans import parts

Floats = NDArray[np.float64]

#: The most rows of the table, those with the most time.
MAX_LAYERS: Final = 60
#: A separate number in a layer's path: in "layers.12.mlp", "block_12/mlp", not in "v2".
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z0-9])")


def layer_seconds(record: RankRecord) -> dict[str, Floats]:
    """Layer -> seconds of compute, seconds of communication, FLOPs; "" is unknown."""
    sources = record.graph.tables.sources
    names: dict[str, int] = {}
    of_source = np.array([names.setdefault(s.layer, len(names)) for s in sources] or [0], np.int64)
    if not names:
        names[""] = 0
    template = record.unrolled.template[record.instance]
    layer = of_source[record.unrolled.column("source")[template]]
    flops = np.concatenate([graph.flops_by_node() for graph in record.unrolled.graphs])[template]
    spent = (record.end - record.start).astype(np.float64)
    talks = record.communicates
    spent[talks] = parts(record.start[talks], record.end[talks])
    spent /= TICKS_PER_SECOND
    by_node = (
        np.where(record.computes, spent, 0.0),
        np.where(talks, spent, 0.0),
        np.where(record.computes, flops, 0.0),
    )
    sums = [np.bincount(layer, weights=column, minlength=len(names)) for column in by_node]
    return {name: np.array([column[i] for column in sums]) for name, i in names.items()}


def block_numbers(layers: Iterable[str]) -> dict[str, re.Match[str] | None]:
    """The number in each layer's path that distinguishes the model's blocks; None if there is none.

    If there are several numbers, such as those of a pipeline stage and of a block in it, or of a
    block and of an expert in it, the one with the most values after the same prefix; the first of
    equal ones.
    """
    found = {layer: list(_NUMBER.finditer(layer)) for layer in layers}
    values: dict[str, set[str]] = defaultdict(set)
    for layer, numbers in found.items():
        for number in numbers:
            values[layer[: number.start()]].add(number.group())
    return {
        layer: max(numbers, key=lambda n: len(values[n.string[: n.start()]]), default=None)
        for layer, numbers in found.items()
    }


def layers(record: RankRecord) -> Iterator[Markup]:
    """Time by layer: columns for the model's blocks, and a table with equal layers combined."""
    found = {name: sums for name, sums in layer_seconds(record).items() if sums.any()}
    yield heading("Time by layer")
    if not any(found):
        yield paragraph("The program does not say which layers its operations belong to.")
        return
    numbers = block_numbers(found)
    yield from _blocks(found, numbers)
    # The same layer of all blocks is one row: its path with a star in place of the number.
    kinds: dict[str, list[str]] = defaultdict(list)
    for layer, number in numbers.items():
        kind = f"{layer[: number.start()]}*{layer[number.end() :]}" if number else layer
        kinds[kind].append(layer)
    rows = [
        (kind if len(layers) > 1 else layers[0], len(layers), _sum(found[item] for item in layers))
        for kind, layers in kinds.items()
    ]
    rows.sort(key=lambda row: -(row[2][0] + row[2][1]))
    if rest := rows[MAX_LAYERS:]:
        others = sum(count for _, count, _ in rest), _sum(sums for _, _, sums in rest)
        rows[MAX_LAYERS:] = [(f"{len(rest):,} others", *others)]
    # In a scan, the blocks are one and have no numbers.
    together = any(count > 1 for _, count, _ in rows)
    yield table(
        ("layer", *([">equal layers"] * together), ">compute", ">communication", ">FLOPs"),
        [
            (
                name or "(unknown)",
                *([f"{count:,}"] * together),
                human_seconds(sums[0]),
                human_seconds(sums[1]),
                human_flops(sums[2]) if sums[2] else "",
            )
            for name, count, sums in rows
        ],
    )
    yield paragraph(
        f"Of rank {record.rank}, summed over all iterations of loops, overlapped or not.",
        "small",
    )


def _blocks(found: dict[str, Floats], numbers: dict[str, re.Match[str] | None]) -> Iterator[Markup]:
    """The longest row of numbered blocks, a column each."""
    stacks: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for layer, number in numbers.items():
        if number:
            stacks[layer[: number.start()]][int(number.group())].append(layer)
    prefix, stack = max(stacks.items(), key=lambda item: len(item[1]), default=("", {}))
    if len(stack) < 2:
        return
    order = sorted(stack)
    sums = [_sum(found[layer] for layer in stack[number]) for number in order]
    yield columns(
        [str(number) for number in order],
        [
            (what, [float(item[i]) for item in sums])
            for i, what in enumerate(("compute", "communication"))
        ],
        human_seconds(max(float(item[0] + item[1]) for item in sums)),
    )
    yield paragraph(f"Blocks by number, {prefix}{order[0]} to {prefix}{order[-1]}.", "small")


def _sum(items: Iterable[Floats]) -> Floats:
    whole: Floats = np.sum(list(items), axis=0)
    return whole
