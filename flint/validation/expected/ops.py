"""The ops that a rank runs according to its capture, in the form of traces.

The idea: loops are unrolled and bodies inlined in issue order, each op as the same ``OpFacts`` that
readers make; (instance, node) keeps every op's address in its graph, so that edges can be followed.

    expected = expected_of(workload, rank=0)
    expected.facts[expected.op[0]].kind
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.tensor_types import EXACT
from flint.graph.work import Unit
from flint.mesh.ragged import Ints
from flint.observed.classes import COMMUNICATIONS, OpClass, aten_class, stablehlo_class
from flint.observed.columns import OpFacts, origin_of
from flint.workload.programs import Order, Program
from flint.workload.workload import Workload

#: The most ops of one rank in a comparison.
MAX_OPS = 20_000_000


@dataclass(frozen=True, eq=False)
class Expected:
    """The ops of one rank in issue order, without those that are not kernels.

    Attributes:
        facts: the facts that ``op`` indexes.
        op: per op, shape [ops].
        graph: per op, an index into ``graphs``.
        node: its node there.
        instance: which execution of that graph, counted over the whole step.
        graphs: the program's graph and its bodies.
        above: for each graph, the graph and node whose body it is; (-1, -1) for the program's.
        parent: for each instance, the instance that it ran in; -1 for the program's.
    """

    facts: tuple[OpFacts, ...]
    op: Ints
    graph: Ints
    node: Ints
    instance: Ints
    graphs: tuple[WorkloadGraph, ...]
    above: tuple[tuple[int, int], ...]
    parent: Ints

    def __len__(self) -> int:
        return len(self.op)

    @property
    def captured(self) -> list[OpFacts]:
        """The ops in order."""
        return [self.facts[number] for number in self.op.tolist()]

    def only(self, positions: list[int]) -> Expected:
        """The ops at these positions."""
        at = np.array(positions, dtype=np.int64)
        return replace(
            self, op=self.op[at], graph=self.graph[at], node=self.node[at],
            instance=self.instance[at],
        )  # fmt: skip


def expected_of(workload: Workload, rank: int) -> Expected:
    """The ops that ``rank`` runs.

    Raises:
        FlintError: there are too many to compare one by one.
    """
    program = program_of(workload, rank)
    unroller = _Unroller(rank, workload.order == Order.RECORDED, rooted=program.module is not None)
    op, graph, node, instance, parent = unroller.unrolled(program.graph, (-1, -1))
    return Expected(
        tuple(unroller.facts), op, graph, node, instance, tuple(unroller.graphs),
        tuple(unroller.above), parent,
    )  # fmt: skip


def program_of(workload: Workload, rank: int) -> Program:
    """The program that ``rank`` runs.

    Raises:
        FlintError: the capture has no such rank.
    """
    for program in workload.programs:
        if program.ranks.contains(np.array([rank]))[0]:
            return program
    raise FlintError(f"rank {rank} is not one of the capture's {workload.mesh.size}")


_Columns = tuple[Ints, Ints, Ints, Ints, Ints]


class _Unroller:
    def __init__(self, rank: int, recorded: bool, *, rooted: bool) -> None:
        self.rank = rank
        self.rooted = rooted  # what a profile was converted to assumes the lowest rank
        self.recorded = recorded
        self.facts: dict[OpFacts, int] = {}
        self.graphs: list[WorkloadGraph] = []
        self.above: list[tuple[int, int]] = []

    def unrolled(self, graph: WorkloadGraph, above: tuple[int, int]) -> _Columns:
        """op, graph, node, instance, and the parent of each instance."""
        number = len(self.graphs)
        self.graphs.append(graph)
        self.above.append(above)
        parts: list[tuple[Ints, Ints, Ints, Ints]] = []
        run: list[tuple[int, int]] = []
        parents = [np.full(1, -1, dtype=np.int64)]
        instances = 1

        def flush() -> None:
            if run:
                op, node = (np.array(column, dtype=np.int64) for column in zip(*run, strict=True))
                parts.append((op, np.full_like(op, number), node, np.zeros_like(op)))
                run.clear()

        for node in graph:
            body, times = _body(node)
            if body is not None:
                flush()
                op, inner, at, instance, within = self.unrolled(body, (number, node.index))
                if not len(op):
                    continue
                inside = len(within)
                if max(len(op), inside) * times > MAX_OPS:
                    raise FlintError(
                        f"one rank runs more than {MAX_OPS:,} ops: too many to compare"
                    )
                shift = np.repeat(np.arange(times, dtype=np.int64) * inside, len(op))
                parts.append(
                    (
                        np.tile(op, times), np.tile(inner, times), np.tile(at, times),
                        np.tile(instance, times) + shift + instances,
                    )
                )  # fmt: skip
                begins = np.arange(times, dtype=np.int64) * inside + instances
                shifted = begins[:, None] + within
                shifted[:, 0] = 0  # the body's own instance runs in this graph's
                parents.append(shifted.ravel())
                instances += inside * times
                continue
            for facts in self._messages(node) or (self._facts(node),):
                if facts.kind != OpClass.FREE:
                    run.append((self.facts.setdefault(facts, len(self.facts)), node.index))
        flush()
        empty = np.zeros(0, dtype=np.int64)
        columns = [np.concatenate([empty, *column]) for column in zip(*parts, strict=True)]
        parent = np.concatenate(parents)
        if not columns:
            return empty, empty, empty, empty, parent
        op, inner, at, instance = columns
        return op, inner, at, instance, parent

    def _messages(self, node: Node) -> list[OpFacts]:
        """The calls of a PyTorch rank for a permutation: a send, a receive, both or neither."""
        item = node.communication
        if not self.recorded or item is None or item.permutation is None:
            return []
        whole = self._facts(node)
        pairs = item.permutation
        found = [
            replace(whole, kind=kind, name=str(kind), group=None, peer=int(peer))
            for kind, peer in (
                (OpClass.SEND, pairs.target[self.rank]),
                (OpClass.RECV, pairs.source[self.rank]),
            )
            if peer >= 0
        ]
        return found or [OpFacts(OpClass.FREE, node.op)]

    def _facts(self, node: Node) -> OpFacts:
        source = node.source
        line = f"{source.file}:{source.line}" if source.file else ""
        item = node.communication
        operands = tuple((kind.shape, kind.dtype) for kind in node.operand_types)
        if item is not None:
            dtype = item.dtypes[0] if item.dtypes else ""
            return OpFacts(
                COMMUNICATIONS[item.kind], _name(item), operands, item.operand_bytes, dtype,
                self._group(item), None, line, origin_of(source), reduction=item.reduction or "",
                root=self._root(item),
            )  # fmt: skip
        recorded = self.recorded and "." in node.op
        if self.recorded and not recorded:  # glue between kernels: not a separate kernel
            return OpFacts(OpClass.FREE, node.op)
        kind = aten_class(node.op) if recorded else stablehlo_class(node.op, node.role)
        matmul = [item for item in node.work.items if item.unit == Unit.MATMUL]
        gemms = tuple(item.dims for item in matmul if item.dims is not None)
        dtype = matmul[0].dtype if matmul else (operands[0][1] if operands else "")
        dtype = "f32" if dtype == EXACT else dtype  # no run tells how it multiplied
        convolved: tuple[int, ...] = ()
        if kind == OpClass.CONVOLUTION and not recorded:
            made = sum(math.prod(one.shape) for one in node.result_types)
            convolved = made, sum(item.flops for item in matmul)
        return OpFacts(
            kind, node.op, operands, dtype=dtype, gemms=gemms or None, source=line,
            origin=origin_of(source), convolved=convolved,
        )  # fmt: skip

    def _root(self, item: Communication) -> int:
        """The position of a broadcast's sender, the first of its group, in ascending order."""
        if item.kind != "collective_broadcast" or item.groups is None or not self.rooted:
            return -1
        ranks = item.groups.members(self.rank).tolist()
        return sum(rank < ranks[0] for rank in ranks) if ranks else -1

    def _group(self, item: Communication) -> tuple[int, ...] | None:
        if item.groups is not None:
            return tuple(sorted(item.groups.members(self.rank).tolist()))
        if item.permutation is None:
            return None
        target = int(item.permutation.target[self.rank])
        return (target,) if target >= 0 else ()


def _name(item: Communication) -> str:
    """The kind, and for a reduce-scatter what the program has in its place."""
    return f"{item.kind} (written as {item.origin} + slice)" if item.origin else item.kind


def _body(node: Node) -> tuple[WorkloadGraph | None, int]:
    if node.kind == NodeKind.LOOP and node.loop is not None:
        return node.loop.body, node.loop.trip_count
    return None, 0
