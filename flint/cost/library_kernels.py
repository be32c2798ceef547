"""Kernels of GPU libraries whose time is neither their products' nor their bytes'.

The idea: norms read their activations again. Statistics over a batch are complete before the first
element can be normalised; backward passes of norms are a kernel for the input's gradient and one
for the weight's.  So more bytes move than operands and results have.

Two kinds of kernels that PyTorch runs for tensors with channels first are bound by their own loops.
A batch norm has one block of 512 threads per channel, however few channels there are:

    seconds = max(one block, blocks per multiprocessor * elements of a channel / rate)

A depthwise convolution has a thread per element, which finds its place and its window by integer
arithmetic, element by element: seconds = elements * window * operations / peak of i32.

So do PyTorch's elementwise kernels where operands are broadcast, lie differently or are of several
types (the vectorised kernels take only dense tensors of one type), and sums.  A copy that turns a
matrix fetches a sector of 32 bytes for every element.  In a step of many devices these and the
efficiency of products, which is fitted to whole steps, stand for each other: they count only in a
program of one device (``KernelModel.alone``).

XLA's softmaxes hold a row in the registers of one block, which waits for it twice before it writes:
they move less than other kernels, also in a program of one device only.  Norms, whose rows have no
exponentials, do not (``tests/data/single_gpu/moe_dropless.xplane.pb.xz``).

Rows that are added at indices (``index_add``, ``scatter_add``) are added one by one, by atomic
operations, as are elements of half precision that XLA scatters; in f32 it adds several at once.
The gradient of ``x[indices]`` sorts them first, and adds by ordinary ones.

Around convolutions with channels first cuDNN's kernels turn every operand and result to channels
last and back; PyTorch adds the bias in a kernel of its own and sums its gradient in another.

The rates are those that Nsight Compute measured on an H100 in training steps of MobileNetV2 (64
images) and ResNet-50 (32) in f32, published by the authors of Orion (EuroSys 2024,
github.com/eth-easl/orion, commit 27837ac, benchmarking/model_kernels/h100), in half precision
those of the profile of a segmentation network on an H100 (``segment`` in
benchmarks/accuracy/single_gpu); depthwise convolutions count as taking as long in it.  Those of
elementwise kernels, of sums and of turning copies are medians of profiles and of kernels alone on
an H100 (benchmarks/accuracy/single_gpu).

    at_least(graph, accelerator)        # seconds per node; 0 where nothing is known
    beside(graph, accelerator)          # seconds of further kernels per node
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Final, NamedTuple

import numpy as np

from flint.cost import row_kernels as rows
from flint.cost.hardware import Accelerator
from flint.cost.roofline import Seconds, rate_table
from flint.graph.graph import REPLACES, WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.tensor_types import DTYPES, TensorType
from flint.graph.work import Unit

#: What such kernels do, as graphs name it (``Tables.heroes``).
PER_CHANNEL: Final = "one block per channel"
DIRECT: Final = "direct convolution"
TWICE: Final = "norm in two passes"
LOOPED: Final = "element by element"
TRANSPOSING: Final = "transposing copy"
ROWS: Final = "sum of rows"
COLUMNS: Final = "sum of columns"
ADDED: Final = "added at indices"
SORTED: Final = "added at sorted indices"
CHANNELS_FIRST: Final = "convolution between layouts"
WITH_BIAS: Final = "convolution and bias"
#: An op, and a compiled fusion as ``flint.stablehlo.rules.heroes`` tells it.
SCATTER: Final = "scatter"
#: As that tells one, too: whole rows that are held, with exponentials.
SOFTMAX: Final = "softmax"
#: A product that reads or writes rows which do not all begin at a multiple of 16 bytes.
UNALIGNED: Final = "product of unaligned rows"
#: A step of a layer that cuDNN runs as a whole: the host launches none of its kernels.
RECURRENT: Final = "recurrent layer"


#: From a kernel and the device: seconds without what every kernel takes.
Rule = Callable[[Node, Accelerator], float]


class _Pace(NamedTuple):
    """Elements per second of one block of threads, and of all blocks on a multiprocessor."""

    block: float
    multiprocessor: float


#: Statistics, then the result: three passes over the elements; backward five.  Forward, backward.
_PASSES: Final = (_Pace(1.2e9, 1.25e9), _Pace(0.5e9, 0.85e9))
#: The same in half precision.
_HALF_PASSES: Final = (_Pace(1.45e9, 1.96e9), _Pace(0.69e9, 1.15e9))
#: Operations of a thread per element of the window: forward, and for both gradients.
_WINDOW, _GRADIENT_WINDOW = 60, 100
#: Operations of a thread per element of each tensor of an elementwise kernel, of at most so many.
_PLACE, _PLACES = 50, 3
#: Operations per element of a sum: along what is next to each other in memory, and across.
_ALONG, _ACROSS = 38, 80
#: Sectors per second that a multiprocessor fetches one by one: 7.5 ps for each on 132 of them.
_SECTORS: Final = 1.0e9
#: Elements per second that a multiprocessor adds at indices: an H200 takes 7.25 ps for one of f32
#: and 8.28 ps for one of bf16 (benchmarks/accuracy/single_gpu/h200, gnn and grouped-moe).
_ADDS: Final = 0.98e9
#: The same where indices are sorted: 1.848 ms for 196,608 rows of 2,048 in bf16 on a B200, of which
#: zeros before take 0.14 ms (pytorch/ao, pull request 4623: the backward pass of a permutation).
_SORTED: Final = 1.6e9
#: The same of XLA's scatters: 7.5 to 8.2 ps for one of bf16 (tests/data/single_gpu, moe_dropless),
#: 2.6 ps for one of f32 in rows of 128 (gnn in docs/accuracy/one-gpu.md).
_SCATTERS: Final = {"bf16": _ADDS, "f16": _ADDS, "f32": 2.9e9}
#: Bytes per second that a multiprocessor moves in a kernel of whole rows with exponentials: XLA's,
#: which are Triton's, move 1.9 TB/s on an H100 (benchmarks/accuracy/single_gpu/jax).
_ROWS: Final = 1.44e10


def at_least(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds of such kernels without what every kernel takes, shape [nodes]; 0 for others."""
    found = np.zeros(len(graph))
    if accelerator.systolic is not None:  # has none of these libraries
        return found
    for op, (name, hero) in enumerate(graph.tables.named_heroes()):
        if rule := _OF.get(hero or name):
            for index in np.flatnonzero(graph.op == op).tolist():
                found[index] = rule(graph[index], accelerator)
    return found


