"""Sums and products with a broadcast that no product of XLA's GPU compiler loads.

The idea: a product sees each of its operands as a few dims of its own (batch, rows, contracted),
each of which may be several dims of the value.  Of a broadcast it loads what is not repeated, which
it cannot if one of its dims is there in part: a scale for each group of 128 inputs, which a weight
of eight bits is multiplied by, repeats a part of what is contracted:

    p = dot x, reshape (multiply w [32, 128, n], broadcast s [32, n])

So the weight is multiplied by a kernel of its own, which writes it.

Source: ``triton_tiling_propagation.cc`` of openxla/xla (2025): "Unsupported broadcast".
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.operands import batched, contracted_of
from flint.passes.xla.orders import PRODUCT

_BROADCAST, _RESHAPE = "broadcast_in_dim", "reshape"
#: Lengths of a product's dims in an operand, the first dims' first: a value's dims are parts of it.
_Lengths = tuple[int, ...]


def with_split_broadcasts(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Elementwise ops on two values that products read, one of them such a broadcast, [nodes]."""
    found: NDArray[np.bool_] = np.zeros(len(graph), dtype=bool)
    names, forms = graph.tables.ops, [form for *_, form in graph.tables.entries()]
    many, seen = batched(graph), dict[int, set[_Lengths]]()
    for node in range(len(graph))[::-1]:
        name, operands = names[graph.op[node]], graph.operands_of(node).tolist()
        if name == PRODUCT and graph.role[node] == Role.CONTRACTION and not many[node]:
            form = forms[graph.op[node]]
            halves = form[: len(form) // 2], form[len(form) // 2 :]
            for value, contracted in zip(operands, halves, strict=False):
                seen.setdefault(value, set()).add(_lengths(graph, node, value, contracted))
            continue
        mine = seen.get(graph.inputs + int(graph.result_ptr[node]), set())
        if not mine or (graph.role[node] != Role.ELEMENTWISE and name != _RESHAPE):
            continue
        for value in operands:
            seen.setdefault(value, set()).update(mine)
            maker = int(graph.producer[value])
            if len(operands) == 2 and maker >= 0 and names[graph.op[maker]] == _BROADCAST:
                shape, kept = graph.type_of(value).shape, forms[graph.op[maker]]
                found[node] |= any(_in_part(shape, kept, lengths) for lengths in mine)
    return found


def _lengths(graph: WorkloadGraph, product: int, value: int, contracted: Form) -> _Lengths:
    """Elements of the dims that a product has, one after another: () if they are not known."""
    shape = graph.type_of(value).shape
    dims = contracted_of(graph, product, contracted, shape)
    kinds = [(dim in dims, size) for dim, size in enumerate(shape) if size > 1]
    runs = itertools.groupby(kinds, key=lambda each: each[0])
    return tuple(math.prod(size for _, size in run) for _, run in runs) if dims else ()


def _in_part(shape: tuple[int, ...], kept: Form, lengths: _Lengths) -> bool:
    """Whether a broadcast to a shape repeats a part of one of a product's dims and keeps another.

    >>> _in_part((32, 128, 8192), (0, 2), (4096, 8192)), _in_part((4096, 8192), (1,), (4096, 8192))
    (True, False)
    """
    dim = 0
    for length in lengths:
        first, size = dim, 1
        while size < length and dim < len(shape):
            size *= shape[dim]
            dim += 1
        if size != length:
            return False
        there = {each in kept for each in range(first, dim) if shape[each] > 1}
        if len(there) > 1:
            return True
    return False
