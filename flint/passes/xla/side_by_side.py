"""Values side by side that products load part by part.

The idea: a product of XLA's reads a concatenation along a dim that it keeps from its parts, so that
these are written, whoever makes them, and the whole is not; others that read the whole have it
written.  The gradient of a split product, as of a gated unit:

    y = concatenate a, b;  dot x, y;  dot y, w        dot x, (a, b);  dot (concatenate a, b), w

It does for up to four parts whose sizes are multiples of 64 (``kMinConcatFragmentSize``), if no
other dim is kept, except those of a batch.  A sum
over several dims that is split (``flint.passes.xla.split_products``) is a library call, which loads
nothing: such a product has a whole of its own.

Sources: ``gemm_fusion.cc``, ``triton_tiling_propagation.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import itertools
import operator
from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.columns import repeated
from flint.passes.xla.orders import PRODUCT
from flint.passes.xla.simplify import without_unread
from flint.passes.xla.split_dims import are_contracted

_JOINS: Final = "concatenate"
#: The most parts, and the divisor of their sizes.
_PARTS: Final = 4
_FRAGMENT: Final = 64


def parted(graph: WorkloadGraph) -> WorkloadGraph:
    """One block in which every product has concatenations of its own that it loads."""
    found = _found(graph)
    if not found:
        return graph
    owners = graph.producer[graph.operand[list(found)]].tolist()
    copies = np.ones(len(graph), dtype=np.int64)
    np.add.at(copies, owners, 1)
    copied, _, last = repeated(graph, copies)
    operand, role = copied.operand.copy(), copied.role.copy()
    entries = copied.operand_ptr[last[graph.consumer]]
    entries = entries + np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    before: dict[int, int] = {}
    for (entry, library), owner in zip(found.items(), owners, strict=True):
        before[owner] = before.get(owner, 0) + 1
        node = int(last[owner]) - before[owner]
        operand[entries[entry]] = copied.inputs + int(copied.result_ptr[node])
        role[node] = Role.OPAQUE if library else role[node]
    return without_unread(replace(copied, operand=operand, role=role))


def loaded_parts(graph: WorkloadGraph) -> set[int]:
    """Concatenations that the only product that reads them loads."""
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    return {
        int(graph.producer[graph.operand[entry]])
        for entry, library in _found(graph).items()
        if not library and uses[graph.operand[entry]] == 1
    }


def _found(graph: WorkloadGraph) -> dict[int, bool]:
    """Operand entries of products that could be loaded part by part, and whether the product is a
    library call."""
    names = graph.tables.ops
    joins, dots = (
        np.array([name == wanted for name in names] or [False])[graph.op]
        for wanted in (_JOINS, PRODUCT)
    )
    joins &= (graph.role == Role.MOVEMENT) & (graph.kind == NodeKind.COMPUTE)
    joins &= (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    joins[graph.order_node] = False
    dots &= (graph.role == Role.CONTRACTION) & (np.diff(graph.work_ptr) == 1)
    dots &= np.diff(graph.operand_ptr) == 2
    makers = graph.producer[graph.operand]
    entries = np.flatnonzero((makers >= 0) & joins[makers] & dots[graph.consumer]).tolist()
    found = ((entry, _loads(graph, entry)) for entry in entries)
    return {entry: library for entry, library in found if library is not None}


def _loads(graph: WorkloadGraph, entry: int) -> bool | None:
    """Whether a product is a library call; None if it keeps no dim along which parts stand."""
    node, value = int(graph.consumer[entry]), int(graph.operand[entry])
    forms = [form for *_, form in graph.tables.entries()]
    form, place = forms[graph.op[node]], forms[graph.op[graph.producer[value]]]
    number = int(graph.work_gemm[graph.work_ptr[node]])
    if number < 0 or len(place) != 1:
        return None
    batch, *_, k = graph.tables.gemms[number]
    half, side = len(form) // 2, entry - int(graph.operand_ptr[node])
    dims, [dim], shape = form[half:] if side else form[:half], place, graph.type_of(value).shape
    parts = graph.operands_of(int(graph.producer[value])).tolist()
    shapes = [graph.type_of(part).shape for part in parts]
    if any(len(each) != len(shape) for each in shapes):  # a reshape in between leaves no node
        return None
    sizes = [each[dim] for each in shapes]
    leading = [*itertools.accumulate(shape, operator.mul, initial=1)]
    if len(parts) > _PARTS or any(size % _FRAGMENT for size in sizes) or dim in dims:
        return None
    if not are_contracted(shape, dims, k) or batch not in leading[: dim + 1]:
        return None
    rows = [each for each, size in enumerate(shape) if size > 1 and leading[each] >= batch]
    if [each for each in rows if each not in dims] != [dim]:
        return None  # other dims are part of the one that the product keeps
    kept = sum(len(graph.type_of(each).shape) for each in graph.operands_of(node).tolist())
    split = len(graph.type_of(graph.inputs + int(graph.result_ptr[node])).shape) > kept - 2 * half
    return batch == 1 and split and sum(shape[each] > 1 for each in dims) > 1
