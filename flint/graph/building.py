"""Building graphs: rows in, columns out.

The idea: readers and passes add nodes one by one in issue order; the builder keeps plain lists,
interns repeated values in the program's tables, and turns everything into columns at the end.
Inputs may be added at any time (a loop body finds its captures while it is walked), so until
``finish`` inputs are counted downwards from -1.

A node is the number of a row of the tables (see ``flint.graph.interning``), and ``finish`` spreads
the rows into columns with numpy.

    builder = GraphBuilder(TableBuilder())
    x = builder.input(tensor_type((8,), "f32"))
    (y,) = builder.compute("add", Role.ELEMENTWISE, (x, x), (t,), work)
    graph = builder.finish((y,))
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flint.graph.communication import Communication
from flint.graph.graph import Conditional, EdgeKind, Ints, Loop, NodeKind, Tables, WorkloadGraph
from flint.graph.interning import Row, TableBuilder
from flint.graph.tensor_types import DTYPE_CODE, TensorType
from flint.graph.work import NO_WORK, Role, Work
from flint.mesh.ragged import pointer, spread

#: Code that builds a graph needs its tables, too.
__all__ = ["GraphBuilder", "OrderEdges", "Row", "TableBuilder"]


class OrderEdges(Protocol):
    """Columns of edges without a value: the nodes, and the ``EdgeKind`` of each edge."""

    @property
    def before(self) -> Ints:
        """The nodes that must come first."""

    @property
    def after(self) -> Ints:
        """The nodes that wait for them."""

    @property
    def kind(self) -> NDArray[np.int8]:
        """``EdgeKind``."""


class GraphBuilder:
    """Adds nodes in issue order.

    Attributes:
        tables: shared by all graphs of a program.
    """

    def __init__(self, tables: TableBuilder) -> None:
        self.tables = tables
        self.input_type: list[int] = []
        self.row = array("q")
        self.source = array("q")
        self.result_ptr = array("q", [0])
        self.operand_ptr = array("q", [0])
        self.operand = array("q")
        self.order_consumer = array("q")
        self.order_node = array("q")
        self.order_kind = array("b")
        self.loops: list[Loop] = []
        self.conditionals: list[Conditional] = []

    def __len__(self) -> int:
        return len(self.row)

    @property
    def results(self) -> int:
        """Number of result values so far; the next one gets this number."""
        return self.result_ptr[-1]

    def producer_of(self, value: int) -> int:
        """The node that produces a result value (a number that ``node`` has returned)."""
        return bisect_right(self.result_ptr, value) - 1

    def input(self, type_index: int) -> int:
        """Add an input; returns its value number (negative until ``finish``)."""
        self.input_type.append(type_index)
        return -len(self.input_type)

    def node(
        self,
        kind: NodeKind,
        op: int,
        operands: Iterable[int],
        result_types: Sequence[int],
        *,
        role: int = Role.OPAQUE,
        work: Work = NO_WORK,
        detail: int = -1,
        source: int = 0,
        ops_merged: int = 1,
        order: Iterable[tuple[int, int]] = (),
    ) -> range:
        """Add a node; returns its result values.

        Args:
            kind: what the node is.
            op: op index from ``tables.op``.
            operands: value numbers.
            result_types: type indices from ``tables.type``.
            role: role of a compute node.
            work: its work.
            detail: index of the communication, loop or conditional.
            source: source index from ``tables.source``.
            ops_merged: StableHLO ops that the node stands for.
            order: (node, ``EdgeKind``) of nodes that must come first without passing a value.
        """
        types = tuple(result_types)
        row = self.tables.row(Row(int(kind), int(role), op, detail, ops_merged, types, work))
        first = self.add(row, len(types), operands, source, order)
        return range(first, first + len(types))

    def add(
        self,
        row: int,
        results: int,
        operands: Iterable[int],
        source: int = 0,
        order: Iterable[tuple[int, int]] = (),
    ) -> int:
        """Add a node of the row ``row``, which has ``results`` results; returns the first one."""
        for node, edge in order:
            self.order_consumer.append(len(self.row))
            self.order_node.append(node)
            self.order_kind.append(edge)
        self.row.append(row)
        self.source.append(source)
        self.operand.extend(operands)
        self.operand_ptr.append(len(self.operand))
        first = self.result_ptr[-1]
        self.result_ptr.append(first + results)
        return first

    def extend(
        self, rows: Ints, operand_ptr: Ints, operand: Ints, source: Ints, edges: OrderEdges
    ) -> None:
        """Add all nodes of a graph at once.

        Args:
            rows: rows of the tables, shape [nodes].
            operand_ptr, operand: CSR of value numbers; the nodes' own results are numbered from 0.
            source: source indices, shape [nodes].
            edges: edges between the nodes, sorted by ``after``.
        """
        count = np.array([len(row.result_types) for row in self.tables.rows], np.int64)
        columns = (
            (self.row, rows), (self.source, source), (self.operand_ptr, operand_ptr[1:]),
            (self.operand, operand), (self.result_ptr, np.cumsum(count[rows])),
            (self.order_consumer, edges.after), (self.order_node, edges.before),
            (self.order_kind, edges.kind),
        )  # fmt: skip
        for column, values in columns:
            column.frombytes(np.ascontiguousarray(values, column.typecode).tobytes())

    def compute(
        self,
        op: str,
        role: Role,
        operands: Iterable[int],
        result_types: Iterable[TensorType],
        work: Work,
        order: Iterable[tuple[int, EdgeKind]] = (),
    ) -> range:
        """Add a compute node by names and types (see ``node``)."""
        return self.node(
            NodeKind.COMPUTE,
            self.tables.op(op),
            operands,
            [self.tables.type(item) for item in result_types],
            role=role,
            work=work,
            order=order,
        )

    def communication(
        self,
        item: Communication,
        operands: Iterable[int],
        result_types: Iterable[TensorType],
        source: int = 0,
        order: Iterable[tuple[int, EdgeKind]] = (),
        work: Work = NO_WORK,
    ) -> range:
        """Add a communication node."""
        return self.node(
            NodeKind.COMMUNICATION,
            self.tables.op(item.kind),
            operands,
            [self.tables.type(t) for t in result_types],
            role=Role.COLLECTIVE,
            work=work,
            detail=self.tables.communication(item),
            source=source,
            order=order,
        )

    def loop(
        self,
        loop: Loop,
        operands: Iterable[int],
        source: int = 0,
        order: Iterable[tuple[int, EdgeKind]] = (),
    ) -> range:
        """Add a loop node; its results are the carried values."""
        self.loops.append(loop)
        types = loop.body.input_type[: loop.carried].tolist()
        number = len(self.loops) - 1
        return self._control(NodeKind.LOOP, "while", number, operands, types, source, order)

    def conditional(
        self,
        conditional: Conditional,
        operands: Iterable[int],
        result_types: Sequence[int],
        source: int = 0,
        order: Iterable[tuple[int, EdgeKind]] = (),
    ) -> range:
        """Add a conditional node."""
        self.conditionals.append(conditional)
        kind, number = NodeKind.CONDITIONAL, len(self.conditionals) - 1
        return self._control(kind, "case", number, operands, result_types, source, order)

    def _control(
        self,
        kind: NodeKind,
        op: str,
        number: int,
        operands: Iterable[int],
        result_types: Sequence[int],
        source: int,
        order: Iterable[tuple[int, EdgeKind]],
    ) -> range:
        return self.node(
            kind, self.tables.op(op), operands, result_types, role=Role.CONTROL, detail=number,
            source=source, order=order,
        )  # fmt: skip

    def finish(self, outputs: Iterable[int], tables: Tables | None = None) -> WorkloadGraph:
        """The graph; ``outputs`` are value numbers.

        Without ``tables``, the builder's current ones are used; ``with_tables`` takes others.
        """

        def values(numbers: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            raw = np.array(list(numbers) if not isinstance(numbers, array) else numbers, np.int64)
            return np.where(raw < 0, -1 - raw, raw + len(self.input_type))

        used, row = np.unique(np.array(self.row, np.int64), return_inverse=True)
        rows = [self.tables.rows[number] for number in used.tolist()]

        def column(entries: Iterable[int], dtype: type = np.int64) -> Any:
            return np.array(list(entries), dtype)[row]

        result_ptr, result_type = spread([item.result_types for item in rows], row)
        work_ptr, unit = spread([[int(i.unit) for i in item.work.items] for item in rows], row)
        of_items = [item.work.items for item in rows]
        _, dtype = spread([[DTYPE_CODE[i.dtype] for i in items] for items in of_items], row)
        _, flops = spread([[i.flops for i in items] for items in of_items], row)
        _, gemm = spread([[self.tables.gemm(i.dims) for i in items] for items in of_items], row)
        waiting = np.bincount(np.array(self.order_consumer, np.int64), minlength=len(self.row))
        return WorkloadGraph(
            tables=tables if tables is not None else self.tables.finish(),
            input_type=np.array(self.input_type, np.int64),
            kind=column((item.kind for item in rows), np.int8),
            role=column((item.role for item in rows), np.int8),
            op=column(item.op for item in rows),
            detail=column(item.detail for item in rows),
            source=np.array(self.source, np.int64),
            ops_merged=column(item.ops_merged for item in rows),
            bytes_read=column(item.work.read for item in rows),
            bytes_written=column(item.work.written for item in rows),
            bytes_aliased=column(item.work.aliased for item in rows),
            result_ptr=result_ptr,
            result_type=result_type,
            operand_ptr=np.array(self.operand_ptr, np.int64),
            operand=values(self.operand),
            order_ptr=pointer(waiting),
            order_node=np.array(self.order_node, np.int64),
            order_kind=np.array(self.order_kind, np.int8),
            work_ptr=work_ptr,
            work_unit=unit.astype(np.int8),
            work_dtype=dtype.astype(np.int8),
            work_flops=flops,
            work_gemm=gemm,
            outputs=values(outputs),
            loops=tuple(self.loops),
            conditionals=tuple(self.conditionals),
        )
