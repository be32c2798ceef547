"""Layouts of convolutions' filters, which XLA transposes for cuDNN.

The idea: cuDNN's kernels for channels last read a filter with its output features first and its
input features last, and write the filter's gradient so.  Programs have them as [places, input,
output].  XLA transposes a filter once for all convolutions that read it, unless only dims of size 1
move, and each gradient back:

    y = conv(x, w)           w -> transpose;  y = conv(x, turned);  dx = conv(dy, reverse turned)
    dw = conv(x, dy)         turned = conv(x, dy);  turned -> transpose

Activations with channels in front stay as they are.

Source: ``layout_assignment.cc``, ``conv_rewriter.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.passes.xla.steps import Steps

TRANSPOSE: Final = "transpose"
#: An op, and what tells one whose filter, or result, has cuDNN's order already: its kernel's name.
CONVOLUTION: Final = "convolution"
Entry = tuple[str, str, Form]


class _Turn(NamedTuple):
    """What is transposed for a convolution: a filter (its value) or, with -1, its result.

    Attributes:
        value: the filter.
        order: the dims of the program's filter in the order of cuDNN's.
        reverse: the node that reverses the filter, or -1.
    """

    value: int
    order: Form
    reverse: int


def transposes(entries: list[Entry]) -> list[Entry]:
    """The entries that a table of ops needs for what this pass adds."""
    found: dict[Entry, None] = {}
    for name, _, form in entries:
        if name == CONVOLUTION and len(form) > len(_CHANNELS):
            rank = (len(form) - len(_CHANNELS)) // 2 + 2
            for order in {order_of(rank, form[2], form[1]), order_of(rank, form[1], form[2])}:
                found[TRANSPOSE, "", order] = found[TRANSPOSE, "", _inverse(order)] = None
            usual = order_of(rank, rank - 1, rank - 2)
            found[TRANSPOSE, "", usual] = found[TRANSPOSE, "", _inverse(usual)] = None
    return [entry for entry in found if entry not in set(entries)]


#: What the form of a convolution begins with.
_CHANNELS: Final = ("features of the input", "input features", "output features")


def order_of(rank: int, output: int, inputs: int) -> Form:
    """The dims of a filter in cuDNN's order: output features, places, input features."""
    places = (dim for dim in range(rank) if dim not in (output, inputs))
    return (output, *places, inputs)


def _inverse(order: Form) -> Form:
    return tuple(order.index(dim) for dim in range(len(order)))


def transposed_filters(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block with the transposes of its convolutions' filters and of their gradients.

    Args:
        graph: the block; its table of ops has the entries of ``transposes``.
        types: all types of the program, by number; new ones are added.
    """
    found = _turns(graph)
    if not found:
        return graph
    numbers = {entry: number for number, entry in enumerate(graph.tables.entries())}
    copies = np.ones(len(graph), dtype=np.int64)
    first: dict[tuple[int, Form], int] = {}
    for node, turn in list(found.items()):
        key = turn.value, turn.order
        if turn.reverse >= 0 and key not in first:
            del found[node]
        elif turn.value < 0 or first.setdefault(key, node) == node:
            copies[node] = 2
    steps = Steps(graph, copies, types)

    def turned(kind: TensorType, order: Form) -> TensorType:
        return tensor_type(tuple(kind.shape[dim] for dim in order), kind.dtype)

    for node, turn in found.items():
        convolution = int(steps.last[node])
        if turn.value < 0:
            kind = graph.tables.types[graph.result_type[graph.result_ptr[node]]]
            transpose, convolution = convolution, convolution - 1
            steps.makes(convolution, turned(kind, turn.order))
            source, order = steps.value(convolution), _inverse(turn.order)
        else:
            kind = graph.tables.types[graph.value_type[turn.value]]
            transpose, order = int(steps.last[first[turn.value, turn.order]]) - 1, turn.order
            reader = convolution if turn.reverse < 0 else int(steps.last[turn.reverse])
            place = 1 if turn.reverse < 0 else 0
            source = steps.operands[reader][place]
            steps.operands[reader][place] = steps.value(transpose)
            if turn.reverse >= 0:
                steps.makes(reader, turned(kind, order))
            if transpose != convolution - 1:
                continue
            steps.makes(transpose, turned(kind, order))
        steps.moves(transpose, numbers[TRANSPOSE, "", order], source)
        steps.read[transpose] = steps.written[transpose] = kind.bytes
    return steps.done()


def _turns(graph: WorkloadGraph) -> dict[int, _Turn]:
    """What is transposed for the convolutions of a block, by node."""
    forms = [form for *_, form in graph.tables.entries()]
    turns = [(name, hero) == (CONVOLUTION, "") for name, hero, _ in graph.tables.entries()]
    chosen = np.array(turns, dtype=bool)[graph.op]
    found: dict[int, _Turn] = {}
    for node in np.flatnonzero(chosen & (np.diff(graph.result_ptr) == 1)).tolist():
        form, operands = forms[graph.op[node]], graph.operands_of(node).tolist()
        shapes = [graph.tables.types[graph.value_type[value]].shape for value in operands]
        result = graph.tables.types[graph.result_type[graph.result_ptr[node]]].shape
        rank = (len(form) - len(_CHANNELS)) // 2 + 2
        # A reshape between an operand and what made it leaves no node: its dims are not known.
        ranks = {len(shape) for shape in (*shapes, result)}
        if len(form) <= len(_CHANNELS) or len(operands) != 2 or ranks != {rank}:
            continue
        if form[0] == 0:  # the gradient of a filter
            order = of_gradient(shapes, form, result)
            if not order:
                continue
            turn, shape = _Turn(-1, order, -1), result
        elif form[0] == rank - 1:
            maker = int(graph.producer[operands[1]])
            if maker >= 0 and graph.tables.ops[graph.op[maker]] == "reverse" and _far(shapes[1]):
                [value] = graph.operands_of(maker).tolist()
                turn = _Turn(value, order_of(rank, form[1], form[2]), maker)
            else:
                turn = _Turn(operands[1], order_of(rank, form[2], form[1]), -1)
            shape = shapes[1]
        else:
            continue
        if _moves(shape, turn.order):
            found[node] = turn
    return found


def of_gradient(shapes: list[tuple[int, ...]], form: Form, result: tuple[int, ...]) -> Form:
    """The order of a gradient's dims: features of the output's gradient first, of the input last;
    as [places, input, output] where sizes do not tell, as in several groups; () if it cannot be.
    """
    rank = len(result)
    output, inputs = shapes[1][form[2]], shapes[0][-1]
    pairs = [(o, i) for o in range(rank)[::-1] for i in range(rank)[::-1] if o != i]
    fits = [pair for pair in pairs if (result[pair[0]], result[pair[1]]) == (output, inputs)]
    if not fits and result[-1] == output and inputs % result[-2] == 0:
        fits = [(rank - 1, rank - 2)]
    return order_of(rank, *fits[0]) if fits else ()


def _far(shape: tuple[int, ...]) -> bool:
    """Whether a filter has several places, so that its reverse is another filter."""
    return sum(size > 1 for size in shape) > 2


def _moves(shape: tuple[int, ...], order: Form) -> bool:
    """Whether an order of dims moves elements."""
    kept = [dim for dim in order if shape[dim] > 1]
    return kept != sorted(kept)
