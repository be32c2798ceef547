"""Element types for which a system lists no rate, and how much of the step depends on that.

The idea: such a product is computed in another type (``computed_as``), which is a guess about the
backend: whether it casts, and at what rate.  Guesses are reported, once for each type.

    unlisted_types(graphs, shares, prices, step_seconds)
    # ["A100 lists no rate for f8E4M3FN products: computed as bf16 (312 TFLOP/s); 38% of the step"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from flint.cost.hardware import Accelerator
from flint.cost.prices import Prices
from flint.cost.roofline import Computed, computed_as, family_of
from flint.graph.distinct import distinct
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Unit
from flint.host.readable import human_flops, percentage
from flint.mesh.ragged import row_of_entry

#: Vector units compute narrow types in 32 bits: that is how they are built, not a guess.
_VECTOR_GUESSES = frozenset({"f64", "complex<f64>", "i64", "ui64"})
#: A smaller share of the step is not worth a line, and a smaller share of a kernel (indices in an
#: attention kernel) says nothing about its time.
_LEAST = 1e-3
_LEAST_OF_KERNEL = 0.05
_WORDS = {Unit.MATMUL: "products", Unit.VECTOR: "arithmetic"}


def unlisted_types(
    graphs: Sequence[WorkloadGraph], shares: Sequence[float], prices: Prices, step_seconds: float
) -> list[str]:
    """A line for each unit and element type that the system does not list, most time first.

    Args:
        graphs: graphs of the programs, as simulated.
        shares: share of all ranks that run each program.
        prices: prices of kernels.
        step_seconds: seconds of the whole step.
    """
    accelerator = prices.system.accelerator
    spent: dict[tuple[Unit, str, Computed], float] = defaultdict(float)
    for graph, share in zip(graphs, shares, strict=True):
        for block, times in graph.walk():
            measured = block.measured_by_node()  # those take their own time, independent of a rate
            for (unit, dtype), computed in _guesses(block, accelerator).items():
                code = DTYPES.index(dtype)
                items = (block.work_unit == unit) & (block.work_dtype == code)
                owner = row_of_entry(block.work_ptr)[items]
                flops = np.bincount(owner, block.work_flops[items], len(measured))
                seconds = prices.kernels(block)
                matters = flops / computed.rate > _LEAST_OF_KERNEL * seconds
                found = float(seconds[matters & (measured < 0)].sum())
                spent[unit, dtype, computed] += share * times * found
    order = sorted(spent.items(), key=lambda item: -item[1])
    return [
        f"{accelerator.name} lists no rate for {dtype} {_WORDS[unit]}: computed as "
        f"{computed.dtype}{_elsewhere(unit, computed)} ({human_flops(computed.rate)}/s); "
        f"{percentage(seconds, step_seconds)} of the step is spent in these kernels"
        for (unit, dtype, computed), seconds in order
        if seconds > _LEAST * step_seconds
    ]


def _guesses(graph: WorkloadGraph, accelerator: Accelerator) -> dict[tuple[Unit, str], Computed]:
    """Unit and type of work items that the accelerator does not list -> how they are computed."""
    if not len(graph.work_unit):
        return {}
    pairs = distinct(graph.work_unit.astype(np.int64) * len(DTYPES) + graph.work_dtype)
    found: dict[tuple[Unit, str], Computed] = {}
    for number in pairs.tolist():
        unit, dtype = Unit(number // len(DTYPES)), DTYPES[number % len(DTYPES)]
        if unit not in _WORDS or (unit == Unit.VECTOR and dtype not in _VECTOR_GUESSES):
            continue
        computed = computed_as(accelerator, unit, dtype)
        if computed.dtype not in (dtype, family_of(dtype)):
            found[unit, dtype] = computed
    return found


def _elsewhere(unit: Unit, computed: Computed) -> str:
    return "" if unit == computed.unit else " by the vector units"
