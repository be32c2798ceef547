"""Checking a graph: whether its columns are consistent.

The idea: every property that readers, passes and writers rely on is tested here on whole columns,
which is cheap enough to run before and after every pass.  A violation is an error that names the
first faulty node; nothing is repaired.

    verify(graph)        # raises FlintError: "graph, node 12 (add): operand 0 is value 99 ..."
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, EdgeKind, Ints, NodeKind, WorkloadGraph
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry

#: A step of this many iterations would outlast the universe; sums over them still fit into a float.
MOST_ITERATIONS = 10**100
_BYTES = ("bytes_read", "bytes_written", "bytes_aliased")


def verify(graph: WorkloadGraph, where: str = "graph") -> None:
    """Check ``graph`` and every body below it.

    Args:
        graph: what to check.
        where: how messages name it; bodies are named by the nodes that lead to them.

    Raises:
        FlintError: the first violation found, with the node's index and op.
    """
    _lengths(graph, where)
    _pointers(graph, where)
    _ranges(graph, where)
    _edges(graph, where)
    _details(graph, where)
    _loops(graph, where)
    _conditionals(graph, where)


def _fail(graph: WorkloadGraph, where: str, node: int, what: str) -> None:
    op = int(graph.op[node])
    name = graph.tables.ops[op] if 0 <= op < len(graph.tables.ops) else "?"
    raise FlintError(f"{where}, node {node} ({name}): {what}")


def _no_node(graph: WorkloadGraph, where: str, bad: NDArray[np.bool_], what: str) -> None:
    """Fail at the first node for which ``bad`` is true."""
    if bad.any():
        _fail(graph, where, int(np.argmax(bad)), what)


def _lengths(graph: WorkloadGraph, where: str) -> None:
    nodes = len(graph.kind)
    lengths = dict.fromkeys(NODE_COLUMNS, nodes)
    lengths |= dict.fromkeys(("result_ptr", "operand_ptr", "order_ptr", "work_ptr"), nodes + 1)
    lengths |= dict.fromkeys(WORK_COLUMNS, len(graph.work_flops))
    lengths["order_kind"] = len(graph.order_node)
    for name, length in lengths.items():
        column = getattr(graph, name)
        if column.ndim != 1 or len(column) != length:
            raise FlintError(f"{where}: column {name} has shape {column.shape}, not ({length},)")


def _pointers(graph: WorkloadGraph, where: str) -> None:
    rows = (
        ("result_ptr", graph.result_ptr, len(graph.result_type)),
        ("operand_ptr", graph.operand_ptr, len(graph.operand)),
        ("order_ptr", graph.order_ptr, len(graph.order_node)),
        ("work_ptr", graph.work_ptr, len(graph.work_flops)),
    )
    for name, ptr, end in rows:
        if int(ptr[0]) != 0 or int(ptr[-1]) != end:
            raise FlintError(
                f"{where}: {name} runs from {ptr[0]} to {ptr[-1]}, not from 0 to {end}"
            )
        _no_node(graph, where, np.diff(ptr) < 0, f"{name} decreases")


def _outside(column: NDArray[np.signedinteger], low: int, high: int) -> NDArray[np.bool_]:
    bad: NDArray[np.bool_] = (column < low) | (column >= high)
    return bad


def _owner(ptr: Ints, entry: int) -> int:
    """The node whose row of the CSR pointer ``ptr`` holds ``entry``."""
    return int(np.searchsorted(ptr, entry, side="right")) - 1


def _ranges(graph: WorkloadGraph, where: str) -> None:
    tables = graph.tables
    for name, column, high in (
        ("kind", graph.kind, len(NodeKind)),
        ("role", graph.role, len(Role)),
        ("op", graph.op, len(tables.ops)),
        ("source", graph.source, len(tables.sources)),
    ):
        _no_node(graph, where, _outside(column, 0, high), f"{name} outside 0..{high - 1}")
    for name in ("ops_merged", *_BYTES):
        _no_node(graph, where, getattr(graph, name) < 0, f"{name} is negative")
    for name, ptr, column, low, high in (
        ("result type", graph.result_ptr, graph.result_type, 0, len(tables.types)),
        ("work unit", graph.work_ptr, graph.work_unit, 0, len(Unit)),
        ("work dtype", graph.work_ptr, graph.work_dtype, 0, len(DTYPES)),
        ("work GEMM", graph.work_ptr, graph.work_gemm, -1, len(tables.gemms)),
        ("FLOP count", graph.work_ptr, graph.work_flops, 0, np.iinfo(np.int64).max),
        ("order edge kind", graph.order_ptr, graph.order_kind, EdgeKind.ORDER, len(EdgeKind)),
    ):
        bad = _outside(column, low, high)
        if bad.any():
            entry = int(np.argmax(bad))
            _fail(graph, where, _owner(ptr, entry), f"{name} {column[entry]} is out of range")
    for name, column, high in (
        ("input type", graph.input_type, len(tables.types)),
        ("output", graph.outputs, graph.values),
    ):
        bad = _outside(column, 0, high)
        if bad.any():
            entry = int(np.argmax(bad))
            raise FlintError(f"{where}: {name} {entry} is {column[entry]}, outside 0..{high - 1}")


def _edges(graph: WorkloadGraph, where: str) -> None:
    bad = _outside(graph.operand, 0, graph.values)
    if bad.any():
        entry = int(np.argmax(bad))
        node = _owner(graph.operand_ptr, entry)
        index = entry - int(graph.operand_ptr[node])
        what = f"operand {index} is value {graph.operand[entry]} of {graph.values}"
        _fail(graph, where, node, what)
    late = graph.producer[graph.operand] >= graph.consumer
    if late.any():
        entry = int(np.argmax(late))
        node = int(graph.consumer[entry])
        producer = int(graph.producer[graph.operand[entry]])
        index = entry - int(graph.operand_ptr[node])
        _fail(
            graph, where, node, f"operand {index} comes from node {producer}, which is not earlier"
        )
    waits = row_of_entry(graph.order_ptr)
    late = (graph.order_node >= waits) | (graph.order_node < 0)
    if late.any():
        entry = int(np.argmax(late))
        what = f"waits for node {graph.order_node[entry]}, which is not earlier"
        _fail(graph, where, int(waits[entry]), what)


def _details(graph: WorkloadGraph, where: str) -> None:
    sizes = {
        NodeKind.COMMUNICATION: len(graph.tables.communications),
        NodeKind.LOOP: len(graph.loops),
        NodeKind.CONDITIONAL: len(graph.conditionals),
    }
    compute = graph.kind == NodeKind.COMPUTE
    _no_node(graph, where, compute & (graph.detail != -1), "a compute node has a detail")
    for kind, size in sizes.items():
        bad = (graph.kind == kind) & _outside(graph.detail, 0, size)
        _no_node(graph, where, bad, f"detail of a {kind.name.lower()} outside 0..{size - 1}")


def _bytes(graph: WorkloadGraph, values: Ints) -> list[int]:
    return [int(size) for size in graph.value_bytes[values]]


def _ports(graph: WorkloadGraph, node: int) -> tuple[list[int], list[int]]:
    """Bytes of a node's operands and of its results."""
    low, high = graph.operand_ptr[node : node + 2]
    first, last = graph.result_ptr[node : node + 2] + graph.inputs
    return _bytes(graph, graph.operand[low:high]), _bytes(graph, np.arange(first, last))


