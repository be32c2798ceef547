"""The graph of a trace: its nodes with their times, FLOPs and bytes, and what each waits for.

The idea: a node keeps the time that the trace gives it.  One without a time has its FLOPs and bytes
and is priced on the system; a trace names neither the unit nor the element type of its FLOPs.

    graph = graph_of(trace, issued(trace, notes), exchanges.of(trace, rank), notes)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import NodeType
from flint.converters.chakra.workloads.exchanged import Exchanged
from flint.converters.chakra.workloads.hosted import LONGEST, nanoseconds
from flint.converters.chakra.workloads.issued import Issued
from flint.graph.building import GraphBuilder, Row, TableBuilder
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.transfers import TO_DEVICE, TO_HOST
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.passes.columns import distinct as distinct_rows
from flint.post_execution.node_work import with_nanoseconds

#: What FLOPs count as.
_UNIT, _DTYPE = Unit.MATMUL, "bf16"
_COPIES: Final = {NodeType.MEM_STORE: TO_HOST, NodeType.MEM_LOAD: TO_DEVICE}

UNTYPED: Final = (
    "compute nodes with FLOPs and no time: a trace names no unit and no element type, so they "
    "count as matrix products in bf16"
)
STATED: Final = "compute nodes keep the durations of the trace on every system"
EMPTY: Final = "compute nodes with neither a time nor FLOPs: they take no time"
TOO_LONG: Final = "durations of centuries: treated as unknown"


def graph_of(
    trace: Trace, nodes: Issued, exchanged: Exchanged, notes: dict[str, int]
) -> WorkloadGraph:
    """The graph of a rank.

    Args:
        trace: its trace.
        nodes: the nodes that run.
        exchanged: their communications on the rank.
        notes: what the trace does not say is counted here.
    """
    tables = TableBuilder()
    numbers = np.array([tables.communication(item) for item in exchanged.table] or [-1], np.int64)
    number = exchanged.number[nodes.rows]
    detail = np.where(number >= 0, numbers[number], -1)
    measured = nodes.played is not None
    spent = _nanoseconds(trace, nodes.rows, detail < 0, measured, notes)
    timeless = spent < 0
    first, same = distinct_rows(
        trace.name[nodes.rows].astype(np.int64), trace.type[nodes.rows].astype(np.int64), detail,
        _counted(trace, "num_ops")[nodes.rows], _counted(trace, "tensor_size")[nodes.rows],
    )  # fmt: skip
    rows = [_row(trace, int(nodes.rows[at]), int(detail[at]), tables) for at in first.tolist()]
    made = np.array([tables.row(row) for row in rows] or [0], np.int64)[same]
    count = len(nodes.rows)
    builder = GraphBuilder(tables)
    nothing = np.zeros(0, np.int64)
    builder.extend(made, np.zeros(count + 1, np.int64), nothing, np.zeros(count, np.int64), nodes)
    untyped = (detail < 0) & timeless & ~np.isin(trace.type[nodes.rows], tuple(_COPIES))
    if untyped.any():
        notes[UNTYPED] = notes.get(UNTYPED, 0) + int(untyped.sum())
    return with_nanoseconds(builder.finish(()), spent)


def _nanoseconds(
    trace: Trace, rows: Ints, computes: NDArray[np.bool_], measured: bool, notes: dict[str, int]
) -> Ints:
    """The time of each node in nanoseconds, -1 for those that the system prices.

    Args:
        trace: the trace.
        rows: the nodes' rows.
        computes: which of them compute.
        measured: whether communications keep their times, too.
        notes: what the trace does not say is counted here.
    """
    long = trace.duration[rows] > LONGEST
    spent = nanoseconds(trace)[rows]
    priced = (_counted(trace, "num_ops")[rows] > 0) | np.isin(trace.type[rows], tuple(_COPIES))
    empty = computes & ~priced & (spent == 0)
    stated = (computes | measured) & (spent > 0)
    for text, some in ((TOO_LONG, long), (EMPTY, empty), (STATED, stated & ~measured)):
        if some.any():
            notes[text] = notes.get(text, 0) + int(some.sum())
    return np.where(stated | empty, spent, -1)


def _row(trace: Trace, row: int, detail: int, tables: TableBuilder) -> Row:
    """A node as a row of the tables, without its time."""
    kind, name = int(trace.type[row]), trace.names[trace.name[row]]
    if detail >= 0:
        label = tables.communications[detail].kind
        return Row(
            NodeKind.COMMUNICATION, Role.COLLECTIVE, tables.op(label), detail, 1, (), Work((), 0, 0)
        )
    flops = int(_counted(trace, "num_ops")[row])
    moved = int(_counted(trace, "tensor_size")[row])
    items = (WorkItem(_UNIT, _DTYPE, flops),) if flops else ()
    if kind in _COPIES:
        name, items = _COPIES[NodeType(kind)], ()
    return Row(NodeKind.COMPUTE, Role.OPAQUE, tables.op(name), -1, 1, (), Work(items, moved, 0))


def _counted(trace: Trace, name: str) -> Ints:
    """An attribute that counts something, 0 where it is absent or not a size; shape [nodes]."""
    values: Ints = getattr(trace, name)
    return np.maximum(values, 0)
