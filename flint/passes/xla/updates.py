"""Updates as XLA's GPU compiler has them when it fuses: ops on values, not yet on buffers.

The idea: a scatter to one place is an update of a slice (``ScatterExpander``, for simple scatters).
Whether an update writes in place is decided after fusion (``CopyInsertion``).  So readers may
compute the updated value: each takes an element from the update or from what it is put into, and
nothing is copied:

    y = update (copy x), u;  reduce y;  gather y        reduce (u or x);  gather (u or x)

It is so where a program needs the old value, too, and nothing but kernels reads the new one.  A
scatter that replaces places does not read them.

Sources: ``scatter_expander.cc``, ``gpu_compiler.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import REPLACES, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.simplify import without_unread
from flint.passes.xla.transposes import COPY, Entry

#: What a scatter to one place is.
UPDATE: Final[Entry] = ("dynamic_update_slice", "", ())
_SCATTER: Final = "scatter"
_COMPUTES: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION)


def updates(graph: WorkloadGraph) -> WorkloadGraph:
    """One block whose updates are fused like other ops; its table of ops has ``UPDATE``."""
    return _computed(_of_slices(graph))


def _of_slices(graph: WorkloadGraph) -> WorkloadGraph:
    """Scatters to one place as updates of a slice; what is replaced is not read."""
    entries = list(graph.tables.entries())
    scatters = np.array([entry[0] == _SCATTER for entry in entries] or [False])[graph.op]
    found = [node for node in np.flatnonzero(scatters).tolist() if _places(graph, node)]
    if not found:
        return graph
    op, operand, read = graph.op.copy(), graph.operand.copy(), graph.bytes_read.copy()
    for node in found:
        if entries[op[node]][2][-1] == REPLACES:
            read[node] -= min(graph.type_of(int(graph.operands_of(node)[2])).bytes, read[node])
        if _places(graph, node) == 1:
            op[node] = entries.index(UPDATE)
            first = int(graph.operand_ptr[node])
            operand[[first + 1, first + 2]] = operand[[first + 2, first + 1]]
    return replace(graph, op=op, operand=operand, bytes_read=read)


def _places(graph: WorkloadGraph, node: int) -> int:
    """How many places a scatter of one value writes to; 0 if that is not known."""
    form = graph.tables.forms[graph.op[node]] if len(graph.tables.forms) > graph.op[node] else ()
    operands = graph.operands_of(node).tolist()
    if not form or len(operands) != 3:
        return 0
    indices, vector = graph.type_of(operands[1]).shape, form[-2]
    return int(np.prod([size for dim, size in enumerate(indices) if dim != vector], initial=1))


def _computed(graph: WorkloadGraph) -> WorkloadGraph:
    """Updates of copies that all of their readers could compute, without the copies."""
    names = [name for name, *_ in graph.tables.entries()]
    copies, changes = (
        np.array([each == name for each in names] or [False])[graph.op]
        for name in (COPY, UPDATE[0])
    )
    able = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    able[graph.order_node] = False
    able &= graph.kind == NodeKind.COMPUTE
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    readers = able & np.isin(graph.role, _COMPUTES)
    wrong = np.zeros(graph.values, dtype=bool)
    wrong[graph.operand[~readers[graph.consumer]]] = True
    wrong[graph.outputs] = True
    operand, role = graph.operand.copy(), graph.role.copy()
    moved = {name: getattr(graph, name).copy()
             for name in ("bytes_read", "bytes_written", "bytes_aliased")}  # fmt: skip
    for node in np.flatnonzero(changes & able & (graph.role == Role.UPDATE)).tolist():
        entry = int(graph.operand_ptr[node])
        copy = int(graph.producer[graph.operand[entry]])
        made = graph.inputs + int(graph.result_ptr[node])
        if copy < 0 or not copies[copy] or not able[copy] or wrong[made]:
            continue
        if uses[graph.operand[entry]] == 1:
            operand[entry] = graph.operand[graph.operand_ptr[copy]]
            role[node] = Role.MOVEMENT
            size = graph.type_of(made).bytes
            moved["bytes_read"][node] += size
            moved["bytes_written"][node], moved["bytes_aliased"][node] = size, 0
    return without_unread(replace(graph, operand=operand, role=role, **moved))