def _loops(graph: WorkloadGraph, where: str) -> None:
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = graph.loop_of(node)
        body, carried = loop.body, loop.carried
        if not 0 <= carried <= body.inputs:
            _fail(graph, where, node, f"carries {carried} of {body.inputs} inputs")
        if loop.trip_count < 0 or (loop.lookahead is not None and loop.lookahead < 0):
            _fail(graph, where, node, f"trip count {loop.trip_count}, lookahead {loop.lookahead}")
        if loop.trip_count * _iterations(body) > MOST_ITERATIONS:
            _fail(graph, where, node, "its loops run more than 10^100 times altogether")
        verify(body, f"{where}, body of node {node}")
        operands, results = _ports(graph, node)
        wanted = _bytes(body, np.arange(body.inputs))
        if operands != wanted:
            _fail(graph, where, node, f"operands of {operands} bytes for inputs of {wanted}")
        if results != wanted[:carried]:
            _fail(graph, where, node, f"results of {results} bytes for {wanted[:carried]} carried")
        yielded = _bytes(body, body.outputs)
        if yielded != wanted[:carried]:
            what = f"its body yields {yielded} bytes for {wanted[:carried]} carried"
            _fail(graph, where, node, what)


def _iterations(graph: WorkloadGraph) -> int:
    """The most runs of the innermost body of a graph; at least 1."""
    return max((loop.trip_count * _iterations(loop.body) for loop in graph.loops), default=1) or 1


def _conditionals(graph: WorkloadGraph, where: str) -> None:
    for node in np.flatnonzero(graph.kind == NodeKind.CONDITIONAL).tolist():
        conditional = graph.conditionals[int(graph.detail[node])]
        operands, results = _ports(graph, node)
        for index, branch in enumerate(conditional.branches):
            verify(branch, f"{where}, branch {index} of node {node}")
            wanted = _bytes(branch, np.arange(branch.inputs))
            if wanted != operands:
                what = f"operands of {operands} bytes for inputs of {wanted} of branch {index}"
                _fail(graph, where, node, what)
            yielded = _bytes(branch, branch.outputs)
            if yielded != results:
                what = f"branch {index} yields {yielded} bytes for results of {results}"
                _fail(graph, where, node, what)
