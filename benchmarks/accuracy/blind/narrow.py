"""Products narrower than 16 bits, as training libraries run them, over a workload in bf16.

The idea: a recipe in f8 is the bf16 program with its linear products in f8 and additional casts. So
the same capture is timed with those products in the narrow type, and each also takes the time in
which its operands' casts move bytes.  Attention, and the head unless the recipe says otherwise,
stay. Whatever is not in this page (f8 gathers, fewer bytes kept for the backward pass) stays as in
bf16.

    seconds = narrow(SCALINGS["tensorwise"], vocabulary=(128256,))(graph, system)

The bytes that a cast moves per element follow from the library's kernels, not from times:

    tensorwise   read for the largest value, read again and written: 2 + 2 + 1
    rowwise      a row is read once, its largest value found and written on the chip: 2 + 1
    delayed      Transformer Engine writes the transpose beside it: 2 + 1 + 1
    static       XLA casts where the value is made and writes it beside: 1
    blocks       as rowwise, and a scale for every 32 (MXFP8) or 16 (NVFP4) elements
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import is_attention
from flint.cost.grouped import groups_of
from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a library multiplies narrow numbers.

    Attributes:
        dtype: of the products.
        cast: bytes moved per element of an operand, in addition to the product.
        gradients: of weights are narrow too.
    """

    dtype: str
    cast: float
    gradients: bool = True


#: Name -> scaling.
SCALINGS: Final = {
    "tensorwise": Scaling("f8E4M3FN", 5),
    "rowwise": Scaling("f8E4M3FN", 3),
    "rowwise_gw_hp": Scaling("f8E4M3FN", 3, gradients=False),
    "delayed": Scaling("f8E4M3FN", 4),
    "static": Scaling("f8E4M3FN", 1),
    "mxfp8": Scaling("f8E4M3FN", 3 + 1 / 32),
    "nvfp4": Scaling("f4E2M1FN", 2.5 + 1 / 16),
    "int8": Scaling("i8", 3),
}


def narrow(
    scaling: Scaling,
    *,
    wide: Collection[int] = (),
    tokens: int = 0,
    grouped: bool | None = None,
) -> Estimator:
    """The estimator of kernels with their linear products in a narrow type.

    Args:
        scaling: how.
        wide: products with such a size stay: the vocabulary's.
        tokens: rows of a product, by which gradients of weights are known: they sum over them.
        grouped: only products of experts, or only others; None: both.
    """

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        items = _products(graph, scaling, set(wide), tokens)
        if grouped is not None:
            of_experts = np.isin(np.arange(len(items)), list(groups_of(graph)))
            items &= of_experts == grouped
        if not items.any():
            return kernel_seconds(graph, system)
        dtypes = np.where(items, DTYPE_CODE[scaling.dtype], graph.work_dtype)
        timed = kernel_seconds(replace(graph, work_dtype=dtypes.astype(np.int8)), system)
        accelerator = system.accelerator
        b, m, n, k = np.array(graph.tables.gemms, np.float64).T[:, graph.work_gemm[items]]
        moved = scaling.cast * b * k * (m + n)
        rate = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
        owner = row_of_entry(graph.work_ptr)[items]
        return timed + np.bincount(owner, moved / rate, len(graph))

    return seconds


def _products(
    graph: WorkloadGraph, scaling: Scaling, wide: set[int], tokens: int
) -> NDArray[np.bool_]:
    """The work items that are linear products in the narrow type."""
    owner = row_of_entry(graph.work_ptr)
    items = (graph.work_unit == Unit.MATMUL) & (graph.work_gemm >= 0)
    items &= np.isin(graph.work_dtype, [DTYPE_CODE["bf16"]]) & ~is_attention(graph)[owner]
    stays = [
        bool(wide & set(sizes)) or (not scaling.gradients and sizes[3] == tokens)
        for sizes in graph.tables.gemms
    ]
    found: NDArray[np.bool_] = items & ~np.array([*stays, True])[graph.work_gemm]
    return found
