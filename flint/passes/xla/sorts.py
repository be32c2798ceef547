"""What sorts move on XLA's GPU compiler.

The idea: a sort makes the numbers of places that it takes along (``SortIotaFusion``), so that it
reads and waits for none. It keeps the order of equal elements (JAX's default; a graph does not say
so): it takes along the places in i32, unless an iota of its own shape is there already, and writes
them, too (``StableSortExpander``):

    sort f32 [n]                                    reads 4 n, writes 8 n bytes
    sort f32 [n], iota i32 [n]                      the same
    sort f32 [m, n], broadcast (iota i32 [n])       reads 4 m n, writes 12 m n

A selection of the k largest has a kernel of its own for up to 16 of 1,024 or more in f32 or bf16
(``TopkSpecializer``). Any other one sorts everything, and what reads its results cuts them out.

Sources: ``sort_iota_fusion.cc``, ``stable_sort_expander.cc``, ``topk_specializer.cc`` of
openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry

#: The most that a selection's kernel finds, of how many at least, in which types.
_MOST, _LEAST, _TYPES = 16, 1024, ("f32", "bf16")
_SELECTIONS: Final = ("mhlo.topk", "chlo.top_k", "top_k", "TopK")
_PLACE: Final = 4
_SORT, _IOTA = "sort", "iota"


def sorted_as_xla(graph: WorkloadGraph) -> WorkloadGraph:
    """One block with what its sorts and selections read and write."""
    names = [graph.tables.ops[op] for op in graph.op.tolist()]
    forms = [form for *_, form in graph.tables.entries()]
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    keep = np.ones(len(graph.operand), dtype=bool)
    for node in np.flatnonzero(graph.kind == NodeKind.COMPUTE).tolist():
        if names[node] not in (_SORT, *_SELECTIONS) or graph.role[node] != Role.OPAQUE:
            continue
        first, end = graph.operand_ptr[node : node + 2].tolist()
        if first == end:
            continue
        whole, form = graph.type_of(int(graph.operand[first])), forms[graph.op[node]]
        if names[node] != _SORT:
            found = graph.tables.types[graph.result_type[graph.result_ptr[node]]].shape[-1:]
            if not (found and _selects(found[0], whole.shape[-1], whole.dtype)):
                written[node] = whole.bytes + _PLACE * whole.elements
            continue
        dims = form[:1]  # the dim that it sorts along, if that is known
        places = [e for e in range(first, end) for dim in dims if _counts(graph, names, e, dim)]
        if len(places) < end - first:
            keep[places] = False
            read[node] -= int(graph.value_bytes[graph.operand[places]].sum())
        makers = graph.producer[graph.operand[places]].tolist()
        kinds = [graph.type_of(int(graph.operand[entry])).dtype for entry in places]
        tells = any(names[m] == _IOTA and k == "i32" for m, k in zip(makers, kinds, strict=True))
        if not tells:
            written[node] += _PLACE * whole.elements
    counts = np.bincount(row_of_entry(graph.operand_ptr)[keep], minlength=len(graph))
    return replace(
        graph, bytes_read=read, bytes_written=written, operand=graph.operand[keep],
        operand_ptr=pointer(counts),
    )  # fmt: skip


def _selects(found: int, of: int, dtype: str) -> bool:
    """Whether a selection has a kernel of its own."""
    return found <= _MOST and of >= _LEAST and dtype in _TYPES


def _counts(graph: WorkloadGraph, names: list[str], entry: int, dim: int) -> bool:
    """Whether an operand is the numbers of places along a dim, which wait for nothing."""
    entries = list(graph.tables.entries())
    maker = int(graph.producer[graph.operand[entry]])
    while maker >= 0 and graph.order_ptr[maker] == graph.order_ptr[maker + 1]:
        form = entries[graph.op[maker]][2]
        if names[maker] == _IOTA:
            return bool(form == (dim,))
        if names[maker] != "broadcast_in_dim" or dim not in form:
            return False
        dim = form.index(dim)
        maker = int(graph.producer[graph.operand[graph.operand_ptr[maker]]])
    return False
