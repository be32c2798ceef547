"""What the kernels of products load as their operands: conversions, and movement of one tensor.

The idea: batched products and convolutions read their operands in the layout that they have; other
products turn matrices as they load them, but bring no dims together that they contract as one.

    operand_loads(graph), absorbed(graph, loaded)

Sources: ``gemm_fusion.cc``, ``triton_tiling_propagation.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, total_by_row
from flint.passes.rematerialize import loads
from flint.passes.xla.split_dims import are_contracted

#: Ops that batched products and convolutions do not compute themselves.
_WRITTEN: Final = ("transpose", "pad")


def batched(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Batched products, shape [nodes]."""
    many = np.array([sizes[0] > 1 for sizes in graph.tables.gemms] or [False])
    found: NDArray[np.bool_] = np.zeros(len(graph), dtype=bool)
    items = (graph.work_gemm >= 0) & many[graph.work_gemm]
    found[row_of_entry(graph.work_ptr)[items]] = True
    found &= graph.role == Role.CONTRACTION
    return found


def operand_loads(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that a contraction absorbs, shape [nodes]; for batched ones and convolutions without
    transposes and paddings. What is cut out of a stack is written first.
    """
    cut = np.array([name == "dynamic_slice" for name in graph.tables.ops], dtype=bool)[graph.op]
    load = loads(graph) & ~cut & ~beside(graph)
    written = np.array([name in _WRITTEN for name in graph.tables.ops], dtype=bool)[graph.op]
    convolves = np.array([name == "convolution" for name in graph.tables.ops], dtype=bool)
    feeds = (batched(graph) | convolves[graph.op]).tolist()
    takes = load.tolist()
    maker = graph.producer[graph.operand].tolist()
    for entry in np.argsort(graph.consumer, kind="stable")[::-1].tolist():
        made = maker[entry]
        if made >= 0 and takes[made] and feeds[graph.consumer[entry]]:
            feeds[made] = True
    found: NDArray[np.bool_] = load & ~(written & np.array(feeds, dtype=bool)) & ~_apart(graph)
    # It reads no more for an op than its result: no wider values.
    widest = np.zeros(len(graph), dtype=np.int64)
    np.maximum.at(widest, graph.consumer, graph.value_bytes[graph.operand])
    made = total_by_row(
        graph.value_bytes[graph.inputs :], row_of_entry(graph.result_ptr), len(graph)
    )
    found &= (graph.role != Role.ELEMENTWISE) | (widest <= made)
    return found


def _apart(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Transposes that bring dims together which a product contracts as one, and those in memory
    (``flint.passes.xla.transposes``), shape [nodes].
    """
    names, forms = graph.tables.ops, [form for *_, form in graph.tables.entries()]
    memory = [name == hero != "" for name, hero, _ in graph.tables.entries()]
    found: NDArray[np.bool_] = np.array(memory or [False])[graph.op]
    turns = np.array([name == "transpose" for name in names] or [False])[graph.op]
    makers = graph.producer[graph.operand]
    dots = np.array([name == "dot_general" for name in names] or [False])[graph.op]
    # A library's attention writes its result in the order that is wanted.
    calls = (graph.role == Role.CONTRACTION) & ~dots | (graph.role == Role.OPAQUE)
    for entry in np.flatnonzero((makers >= 0) & turns[makers] & dots[graph.consumer]).tolist():
        node, maker = int(graph.consumer[entry]), int(makers[entry])
        source = int(graph.producer[graph.operand[graph.operand_ptr[maker]]])
        if source >= 0 and calls[source]:
            continue
        form, order = forms[graph.op[node]], forms[graph.op[maker]]
        half, side = len(form) // 2, entry - int(graph.operand_ptr[node])
        shape = graph.type_of(int(graph.operand[entry])).shape
        sides = (form[:half], form[half:])
        dims = contracted_of(graph, node, sides[min(side, 1)], shape)
        if dims and len(order) == len(shape):
            memory_order = [dim for dim in np.argsort(order).tolist() if shape[dim] > 1]
            places = [memory_order.index(dim) for dim in dims]
            found[maker] |= places != list(range(places[0], places[0] + len(places)))
    return found


def contracted_of(
    graph: WorkloadGraph, product: int, dims: Form, shape: tuple[int, ...]
) -> list[int]:
    """The dims larger than 1 of a value that a product contracts, () if that is not known; a
    reshape between the two leaves no node."""
    number = int(graph.work_gemm[graph.work_ptr[product]])
    if not dims or number < 0 or graph.work_ptr[product] == graph.work_ptr[product + 1]:
        return []
    k = graph.tables.gemms[number][3]
    if not are_contracted(shape, dims, k):
        ranks = range(len(shape))
        places = (ranks[: n + 1] for n in ranks) if dims[0] == 0 else (ranks[n:] for n in ranks)
        dims = next((tuple(each) for each in places if are_contracted(shape, tuple(each), k)), ())
    return [dim for dim in dims if shape[dim] > 1]


def beside(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Slices that a merged product reads beside other values, which it does not load, [nodes]."""
    names = graph.tables.ops
    cuts, dots = (
        np.array([name == wanted for name in names] or [False])[graph.op]
        for wanted in ("slice", "dot_general")
    )
    makers = graph.producer[graph.operand]
    merged = dots & (np.diff(graph.operand_ptr) > 2)
    found: NDArray[np.bool_] = np.zeros(len(graph), dtype=bool)
    found[makers[(makers >= 0) & cuts[makers] & merged[graph.consumer]]] = True
    return found


def absorbed(graph: WorkloadGraph, loaded: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes that the only product that reads them loads, or every one, shape [nodes]."""
    load = operand_loads(graph)
    uses = np.bincount(graph.operand, minlength=graph.values)
    uses[graph.outputs] += 1
    takes = ((graph.role == Role.CONTRACTION) | loaded).tolist()
    found = loaded.tolist()
    for entry in np.argsort(graph.consumer, kind="stable")[::-1].tolist():
        value = int(graph.operand[entry])
        maker = int(graph.producer[value])
        if maker >= 0 and takes[int(graph.consumer[entry])] and load[maker] and uses[value] == 1:
            found[maker] = takes[maker] = True
    return np.array(found, dtype=bool)
