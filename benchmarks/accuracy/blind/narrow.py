"""Products narrower than 16 bits, as training libraries run them, over a workload in bf16.

The idea: a recipe in f8 is the bf16 program with its linear products in f8 and additional casts. So
the same capture is timed with those products in the narrow type, and each also takes the time in
which its operands' casts move bytes.  Attention, and the head, stay unless the recipe says
otherwise.  Whatever is not in this page (f8 gathers, fewer bytes kept for the backward pass) stays
as in bf16.

    seconds = narrow(SCALINGS["tensorwise"], vocabulary=(128256,))(graph, system)

A value is cast once for every dim that products sum over: activations and weights for the forward
and for the backward pass, gradients for both products that they are in.  Products that share an
operand (queries, keys and values; gate and up) share its cast.  ``scalings.py`` has how many bytes
that moves per element.

Attention in f8 (Transformer Engine's ``fp8_dpa``) casts its operands, and the gradient of its
result: 2 + 2 + 1, with scales of earlier steps 2 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scalings import TRANSPOSING, WIDE, Scaling

from flint.cost.classes import is_attention, named
from flint.cost.grouped import groups_of
from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph
from flint.graph.kinds import Phase
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry


def narrow(
    scaling: Scaling,
    *,
    wide: Collection[int] = (),
    tokens: int = 0,
    grouped: bool | None = None,
    kept: bool = False,
    rows: int = 0,
    attention: bool = False,
    timed: Estimator = kernel_seconds,
    made: Callable[[WorkloadGraph], Collection[int]] | None = None,
) -> Estimator:
    """The estimator of kernels with their linear products in a narrow type.

    Args:
        scaling: how.
        wide: products with such a size stay: the vocabulary's.
        tokens: rows of a product, by which gradients of weights are known: they sum over them.
        grouped: only products of experts, or only others; None: both.
        kept: weights are kept in the narrow type: what ``tokens`` are multiplied by is not cast.
        rows: the same of the experts' products.
        attention: that is in f8, too; its operands and results are cast.
        timed: how kernels are timed.
        made: values of a graph that other kernels write in the narrow type; None: none.
    """

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        items = _products(graph, scaling, set(wide), tokens)
        if grouped is not None:
            of_experts = np.isin(np.arange(len(items)), list(groups_of(graph)))
            items &= of_experts == grouped
        if not items.any():
            return timed(graph, system)
        dtypes = np.where(items, DTYPE_CODE[scaling.dtype], graph.work_dtype)
        attended = is_attention(graph) & attention
        scores = (graph.work_unit == Unit.MATMUL) & attended[row_of_entry(graph.work_ptr)]
        dtypes = np.where(scores, DTYPE_CODE["f8E4M3FN"], dtypes)
        found = timed(replace(graph, work_dtype=dtypes.astype(np.int8)), system)
        accelerator = system.accelerator
        share = accelerator.kernel.memory_efficiency
        if scaling.transposes:
            share = TRANSPOSING[accelerator.name.split()[0]]
        rate = accelerator.memory_bandwidth * share
        owner = row_of_entry(graph.work_ptr)[items]
        rows_of = {tokens, rows or tokens}
        columns = WIDE * accelerator.kernel.units
        there = made(graph) if made else ()
        cast = _cast(graph, scaling, items, rows_of if kept else (), rows_of, columns, there)
        found += np.bincount(owner, cast / rate, len(graph))
        whole = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
        return found + _around(graph, attended) * (3 if scaling.transposes else 5) / whole

    return seconds


def _cast(
    graph: WorkloadGraph, scaling: Scaling, items: NDArray[np.bool_], tokens: Collection[int] = (),
    trained: Collection[int] = (), columns: float = math.inf, made: Collection[int] = (),
) -> NDArray[np.float64]:  # fmt: skip
    """Bytes that casts of the products' operands move, shape [products].

    An operand is the value that has as many elements; where a kernel reads none, it is its own.
    What so many ``tokens`` are multiplied by, a weight, is there already; what ``trained`` are
    multiplied by is a weight, too.  A matrix of so many ``columns``, or more, is wide.  What is
    ``made`` in the narrow type is not cast.
    """
    phases = [source.phase for source in graph.tables.sources]
    elements = [kind.elements for kind in graph.tables.types]
    owner = row_of_entry(graph.work_ptr)
    seen: dict[tuple[int, int], set[tuple[int, int]]] = {}
    found = []
    for item in np.flatnonzero(items).tolist():
        node = int(owner[item])
        b, m, n, k = graph.tables.gemms[int(graph.work_gemm[item])]
        b = max(1, min(b, round(float(graph.work_flops[item]) / (2 * m * n * k))))  # one of parts
        there = {int(v): elements[int(graph.value_type[v])] for v in graph.operands_of(node)}
        moved = 0.0
        for side, size in enumerate((b * m * k, b * k * n)):
            if side and m in tokens:
                continue
            value = next((v for v, count in there.items() if count == size), -1)
            there.pop(value, None)
            if value in made:
                continue
            name = (value, 0) if value >= 0 else (~item, side)
            layouts = seen.setdefault(name, set())
            layout = (k, int(phases[int(graph.source[node])]))
            if scaling.apart:
                moved += _apart(scaling, layouts, layout[1], bool(side) and m in trained) * size
                layouts.add(layout)
            elif layout not in layouts:
                backward = layout[1] == Phase.BACKWARD
                weight = bool(side) and m in trained
                first = scaling.gradient if backward else None
                first = scaling.weight if weight else first
                first = scaling.first if first is None else first
                moved += (scaling.again if layouts else first) * size
                down = bool(layouts) if weight else backward and k in trained
                if scaling.wide and down and size >= columns * k:
                    moved += (scaling.wide - scaling.again) * size
                layouts.add(layout)
        if phases[int(graph.source[node])] == Phase.BACKWARD:
            moved += scaling.rescaled * b * m * n
        found.append(moved)
    return np.array(found)


def _apart(
    scaling: Scaling, layouts: Collection[tuple[int, int]], phase: int, weight: bool
) -> float:
    """Bytes for each element of an operand that its product casts by itself.

    Args:
        scaling: how.
        layouts: sizes that earlier products summed over, with their phases.
        phase: of the product.
        weight: the operand is one.
    """
    backward, earlier = phase == Phase.BACKWARD, {was for _, was in layouts}
    if backward and earlier:
        return 0.0 if earlier == {Phase.BACKWARD} else scaling.again
    found = scaling.weight if weight else scaling.gradient if backward else scaling.first
    return scaling.first if found is None else found


def _around(graph: WorkloadGraph, attended: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Elements that are cast for attention, shape [nodes]: its operands, or the gradient of its
    result, which is a backward pass's first operand; the others are in f8 since the forward pass.
    """
    elements = [kind.elements for kind in graph.tables.types]
    backward = named(graph, ("backward",))
    found = np.zeros(len(graph))
    for node in np.flatnonzero(attended).tolist():
        values = list(graph.operands_of(node))[: 1 if backward[node] else 3]
        found[node] = sum(elements[int(graph.value_type[value])] for value in values)
    return found


def _products(
    graph: WorkloadGraph, scaling: Scaling, wide: set[int], tokens: int
) -> NDArray[np.bool_]:
    """The work items that are linear products in the narrow type."""
    owner = row_of_entry(graph.work_ptr)
    items = (graph.work_unit == Unit.MATMUL) & (graph.work_gemm >= 0)
    items &= np.isin(graph.work_dtype, [DTYPE_CODE["bf16"]]) & ~is_attention(graph)[owner]
    stays = [
        bool(wide & set(sizes[1:])) or (not scaling.gradients and sizes[3] == tokens)
        for sizes in graph.tables.gemms
    ]
    found: NDArray[np.bool_] = items & ~np.array([*stays, True])[graph.work_gemm]
    return found
