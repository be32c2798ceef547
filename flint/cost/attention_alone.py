"""How fast cuDNN's fused attention is in a program of one device: by head size, length, direction.

The idea: softmax and products of one tile wait for each other, and a tile has as many exponentials
for narrow heads as for wide ones; short sequences spend more of their time on filling pipelines.
A description states shares of the peak that were published for heads of some sizes and sequences of
some lengths without a mask (``KernelModel.attention_alone``).  Between these, the time of a head is
linear in its size, and in one over the length; sequences are computed in whole tiles.  A causal
mask hides half of the scores; of n blocks, n + 1 halves are computed all the same:

    seconds = scores * (n + 1) / 2n * products of a head / (peak * share)

    longer_than_at_the_peak(graph, items, accelerator.kernel)     # at least 1 per item

Dropout draws a number for each score while softmax and products wait.  Libraries use Philox4x32-10
(Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): ten rounds of two wide
multiplications and two three-way exclusive ors make four numbers, each of which is then converted,
compared and selected by.  Integer units could issue a multiply-add, two operations, in the place of
each of these.

    random_seconds(graph, attention, backward, accelerator)       # per node
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import Accelerator, AttentionShare, KernelModel
from flint.cost.roofline import Seconds, rate_table
from flint.graph.distinct import distinct
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry

#: Positions of a tile.
_TILE: Final = 128
#: Products of a kernel: scores and what they weigh; the scores again, and four gradients.
_FORWARD, _BACKWARD = 2, 5
#: Work of attention that is a smaller share of its products' is masked.
_MASKED: Final = 0.75
#: Operations per number that dropout draws: ten rounds of six instructions for four of them, and
#: three more, each in the place of a multiply-add.
_DRAW: Final = 2 * (10 * 6 / 4 + 3)


def random_seconds(
    graph: WorkloadGraph,
    attention: NDArray[np.bool_],
    backward: NDArray[np.bool_],
    accelerator: Accelerator,
) -> Seconds:
    """Seconds in which attention draws the numbers of its dropout, shape [nodes].

    Args:
        graph: the graph.
        attention: which kernels are attention, shape [nodes].
        backward: which compute gradients; their work has the forward pass's numbers, too.
        accelerator: the device.
    """
    drawn = (graph.work_unit == Unit.TRANSCENDENTAL) & (graph.work_dtype == DTYPES.index("ui32"))
    owner = row_of_entry(graph.work_ptr)[drawn]
    numbers = np.bincount(owner, graph.work_flops[drawn], len(graph)) * attention
    rate = float(rate_table(accelerator)[Unit.VECTOR][DTYPES.index("i32")])
    seconds: Seconds = numbers / np.where(backward, 2, 1) * _DRAW / rate
    return seconds


def longer_than_at_the_peak(
    graph: WorkloadGraph, items: NDArray[np.bool_], backward: NDArray[np.bool_], model: KernelModel
) -> Seconds:
    """How much longer than at the peak products of attention take, shape [chosen items].

    Args:
        graph: the graph with the products.
        items: which work items, products of known size, shape [items].
        backward: which kernels compute gradients, shape [nodes].
        model: of a device that states ``attention_alone``.
    """
    node = row_of_entry(graph.work_ptr)[items]
    sizes = np.array(graph.tables.gemms, np.float64).reshape(-1, 4)[graph.work_gemm[items]]
    flops = graph.work_flops[items].astype(np.float64)
    whole = 2 * np.maximum(sizes, 1.0).prod(1) * _products(node, sizes[:, 0], flops, backward)
    masked = flops / whole < _MASKED
    key = (graph.work_gemm[items] * 2 + masked) * 2 + backward[node]
    keys = distinct(key)
    found = [
        stretch(graph.tables.gemms[each // 4], bool(each // 2 % 2), bool(each % 2), model)
        for each in keys.tolist()
    ]
    longer: Seconds = np.array(found)[np.searchsorted(keys, key)] * whole / flops
    return longer


def _products(node: Ints, heads: Seconds, flops: Seconds, backward: NDArray[np.bool_]) -> Seconds:
    """How many products of its size each item stands for, shape [chosen items].

    Items of several products have several times the heads, or the same number as the other items of
    their kernel: then the kernel's products are shared out by their FLOPs.

    Args:
        node: the kernel of each item.
        heads: first dim of its products.
        flops: its work.
        backward: which kernels compute gradients, shape [nodes].
    """
    count = len(backward)
    total = np.bincount(node, flops, count)
    most, least = np.zeros(count), np.full(count, np.inf)
    np.maximum.at(most, node, heads)
    np.minimum.at(least, node, heads)
    alike = (most == least) & (np.bincount(node, minlength=count) > 1)
    products = np.where(backward, _BACKWARD, _FORWARD)
    shared: Seconds = np.where(alike[node], products[node] * flops / total[node], 1.0)
    return shared


def stretch(
    dims: tuple[int, int, int, int], masked: bool, backward: bool, model: KernelModel
) -> float:
    """The whole product's time over its time at the peak.

    Args:
        dims: of the product: heads, then head size and both lengths in any order.
        masked: by a causal mask.
        backward: whether it belongs to gradients.
        model: with the shares.
    """
    size, short, long = sorted(dims[1:])  # a head is narrower than the scores
    tiles = [math.ceil(length / _TILE) * _TILE for length in (short, long)]
    blocks = math.ceil(long / model.attention_causal) if masked and model.attention_causal else 1
    computed = tiles[0] * tiles[1] / (short * long) * (blocks + 1) / (2 * blocks)
    return computed / _share(size, tiles[0], backward, model.attention_alone)


def _share(size: int, length: int, backward: bool, stated: tuple[AttentionShare, ...]) -> float:
    """The share of the peak of heads of a size in sequences of a length."""
    heads = sorted({each.head for each in stated})
    times = []  # of a head, in units of its products of size 1 at the peak
    for head in heads:
        rows = sorted((each for each in stated if each.head == head), key=lambda row: -row.length)
        over = [1 / row.length for row in rows]
        slow = [1 / (row.backward if backward else row.forward) for row in rows]
        slope = (slow[-1] - slow[-2]) / (over[-1] - over[-2]) if len(rows) > 1 else 0.0
        beyond = max(1 / length - over[-1], 0.0)
        times.append(head * (float(np.interp(1 / length, over, slow)) + slope * beyond))
    if size >= heads[-1] or len(heads) == 1:
        return heads[-1] / times[-1]
    each = (times[1] - times[0]) / (heads[1] - heads[0])
    between = float(np.interp(size, heads, times)) - each * max(heads[0] - size, 0)
    return min(size / max(between, each * size), 1.0)
