"""Curves: measured times of kernels of one class and type, as a few physical numbers.

The idea: on an accelerator that was calibrated (``flint calibrate``), a kernel of a calibrated
class takes

    seconds = latency + (arithmetic^p + transfer^p)^(1/p)

where arithmetic is the time of its products on whole tiles in whole waves at the peak
(``flint.cost.kernels``) divided by the curve's efficiency, and transfer its bytes over the curve's
bandwidth.  p is 1 if a kernel first loads and then computes, and larger if the two overlap. Memory
may be laid out in tiles: then the padding of the last tiles is moved too, for the two dims that
need least of it (XLA lays out TPU arrays like that).  A class without products has no arithmetic.

    curve_seconds(graph, accelerator, arithmetic)      # -1 where no curve fits
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import KERNELS, kernel_classes
from flint.cost.hardware import Accelerator, Curve
from flint.cost.roofline import Seconds
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPES, TensorType
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry


def curve_seconds(graph: WorkloadGraph, accelerator: Accelerator, arithmetic: Seconds) -> Seconds:
    """Seconds per node from the accelerator's curves, -1 if none fits, shape [nodes].

    Args:
        graph: the nodes.
        accelerator: the device.
        arithmetic: seconds of each node's products at the peaks, shape [nodes].
    """
    found = np.full(len(graph), -1.0)
    classes, types = kernel_classes(graph), types_of(graph)
    for curve in accelerator.curves:
        chosen = classes == KERNELS.index(curve.kernel)
        if curve.dtype != "any":
            chosen &= types == DTYPES.index(curve.dtype)
        if chosen.any():
            moved = moved_bytes(graph, curve.layout)[chosen]
            found[chosen] = seconds_on(curve, arithmetic[chosen], moved)
    return found


def seconds_on(curve: Curve, arithmetic: Seconds, moved: Seconds) -> Seconds:
    """Seconds of kernels on a curve.

    Args:
        curve: the curve of their class and type.
        arithmetic: seconds of their products at the peaks.
        moved: bytes, with padding as in memory.
    """
    transfer = moved / curve.bandwidth
    busy = arithmetic / curve.efficiency
    longer, shorter = np.maximum(busy, transfer), np.minimum(busy, transfer)
    share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    seconds: Seconds = curve.latency + longer * (1 + share**curve.overlap) ** (1 / curve.overlap)
    return seconds


def types_of(graph: WorkloadGraph) -> NDArray[np.int64]:
    """The element type of each node: that of its products, else of its first result, as an index
    into ``DTYPES``; -1 if it has neither; shape [nodes].
    """
    found = np.full(len(graph), -1, np.int64)
    of_types = np.array([DTYPES.index(item.dtype) for item in graph.tables.types] or [0], np.int64)
    has = np.diff(graph.result_ptr) > 0
    found[has] = of_types[graph.result_type[graph.result_ptr[:-1][has]]]
    products = graph.work_unit == Unit.MATMUL
    found[row_of_entry(graph.work_ptr)[products]] = graph.work_dtype[products]
    return found


def moved_bytes(graph: WorkloadGraph, layout: tuple[int, int]) -> Seconds:
    """Bytes that each node reads and writes, padded to tiles of ``layout``, shape [nodes]."""
    moved: Seconds = (graph.bytes_read + graph.bytes_written).astype(np.float64)
    if layout == (1, 1):
        return moved
    kinds = graph.tables.types
    plain = np.array([item.bytes for item in kinds] or [0], np.float64)
    padded = np.array([padded_bytes(item, layout) for item in kinds] or [0], np.float64)

    def per_node(sizes: Seconds) -> Seconds:
        total = np.zeros(len(graph))
        np.add.at(total, graph.consumer, sizes[graph.value_type[graph.operand]])
        np.add.at(total, row_of_entry(graph.result_ptr), sizes[graph.result_type])
        return total

    whole = per_node(plain)
    more = np.divide(per_node(padded), whole, out=np.ones(len(graph)), where=whole > 0)
    return moved * more


def padded_bytes(kind: TensorType, layout: tuple[int, int]) -> int:
    """Bytes of a tensor laid out in tiles of rows x lanes, along the dims that need least padding.

    A tensor of 3 x 100 in f32 takes up 4,096 bytes in tiles of 8 x 128: 3 rows of 100 lanes.
    """
    if not kind.elements:
        return kind.bytes
    padded = _padded(kind.shape, layout)
    return round(kind.bytes * padded / kind.elements)


def _padded(shape: Sequence[int], layout: tuple[int, int]) -> int:
    rows, lanes = layout
    sizes = [size for size in shape if size != 1]
    if len(sizes) < 2:  # a vector fills whole tiles
        return _whole(math.prod(sizes), rows * lanes)
    elements = math.prod(sizes)
    return min(
        elements // (sizes[i] * sizes[j]) * _whole(sizes[i], rows) * _whole(sizes[j], lanes)
        for i, j in permutations(range(len(sizes)), 2)
    )


def _whole(size: int, step: int) -> int:
    return -(-size // step) * step
