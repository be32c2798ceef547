"""Kernels of GPU libraries whose time is neither their products' nor their bytes'.

The idea: norms read their activations again. Statistics over a batch are complete before the first
element can be normalised; backward passes of norms are a kernel for the input's gradient and one
for the weight's.  So more bytes move than operands and results have.

Two kinds of kernels that PyTorch runs for tensors with channels first are bound by their own loops.
A batch norm has one block of 512 threads per channel, however few channels there are:

    seconds = max(one block, blocks per multiprocessor * elements of a channel / rate)

A depthwise convolution has a thread per element, which finds its place and its window by integer
arithmetic, element by element: seconds = elements * window * operations / peak of i32.

The rates are those that Nsight Compute measured on an H100 in training steps of MobileNetV2 (64
images) and ResNet-50 (32) in f32, published by the authors of Orion (EuroSys 2024,
github.com/eth-easl/orion, commit 27837ac, benchmarking/model_kernels/h100).  Both loops go over
elements, so that in half precision they count as taking as long.

    at_least(graph, accelerator)        # seconds per node; 0 where nothing is known
"""

from __future__ import annotations

from math import ceil, prod
from typing import Final, NamedTuple

import numpy as np

from flint.cost.hardware import Accelerator
from flint.cost.roofline import Seconds, rate_table
from flint.graph.graph import WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Unit

#: What such kernels do, as graphs name it (``Tables.heroes``).
PER_CHANNEL: Final = "one block per channel"
DIRECT: Final = "direct convolution"
TWICE: Final = "norm in two passes"
#: A step of a layer that cuDNN runs as a whole: the host launches none of its kernels.
RECURRENT: Final = "recurrent layer"


class _Pace(NamedTuple):
    """Elements per second of one block of threads, and of all blocks on a multiprocessor."""

    block: float
    multiprocessor: float


#: Statistics, then the result: three passes over the elements; backward five.
_FORWARD, _BACKWARD = _Pace(1.2e9, 1.25e9), _Pace(0.5e9, 0.85e9)
#: Operations of a thread per element of the window: forward, and for both gradients.
_WINDOW, _GRADIENT_WINDOW = 60, 100


def at_least(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds of such kernels without what every kernel takes, shape [nodes]; 0 for others."""
    found = np.zeros(len(graph))
    known = [
        (index, hero) for index, (_, hero) in enumerate(graph.tables.named_heroes()) if hero in _OF
    ]
    for op, hero in known:
        for index in np.flatnonzero(graph.op == op).tolist():
            found[index] = _OF[hero](graph[index], accelerator)
    return found


def _per_channel(node: Node, accelerator: Accelerator) -> float:
    backward = "backward" in node.op
    pace = _BACKWARD if backward else _FORWARD
    shape = max((item.shape for item in node.operand_types), key=prod, default=())
    if len(shape) < 3:
        return 0.0
    channel, model = prod(shape) // max(1, shape[1]), accelerator.kernel
    waves = ceil(shape[1] / model.units)
    busy = max(channel / pace.block, waves * channel / pace.multiprocessor)
    return busy + (waves - 1) * model.latency


def _direct(node: Node, accelerator: Accelerator) -> float:
    rate = float(rate_table(accelerator)[Unit.VECTOR][DTYPES.index("i32")])
    planes = [item for item in node.operand_types if len(item.shape) == 4]
    if len(planes) < 2 or not node.result_types:
        return 0.0
    weight = min(planes, key=lambda item: item.elements)
    window = prod(weight.shape[2:])
    if "backward" not in node.op:
        return node.result_types[0].elements * window * _WINDOW / rate
    # An element of the input's gradient gathers a window; one of the weight's sums over the grad.
    grad = min(item.elements for item in planes if item is not weight)
    elements = sum(
        grad if made.shape == weight.shape else made.elements
        for made in node.result_types
        if len(made.shape) == 4
    )
    return elements * window * _GRADIENT_WINDOW / rate


def _twice(node: Node, accelerator: Accelerator) -> float:
    most = max((item.elements for item in node.operand_types), default=0)
    again = sum(item.bytes for item in node.operand_types if item.elements == most)
    moved = node.work.read + node.work.written + again
    return moved / (accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency)


_OF: Final = {PER_CHANNEL: _per_channel, DIRECT: _direct, TWICE: _twice}
