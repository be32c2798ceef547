"""Building graphs: rows in, columns out.

The idea: readers and passes add nodes one by one in issue order; the builder keeps plain lists,
interns what repeats into the program's tables, and turns everything into columns at the end.
Inputs may be added at any time (a loop body finds its captures while it is walked), so until
``finish`` inputs are counted downwards from -1.

    builder = GraphBuilder(TableBuilder())
    x = builder.input(tensor_type((8,), "f32"))
    (y,) = builder.compute("add", Role.ELEMENTWISE, (x, x), (t,), work)
    graph = builder.finish((y,))
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np

from flint.communication import Communication
from flint.graph import Conditional, EdgeKind, Loop, NodeKind, Source, Tables, WorkloadGraph
from flint.tensor_types import DTYPE_CODE, TensorType
from flint.work import NO_WORK, Role, Work


class TableBuilder:
    """Interns what the columns of one program point into."""

    __slots__ = ("_gemms", "_ops", "_sources", "_types", "communications")

    def __init__(self, tables: Tables | None = None) -> None:
        self._types: dict[TensorType, int] = {}
        self._ops: dict[str, int] = {}
        self._gemms: dict[tuple[int, int, int, int], int] = {}
        self._sources: dict[Source, int] = {Source(): 0}
        self.communications: list[Communication] = []
        if tables is not None:
            self._types = {item: i for i, item in enumerate(tables.types)}
            self._ops = {item: i for i, item in enumerate(tables.ops)}
            self._gemms = {item: i for i, item in enumerate(tables.gemms)}
            self._sources = {item: i for i, item in enumerate(tables.sources)}
            self.communications = list(tables.communications)

    def type(self, item: TensorType) -> int:
        """Index of a type."""
        return self._types.setdefault(item, len(self._types))

    def op(self, name: str) -> int:
        """Index of an op name."""
        return self._ops.setdefault(name, len(self._ops))

    def gemm(self, dims: tuple[int, int, int, int] | None) -> int:
        """Index of a GEMM size, -1 for None."""
        return -1 if dims is None else self._gemms.setdefault(dims, len(self._gemms))

    def source(self, item: Source) -> int:
        """Index of an origin."""
        return self._sources.setdefault(item, len(self._sources))

    def finish(self) -> Tables:
        """The tables as they stand."""
        return Tables(
            tuple(self._types),
            tuple(self._ops),
            tuple(self._gemms),
            tuple(self._sources),
            tuple(self.communications),
        )


class GraphBuilder:
    """Adds nodes in issue order.

    Attributes:
        tables: shared by all graphs of a program.
    """

    def __init__(self, tables: TableBuilder) -> None:
        self.tables = tables
        self.input_type: list[int] = []
        self.kind: list[int] = []
        self.role: list[int] = []
        self.op: list[int] = []
        self.detail: list[int] = []
        self.source: list[int] = []
        self.ops_merged: list[int] = []
        self.read: list[int] = []
        self.written: list[int] = []
        self.aliased: list[int] = []
        self.result_ptr = array("q", [0])
        self.result_type = array("q")
        self.operand_ptr = array("q", [0])
        self.operand = array("q")
        self.order_ptr = array("q", [0])
        self.order_node = array("q")
        self.order_kind = array("b")
        self.work_ptr = array("q", [0])
        self.work_unit = array("b")
        self.work_dtype = array("b")
        self.work_flops = array("q")
        self.work_gemm = array("q")
        self.loops: list[Loop] = []
        self.conditionals: list[Conditional] = []

    def __len__(self) -> int:
        return len(self.kind)

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
            order: (node, ``EdgeKind``) that must come first without a value.
        """
        self.kind.append(kind)
        self.role.append(role)
        self.op.append(op)
        self.detail.append(detail)
        self.source.append(source)
        self.ops_merged.append(ops_merged)
        self.operand.extend(operands)
        self.operand_ptr.append(len(self.operand))
        first = len(self.result_type)
        self.result_type.extend(result_types)
        self.result_ptr.append(len(self.result_type))
        for node, edge in order:
            self.order_node.append(node)
            self.order_kind.append(edge)
        self.order_ptr.append(len(self.order_node))
        items, read, written, aliased = work
        self.read.append(read)
        self.written.append(written)
        self.aliased.append(aliased)
        for unit, dtype, flops, dims in items:
            self.work_unit.append(unit)
            self.work_dtype.append(DTYPE_CODE[dtype])
            self.work_flops.append(flops)
            self.work_gemm.append(self.tables.gemm(dims))
        self.work_ptr.append(len(self.work_unit))
        return range(first, len(self.result_type))

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
        types = [self.tables.type(item) for item in result_types]
        return self.node(
            NodeKind.COMPUTE,
            self.tables.op(op),
            operands,
            types,
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
        self.tables.communications.append(item)
        return self.node(
            NodeKind.COMMUNICATION,
            self.tables.op(item.kind),
            operands,
            [self.tables.type(t) for t in result_types],
            role=Role.COLLECTIVE,
            work=work,
            detail=len(self.tables.communications) - 1,
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
        return self.node(
            NodeKind.LOOP,
            self.tables.op("while"),
            operands,
            types,
            role=Role.CONTROL,
            detail=len(self.loops) - 1,
            source=source,
            order=order,
        )

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
        return self.node(
            NodeKind.CONDITIONAL,
            self.tables.op("case"),
            operands,
            result_types,
            role=Role.CONTROL,
            detail=len(self.conditionals) - 1,
            source=source,
            order=order,
        )

    def finish(self, outputs: Iterable[int], tables: Tables | None = None) -> WorkloadGraph:
        """The graph; ``outputs`` are value numbers.

        Without ``tables`` the builder's own are taken as they stand (a program's bodies are given
        the finished tables at the end by ``with_tables``).
        """
        inputs = len(self.input_type)

        def values(numbers: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            raw = np.array(list(numbers) if not isinstance(numbers, array) else numbers, np.int64)
            return np.where(raw < 0, -1 - raw, raw + inputs)

        int64, int8 = np.int64, np.int8
        return WorkloadGraph(
            tables=tables if tables is not None else self.tables.finish(),
            input_type=np.array(self.input_type, int64),
            kind=np.array(self.kind, int8),
            role=np.array(self.role, int8),
            op=np.array(self.op, int64),
            detail=np.array(self.detail, int64),
            source=np.array(self.source, int64),
            ops_merged=np.array(self.ops_merged, int64),
            bytes_read=np.array(self.read, int64),
            bytes_written=np.array(self.written, int64),
            bytes_aliased=np.array(self.aliased, int64),
            result_ptr=np.array(self.result_ptr, int64),
            result_type=np.array(self.result_type, int64),
            operand_ptr=np.array(self.operand_ptr, int64),
            operand=values(self.operand),
            order_ptr=np.array(self.order_ptr, int64),
            order_node=np.array(self.order_node, int64),
            order_kind=np.array(self.order_kind, int8),
            work_ptr=np.array(self.work_ptr, int64),
            work_unit=np.array(self.work_unit, int8),
            work_dtype=np.array(self.work_dtype, int8),
            work_flops=np.array(self.work_flops, int64),
            work_gemm=np.array(self.work_gemm, int64),
            outputs=values(outputs),
            loops=tuple(self.loops),
            conditionals=tuple(self.conditionals),
        )


def with_tables(graph: WorkloadGraph, tables: Tables) -> WorkloadGraph:
    """The same graph and bodies pointing into ``tables`` (indices must mean the same there)."""
    from dataclasses import replace

    loops = tuple(replace(loop, body=with_tables(loop.body, tables)) for loop in graph.loops)
    conditionals = tuple(
        replace(c, branches=tuple(with_tables(b, tables) for b in c.branches))
        for c in graph.conditionals
    )
    return replace(graph, tables=tables, loops=loops, conditionals=conditionals)
