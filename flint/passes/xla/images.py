"""Images that XLA transposes for gradients of filters which cuDNN has no kernel for.

The idea: cuDNN gives a filter's gradient if neither the filter nor the image has gaps.  With gaps
(a dilated convolution, a deconvolution) XLA computes the gradient as a forward convolution that
sums over the batch: cuDNN wants that dim last, so that both images are transposed.

    dw = conv(x [batch, places, input], dy [batch, places, output]), dilated
    dw = conv(x [input, places, batch], dy [output, places, batch])

Source: ``conv_rewriter.cc`` (``MatchBackwardFilter``), ``layout_assignment.cc`` of openxla/xla
(2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flint.graph.graph import Form, WorkloadGraph
from flint.passes.xla.transposes import Entry, Transpose, with_transposes

#: Numbers of features in the form of a convolution, before its paddings.
FEATURES = 3


def turned_images(graph: WorkloadGraph) -> WorkloadGraph:
    """One block with the transposes of images in front of such gradients."""
    found: dict[int, Transpose] = {}
    for value, entry, order in _found(graph):
        found.setdefault(value, Transpose([], order)).entries.append(entry)
    return with_transposes(graph, found)


def turnings(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for what this pass adds."""
    found = {
        Transpose([], order).entry: None for block, _ in graph.walk() for *_, order in _found(block)
    }
    return list(found)


def _found(graph: WorkloadGraph) -> Iterator[tuple[int, int, Form]]:
    """Images that are transposed: value, operand entry, order of dims."""
    forms = [form for *_, form in graph.tables.entries()]
    chosen = np.array([name == "convolution" for name in graph.tables.ops], dtype=bool)[graph.op]
    chosen &= (np.diff(graph.result_ptr) == 1) & (np.diff(graph.operand_ptr) == 2)
    for node in np.flatnonzero(chosen).tolist():
        values = graph.operands_of(node).tolist()
        result = graph.tables.types[graph.result_type[graph.result_ptr[node]]].shape
        shapes = [graph.type_of(value).shape for value in values]
        if has_gaps(forms[graph.op[node]], shapes, result):
            rank = len(result)
            for side, value in enumerate(values):
                yield value, int(graph.operand_ptr[node]) + side, (rank - 1, *range(1, rank - 1), 0)


def has_gaps(form: Form, images: Sequence[tuple[int, ...]], result: tuple[int, ...]) -> bool:
    """Whether a convolution is the gradient of a filter with gaps, or of an image with gaps.

    Args:
        form: its parameters.
        images: shapes of the image and of the gradient of the output, batch first.
        result: of the filter's gradient, its places first.
    """
    rank = (len(form) - FEATURES) // 2
    if form[:1] != (0,) or {*map(len, images), len(result)} != {rank + 2}:
        return False
    pads = zip(form[FEATURES::2], form[FEATURES + 1 :: 2], strict=True)
    for (low, high), size, made, taps in zip(
        pads, *(shape[1:] for shape in images), result, strict=False
    ):
        whole, stride = size + low + high, max(1, round(size / max(made, 1)))
        # A stride may leave some places at the end unread.
        apart = whole - made * stride
        if made > whole or (taps > 1 and apart >= 2 * (taps - 1)):
            return True
    return False
