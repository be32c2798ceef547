"""Uneven paddings of convolutions, which cuDNN has not and XLA therefore writes.

The idea: cuDNN pads both ends of a dim alike.  A convolution of stride 2 on an even size has one
more element of padding behind than before ("SAME").  XLA's ``ConvPaddingLegalization`` writes its
input with that element, once for the convolution and for the gradient of its filter, and the
gradient of its input with one more, of which the readers take a part:

    y = conv(x)        x -> pad;  y = conv(pad)        dx = slice of conv(dy)

A convolution whose input has gaps (a stride's gradient, a deconvolution) is cuDNN's gradient of an
input only in one group, with its filter reversed and without gaps; the input of any other is
written with its gaps and paddings.

The padding of a gradient's forward convolution follows from its sizes; with a stride, the padding
behind may be more than what is read, so that it is even where it can be.  Features must be the last
dim, or the first one in the gradient of a filter.

Source: ``conv_padding_legalization.cc``, ``conv_rewriter.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.xla.images import FEATURES, has_gaps
from flint.passes.xla.steps import Steps

#: Names of the ops that pad and cut.
PAD: Final = "pad"
SLICE: Final = "slice"


class _Uneven(NamedTuple):
    """What is written for a convolution: its input (``before``) or its result, in which shape."""

    before: bool
    shape: tuple[int, ...]


def even_paddings(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block with what XLA pads before convolutions and cuts after them.

    Args:
        graph: the block; its table of ops has ``PAD`` and ``SLICE``.
        types: all types of the program, by number; new ones are added.
    """
    found = _uneven(graph)
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    first: dict[tuple[int, tuple[int, ...]], int] = {}
    for node, each in found.items():
        value = int(graph.operand[graph.operand_ptr[node]])
        if not each.before or first.setdefault((value, each.shape), node) == node:
            copies[node] = 2
    steps = Steps(graph, copies, types)
    pad, cut = graph.tables.plain(PAD), graph.tables.plain(SLICE)
    for node, each in found.items():
        value = int(graph.operand[graph.operand_ptr[node]])
        last = int(steps.last[node])
        if each.before:
            maker = int(steps.last[first[value, each.shape]]) - 1
            kind = graph.tables.types[graph.value_type[value]]
            whole = tensor_type(each.shape, kind.dtype)
            if maker == last - 1:
                # What is twice as large counts as a broadcast, which readers make again: not this.
                alone = whole.bytes >= 2 * kind.bytes
                role = Role.OPAQUE if alone else Role.MOVEMENT
                steps.moves(maker, pad, steps.operands[maker][0], role)
                steps.read[maker], steps.written[maker] = kind.bytes, whole.bytes
                steps.makes(maker, whole)
            steps.operands[last][0] = steps.value(maker)
            steps.read[last] += whole.bytes - kind.bytes
        else:
            kind = graph.tables.types[graph.result_type[graph.result_ptr[node]]]
            whole = tensor_type(each.shape, kind.dtype)
            steps.makes(last - 1, whole)
            steps.written[last - 1] += whole.bytes - kind.bytes
            steps.moves(last, cut, steps.value(last - 1))
            steps.read[last] = steps.written[last] = kind.bytes
    return steps.done()


def _uneven(graph: WorkloadGraph) -> dict[int, _Uneven]:
    """The convolutions of a block whose forward padding is uneven, by node."""
    names = graph.tables.ops
    forms = [form for *_, form in graph.tables.entries()]
    chosen = np.array([name == "convolution" for name in names], dtype=bool)[graph.op]
    found: dict[int, _Uneven] = {}
    for node in np.flatnonzero(chosen & (np.diff(graph.result_ptr) == 1)).tolist():
        form, operands = forms[graph.op[node]], graph.operands_of(node).tolist()
        rank = (len(form) - FEATURES) // 2
        types = [
            _of_rank(graph.tables.types[graph.value_type[value]].shape, rank + 2)
            for value in operands
        ]
        if len(types) != 2 or rank < 1 or any(len(shape) != rank + 2 for shape in types):
            continue
        result = graph.tables.types[graph.result_type[graph.result_ptr[node]]].shape
        pads = list(zip(form[FEATURES::2], form[FEATURES + 1 :: 2], strict=True))
        if has_gaps(form, types, result):
            continue  # padded where it is transposed (``flint.passes.xla.images``)
        more, before = _more(graph, node, form[0], form[1], pads, (*types, result))
        if any(more):
            shape = types[0] if before else result
            sizes = (size + extra for size, extra in zip(shape, (0, *more, 0), strict=True))
            found[node] = _Uneven(before, tuple(sizes))
    return found


def _of_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A shape without the dims of size 1 in front that a slice of a stack still has: the reshape
    behind it leaves no node.
    """
    more = len(shape) - rank
    return shape[more:] if more > 0 and set(shape[:more]) == {1} else shape


def _more(
    graph: WorkloadGraph,
    node: int,
    feature: int,
    inputs: int,
    pads: list[tuple[int, int]],
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> tuple[list[int], bool]:
    """Elements that are added to each spatial dim, and whether to the input."""
    image, kernel, result = shapes
    if feature == 0:  # the gradient of a filter
        each = zip(pads, image[1:-1], kernel[1:-1], result, strict=False)
        return [
            _beyond(low, high, (size + low + high - taps), out)
            for (low, high), size, out, taps in each
        ], True
    if feature != len(image) - 1 or image[0] != result[0]:
        return [], True  # or what it reads was reshaped, which leaves no node
    spatial = list(zip(pads, image[1:-1], result[1:-1], kernel, strict=False))
    gaps = [_with_gaps(size, low + high, out, taps) for (low, high), size, out, taps in spatial]
    one = image[-1] == kernel[inputs] and all(
        wide + low + high - taps < out
        for wide, ((low, high), _, out, taps) in zip(gaps, spatial, strict=True)
    )
    if one and _reversed(graph, node):
        return [
            _beyond(taps - 1 - low, taps - 1 - high, size - low - high + taps - 2, out)
            for (low, high), out, size, taps in zip(
                pads, image[1:-1], result[1:-1], kernel, strict=False
            )
        ], False
    if gaps != list(image[1:-1]) and any(taps > 1 for *_, taps in spatial):
        return [
            wide - size + low + high
            for wide, ((low, high), size, *_) in zip(gaps, spatial, strict=True)
        ], True
    return [abs(high - low) for low, high in pads], True


def _with_gaps(size: int, padding: int, places: int, taps: int) -> int:
    """Elements of a dim with the gaps between them, by which a filter without a stride has more
    places."""
    apart = (places + taps - 2 - padding) // (size - 1) if size > 1 else 1
    return (size - 1) * max(apart, 1) + 1


def _beyond(low: int, high: int, apart: int, places: int) -> int:
    """How much the padding behind differs from that before, with as much of it as is needed or, up
    to a stride, more.

    Args:
        low, high: padding before, and what is needed behind.
        apart: elements between the first and the last place of the filter.
        places: number of places.
    """
    stride = max(1, apart // (places - 1)) if places > 1 else 1
    return max(high - low, low - (high + stride - 1), 0)


def _reversed(graph: WorkloadGraph, node: int) -> bool:
    """Whether the filter is reversed, as in the gradient of an input."""
    value = graph.operands_of(node).tolist()[1]
    while (maker := int(graph.producer[value])) >= 0 and graph.role[maker] == Role.MOVEMENT:
        if graph.tables.ops[graph.op[maker]] == "reverse":
            return True
        value = int(graph.operand[graph.operand_ptr[maker]])
    return False
