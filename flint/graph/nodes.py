"""Node views: a graph's columns read as objects.

The idea: bulk work runs on columns; people, tests and converters that look at single nodes get
small frozen views made on access, with the field's usual names.

    node = graph[12]
    node.op, node.kind, node.flops, node.operands, node.users
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from flint.graph import exact_sums
from flint.graph.communication import Communication
from flint.graph.kinds import EdgeKind, NodeKind, Source
from flint.graph.tensor_types import DTYPES, TensorType
from flint.graph.work import Role, Unit, Work, WorkItem

if TYPE_CHECKING:  # graphs make nodes; imported here only for the types
    from flint.graph.graph import Conditional, Loop, WorkloadGraph


class Edge(NamedTuple):
    """One reason why ``consumer`` waits.

    Attributes:
        producer: node index, -1 for a graph input.
        result: index among the producer's results (of the inputs, for an input); -1 for order.
        consumer: node index.
        kind: data, order or stream.
    """

    producer: int
    result: int
    consumer: int
    kind: EdgeKind


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph.

    Attributes:
        graph: the graph.
        index: position in issue order.
    """

    graph: WorkloadGraph
    index: int

    @property
    def kind(self) -> NodeKind:
        """Compute, communication, loop or conditional."""
        return NodeKind(int(self.graph.kind[self.index]))

    @property
    def op(self) -> str:
        """StableHLO op name; of a fused kernel, its root ops joined by ``+``."""
        return self.graph.tables.ops[int(self.graph.op[self.index])]

    @property
    def form(self) -> tuple[int, ...]:
        """The op's parameters (``Tables.forms``); () where they are not known."""
        op, forms = int(self.graph.op[self.index]), self.graph.tables.forms
        return forms[op] if op < len(forms) else ()

    @property
    def role(self) -> Role:
        """What the op is to a fusing compiler."""
        return Role(int(self.graph.role[self.index]))

    @property
    def category(self) -> str:
        """Compute, movement, free, communication or control."""
        return "communication" if self.kind == NodeKind.COMMUNICATION else self.role.category

    @property
    def source(self) -> Source:
        """Layer, file, line and phase."""
        return self.graph.tables.sources[int(self.graph.source[self.index])]

    @property
    def ops_merged(self) -> int:
        """StableHLO ops that this node stands for."""
        return int(self.graph.ops_merged[self.index])

    @property
    def work(self) -> Work:
        """FLOPs by unit and type, bytes read, written and aliased (not multiplied by loops)."""
        graph, i = self.graph, self.index
        items = tuple(
            WorkItem(
                Unit(int(graph.work_unit[j])),
                DTYPES[int(graph.work_dtype[j])],
                int(graph.work_flops[j]),
                graph.tables.gemms[int(graph.work_gemm[j])] if graph.work_gemm[j] >= 0 else None,
            )
            for j in range(int(graph.work_ptr[i]), int(graph.work_ptr[i + 1]))
        )
        return Work(
            items,
            int(graph.bytes_read[i]),
            int(graph.bytes_written[i]),
            int(graph.bytes_aliased[i]),
        )

    @property
    def flops(self) -> int:
        """FLOPs without transcendentals; a loop counts one iteration's times the trip count."""
        own = self.work.flops
        if self.loop is not None:
            own += sum(
                times * exact_sums.total(graph.flops_by_node())
                for graph, times in self.loop.body.walk(self.loop.trip_count)
            )
        return own

    @property
    def operands(self) -> tuple[int, ...]:
        """Values that the node consumes."""
        low, high = self.graph.operand_ptr[self.index : self.index + 2]
        return tuple(self.graph.operand[low:high].tolist())

    @property
    def results(self) -> tuple[int, ...]:
        """Values that the node produces."""
        low, high = (
            self.graph.result_ptr[self.index : self.index + 2] + self.graph.inputs
        ).tolist()
        return tuple(range(low, high))

    @property
    def operand_types(self) -> tuple[TensorType, ...]:
        """Types of the operands."""
        return tuple(self.graph.type_of(value) for value in self.operands)

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Types of the results."""
        return tuple(self.graph.type_of(value) for value in self.results)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Nodes that this one waits for, without repetition, in issue order."""
        return tuple(self.graph[i] for i in sorted(self.graph.predecessors(self.index)))

    @property
    def users(self) -> tuple[Node, ...]:
        """Nodes that consume a result, without repetition, in issue order."""
        graph = self.graph
        mine = set(self.results)
        found = {
            int(graph.consumer[j]) for j, value in enumerate(graph.operand) if int(value) in mine
        }
        return tuple(graph[i] for i in sorted(found))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Incoming edges: data edges in operand order, then order edges."""
        graph, i = self.graph, self.index
        data = []
        for value in self.operands:
            producer = int(graph.producer[value])
            first = int(graph.result_ptr[producer]) + graph.inputs if producer >= 0 else 0
            data.append(Edge(producer, value - first, i, EdgeKind.DATA))
        low, high = graph.order_ptr[i : i + 2]
        order = [
            Edge(int(graph.order_node[j]), -1, i, EdgeKind(int(graph.order_kind[j])))
            for j in range(int(low), int(high))
        ]
        return (*data, *order)

    @property
    def communication(self) -> Communication | None:
        """What a communication node exchanges."""
        if self.kind != NodeKind.COMMUNICATION:
            return None
        return self.graph.tables.communications[int(self.graph.detail[self.index])]

    @property
    def loop(self) -> Loop | None:
        """A loop node's loop."""
        if self.kind != NodeKind.LOOP:
            return None
        return self.graph.loop_of(self.index)

    @property
    def conditional(self) -> Conditional | None:
        """A conditional node's branches."""
        if self.kind != NodeKind.CONDITIONAL:
            return None
        return self.graph.conditionals[int(self.graph.detail[self.index])]

    def __repr__(self) -> str:
        results = ", ".join(map(str, self.result_types))
        return f"Node({self.index}, {self.op}, {self.kind.name.lower()} -> {results})"