def _per_channel(node: Node, accelerator: Accelerator) -> float:
    most = max(node.operand_types, key=lambda item: item.elements, default=None)
    if most is None or len(most.shape) < 3:
        return 0.0
    shape, model = most.shape, accelerator.kernel
    channel = prod(shape) // max(1, shape[1])
    paces = _HALF_PASSES if most.bytes == 2 * most.elements else _PASSES
    pace = paces["backward" in node.op]
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


def _operations(accelerator: Accelerator) -> float:
    return float(rate_table(accelerator)[Unit.VECTOR][DTYPES.index("i32")])


def _looped(node: Node, accelerator: Accelerator) -> float:
    tensors = [item for item in (*node.operand_types, *node.result_types) if item.elements > 1]
    most = max((item.elements for item in tensors), default=0)
    places = min(len(tensors), _PLACES) * _PLACE
    return most * places / _operations(accelerator) if accelerator.kernel.alone else 0.0


def _transposing(node: Node, accelerator: Accelerator) -> float:
    most = max((item.elements for item in node.result_types), default=0)
    rate = _SECTORS * accelerator.kernel.units
    return most / rate if accelerator.kernel.alone else 0.0


def _added(per_unit: float) -> Rule:
    def seconds(node: Node, accelerator: Accelerator) -> float:
        rows = max((item.elements for item in node.operand_types[1:]), default=0)
        return rows / (per_unit * accelerator.kernel.units)

    return seconds


