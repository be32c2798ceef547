"""Unrolling as an interpreter does it: node by node, iteration by iteration, in dicts and sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.unrolling import ABSENT, CHAINED


@dataclass
class Naive:
    lookahead: int | str | None
    presence: list[int] | None = None
    nodes: list[tuple[WorkloadGraph, int, int]] = field(default_factory=list)
    deps: list[set[tuple[int, int]]] = field(default_factory=list)

    def run(
        self, graph: WorkloadGraph, inputs: list[int | None], iteration: int = 0
    ) -> list[int | None]:
        """Instances (or None for the program's inputs) of the graph's outputs."""
        values: dict[int, int | None] = dict(enumerate(inputs))
        begin: dict[int, set[int]] = {}
        end: dict[int, set[int]] = {}
        for node in graph:
            operands = [values[v] for v in node.operands]
            low = len(self.nodes)
            if node.kind == NodeKind.LOOP:
                results = self.loop(graph, node.index, operands, iteration)
            else:
                self.nodes.append((graph, node.index, iteration))
                self.deps.append({(d, EdgeKind.DATA) for d in operands if d is not None})
                results = [low] * len(node.results)
            high = len(self.nodes)
            begin[node.index] = {i for i in range(low, high) if not self.inside(i, low, high)}
            end[node.index] = self.sinks(low, high)
            for edge in node.edges:
                if edge.kind != EdgeKind.DATA:
                    for i in begin[node.index]:
                        self.deps[i] |= {(d, edge.kind) for d in end[edge.producer]}
            if low == high:
                before = {d for d in operands if d is not None}
                for edge in node.edges:
                    if edge.kind != EdgeKind.DATA:
                        before |= end[edge.producer]
                end[node.index] = before
            values.update(zip(node.results, results, strict=True))
        return [values[int(v)] for v in graph.outputs]

    def loop(
        self, graph: WorkloadGraph, node: int, operands: list[int | None], iteration: int
    ) -> list[int | None]:
        loop = graph[node].loop
        assert loop is not None
        ahead = loop.lookahead if self.lookahead == "own" else self.lookahead
        state = list(operands)
        spans = []
        for k in range(loop.trip_count):
            low = len(self.nodes)
            inner = iteration * loop.trip_count + k
            state[: loop.carried] = self.run(loop.body, list(state), inner)
            spans.append((low, len(self.nodes)))
            if ahead is not None and k - ahead - 1 >= 0:
                finished = self.sinks(*spans[k - ahead - 1])
                for i in self.openers(*spans[k]):
                    self.deps[i] |= {(d, EdgeKind.STREAM) for d in finished}
        return state[: loop.carried]

    def inside(self, i: int, low: int, high: int) -> bool:
        return any(low <= d < high for d, _ in self.deps[i])

    def sinks(self, low: int, high: int) -> set[int]:
        awaited = {d for i in range(low, high) for d, _ in self.deps[i]}
        return set(range(low, high)) - awaited

    def openers(self, low: int, high: int) -> list[int]:
        found = []
        for i in range(low, high):
            graph, node, _ = self.nodes[i]
            if graph.kind[node] != NodeKind.COMMUNICATION:
                continue
            presence = self.presence[int(graph.detail[node])] if self.presence else CHAINED
            if presence != ABSENT:
                found.append(i)
            if presence == CHAINED:
                break
        return found
