"""Operands of products whose dims have to be brought together first.

The idea: XLA's GPU compiler multiplies matrices: the dims of an operand that a product keeps become
one (``DotDecomposer``).  Where what is contracted lies between two of them in memory, a kernel
transposes the operand first, and no product loads it that way:

    up [experts, width, hidden], contracted over width       transpose to [experts, hidden, width]

Dims of size 1 do not count, nor do operands of batched products.

Source: ``dot_decomposer.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.transposes import Entry, Transpose, with_transposes


def gatherings(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for what this pass adds."""
    found = {
        Transpose([], order).entry: None for block, _ in graph.walk() for *_, order in _found(block)
    }
    return list(found)


def gathered_dims(graph: WorkloadGraph) -> WorkloadGraph:
    """One block with transposes in front of products; its table of ops has their entries."""
    turned: dict[int, Transpose] = {}
    for value, entry, order in _found(graph):
        if turned.setdefault(value, Transpose([], order)).order == order:
            turned[value].entries.append(entry)
    return with_transposes(graph, turned)


def _found(graph: WorkloadGraph) -> Iterator[tuple[int, int, Form]]:
    """Operands of products that are transposed first: value, entry, and the order of its dims."""
    forms = [form for *_, form in graph.tables.entries()]
    chosen = np.array([name == "dot_general" for name in graph.tables.ops], dtype=bool)[graph.op]
    chosen &= (graph.role == Role.CONTRACTION) & (np.diff(graph.work_ptr) == 1)
    for node in np.flatnonzero(chosen & (np.diff(graph.operand_ptr) == 2)).tolist():
        number = int(graph.work_gemm[graph.work_ptr[node]])
        batch, *_, k = graph.tables.gemms[number] if number >= 0 else (0, 0)
        if batch != 1:
            continue
        form = forms[graph.op[node]]
        half = len(form) // 2
        for side, value in enumerate(graph.operands_of(node).tolist()):
            dims = form[half:] if side else form[:half]
            order = _order(graph.type_of(value).shape, dims, k)
            if order:
                yield value, int(graph.operand_ptr[node]) + side, order


def are_contracted(shape: tuple[int, ...], dims: Form, k: int) -> bool:
    """Whether dims of an operand are those that a product contracts, by their sizes."""
    known = bool(dims) and max(dims) < len(shape)
    return known and math.prod(shape[dim] for dim in dims) == k


def contracted_dims(shape: tuple[int, ...], dims: Form, k: int) -> Form:
    """The dims of an operand that a product contracts; () if they are not known.  A reshape that
    leaves no node may have removed dims of size 1 before the product.

    >>> contracted_dims((4, 32, 1, 64), (2,), 64), contracted_dims((4, 32, 64), (1,), 64)
    ((3,), ())
    """
    if are_contracted(shape, dims, k):
        return dims
    large = [dim for dim, size in enumerate(shape) if size > 1]
    there = tuple(large[dim] for dim in dims if dim < len(large))
    return there if are_contracted(shape, there, k) else ()


def _order(shape: tuple[int, ...], contracted: Form, k: int) -> Form:
    """The order that an operand's dims are brought into; () if they are as they should be, or not
    those of the product: a reshape before it leaves no node.
    """
    if not are_contracted(shape, contracted, k):
        return ()
    kinds = [dim in contracted for dim, size in enumerate(shape) if size > 1]
    runs = [kind for kind, _ in itertools.groupby(kinds)]
    if runs != [False, True, False]:
        return ()
    return (*(dim for dim in range(len(shape)) if dim not in contracted), *contracted)