def _scattered(node: Node, accelerator: Accelerator) -> float:
    """Elements that a scatter adds: as many as it computes, and one of its operands has."""
    kind = node.result_types[0].dtype if node.result_types else ""
    if node.form[-1:] == (REPLACES,):
        return 0.0
    items = (item for item in node.work.items if item.unit == Unit.VECTOR)
    added = sum(item.flops for item in items if item.dtype == kind)
    most = max((item.elements for item in node.operand_types), default=0)
    return min(added, most) / (_SCATTERS.get(kind, np.inf) * accelerator.kernel.units)


def _softmax(node: Node, accelerator: Accelerator) -> float:
    moved = node.work.read + node.work.written
    return moved / (_ROWS * accelerator.kernel.units) if accelerator.kernel.alone else 0.0


def _summed(operations: int) -> Rule:
    def seconds(node: Node, accelerator: Accelerator) -> float:
        most = max((item.elements for item in node.operand_types), default=0)
        return most * operations / _operations(accelerator) if accelerator.kernel.alone else 0.0

    return seconds


def _row_gradient(node: Node, accelerator: Accelerator) -> float:
    if not accelerator.kernel.alone:
        return _twice(node, accelerator)
    most = max((item.elements for item in node.operand_types), default=0)
    return rows.row_gradient(node, accelerator, most * _ACROSS / _operations(accelerator))


def _alone(rule: Rule) -> Rule:
    """The rule where it counts: in a program of one device."""
    return lambda node, accelerator: rule(node, accelerator) if accelerator.kernel.alone else 0.0


_OF: Final[dict[str, Rule]] = {
    PER_CHANNEL: _per_channel, DIRECT: _direct, TWICE: _twice, LOOPED: _looped,
    TRANSPOSING: _transposing, ROWS: _summed(_ALONG), COLUMNS: _summed(_ACROSS),
    ADDED: _added(_ADDS), SORTED: _added(_SORTED),
    SOFTMAX: _softmax, SCATTER: _scattered, rows.ROW_GRADIENT: _row_gradient,
    rows.REGISTERS: _alone(rows.in_registers), rows.SHARED: _alone(rows.in_shared),
    rows.AGAIN: _alone(rows.again), rows.PRODUCT_FIRST: _alone(rows.product_first),
    rows.TABLE_GRADIENT: _alone(rows.table_gradient),
}  # fmt: skip


def beside(graph: WorkloadGraph, accelerator: Accelerator) -> Seconds:
    """Seconds of kernels that a convolution has beside its own, shape [nodes]."""
    found = np.zeros(len(graph))
    if accelerator.systolic is not None:
        return found
    rate = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
    each = accelerator.kernel.latency + accelerator.launch_overhead
    for op, (_, hero) in enumerate(graph.tables.named_heroes()):
        if hero not in (CHANNELS_FIRST, WITH_BIAS):
            continue
        for index in np.flatnonzero(graph.op == op).tolist():
            kernels = _around(graph[index], turns=hero == CHANNELS_FIRST)
            found[index] = sum(moved / rate + each for moved in kernels)
    return found


def _around(node: Node, *, turns: bool) -> list[float]:
    """Bytes moved by each kernel beside a convolution: ``turns`` between layouts, and its bias."""
    given, made = node.operand_types, [item for item in node.result_types if item.elements]
    data = 1 if "backward" in node.op else 0
    if len(given) < data + 2 or not made:
        return []
    rank = len(given[data].shape)
    turned: list[TensorType] = []
    beside: list[float] = []
    if not data:
        turned = [*given[:2], made[0]]
        beside = [2.0 * made[0].bytes] if len(given) > 2 else []
    else:
        gradient, value, weight = given[:3]
        for item in made:
            if len(item.shape) != rank:
                beside.append(1.0 * gradient.bytes)
            else:
                turned += [gradient, value if item.shape == weight.shape else weight, item]
    return [2.0 * item.bytes for item in turned if turns] + beside
