"""What fused attention computes beyond its FLOPs: whole heads, and blocks that a mask cuts.

The idea: scores stay on the chip, so that every product of attention has a head's elements either
in its sum or along its result's columns.  A head that is narrower than the array leaves a part of
it empty in both: Google's kernel takes as long for 32 heads of 64 as for 32 of 256 on a TPU v7x,
whose array has 256 columns (tests/data/tokamax).  The same kernels skip blocks that a
causal mask hides whole, and compute those that it cuts.

    with_whole_heads(m, n, k, attended, 256)     # 64 in the sum becomes 256
    visited(graph, items, 2048)                  # 1.5 for 4,096 causal positions
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph

Sizes = NDArray[np.float64]

#: Work of attention that is a smaller share of its products' is masked.
_MASKED: Final = 0.75
#: No head has fewer elements; the queries of one step of decoding are fewer.
_NARROWEST: Final = 32


def with_whole_heads(
    m: Sizes, n: Sizes, k: Sizes, attended: NDArray[np.bool_], step: int
) -> tuple[Sizes, Sizes, Sizes]:
    """Sizes of products, those of attention with a head of whole steps.

    Args:
        m, n, k: sizes of products.
        attended: which are attention's.
        step: elements of a head that are computed at once.
    """
    sizes = np.stack([m, n, k])
    wide = np.where(sizes >= _NARROWEST, sizes, np.inf)
    heads = attended & (np.arange(3)[:, None] == wide.argmin(axis=0)) & np.isfinite(wide)
    whole = np.where(heads, np.ceil(sizes / step) * step, sizes)
    return whole[0], whole[1], whole[2]


def visited(
    graph: WorkloadGraph, items: NDArray[np.bool_], block: int, masked: float = 1.0
) -> Sizes:
    """How much longer attention takes than the part that a causal mask leaves, at least 1.

    Masked work is counted as (T + 1) / 2T of the product's; a kernel visits n (n + 1) / 2 of n x n
    blocks.

    Args:
        graph: the graph with the products.
        items: work items of attention, products of known size.
        block: queries and keys of a block.
        masked: how much longer a block takes in a kernel with a mask.
    """
    sizes = np.array(graph.tables.gemms, np.float64).reshape(-1, 4)[graph.work_gemm[items]]
    counted = graph.work_flops[items] / (2 * np.maximum(sizes, 1.0).prod(1))
    positions = np.sort(sizes[:, 1:], axis=1)[:, 1]  # both sides of the scores; a head is narrower
    blocks = np.ceil(positions / block)
    computed = np.where(counted < _MASKED, (blocks + 1) / (2 * blocks), counted)
    more = np.maximum(computed / np.maximum(counted, computed / 2), 1.0)
    longer: Sizes = np.where(counted < _MASKED, more * masked, more)
    return longer
