"""Gathering ahead: in loops, weights are gathered k iterations in advance.

The idea is software pipelining.  N iterations of a loop with weight gathers become:

    k times the gathers, before the loop # for iterations 0 .. k-1
    a loop of N - k iterations that gather for k iterations later, and use carried weights
    a loop of k iterations that gather nothing

Within an iteration a gather keeps its position, so that other communication does not wait for all
gathers.

Gathered weights are carried from iteration to iteration, k of each; this is the cost.  Every gather
and the nodes that only it needs run as often as before.  Nodes that also serve others (arithmetic
on the counter) stay where they are; the gather then uses their inputs.  The most that can be
expressed is N - 1 iterations ahead.

    graph = gathered_ahead(graph, by=1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, NodeKind, WorkloadGraph, with_tables
from flint.passes.columns import lists
from flint.passes.copying import Edges, copy_node, order_of, rebuilt
from flint.passes.what_if.gathers import weight_gathers


def gathered_ahead(graph: WorkloadGraph, *, by: int) -> WorkloadGraph:
    """``graph`` in which loops gather weights ahead.

    Args:
        graph: at any granularity; loops within its bodies stay as they are.
        by: iterations.
    """
    plans = {}
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = graph.loop_of(node)
        moved = _moved(loop) if loop.trip_count > 1 else set()
        if moved:
            plans[node] = _Pipeline(loop, moved, min(by, loop.trip_count - 1))
    return _rebuilt(graph, plans) if plans else graph


def _moved(loop: Loop) -> set[int]:
    """Weight gathers of a body and the nodes that only they need."""
    body = loop.body
    found = weight_gathers(body, loop.carried)
    moved = set(found).union(*found.values())
    operands = lists(body.operand_ptr, body.operand)
    needed = set(body.producer[body.outputs].tolist())
    # A gather whose result is yielded moves anyway; its operands do not.
    for node in range(len(body) - 1, -1, -1):
        if node in moved and node not in found and node in needed:
            moved.discard(node)
        if node not in moved:
            needed.update(int(body.producer[value]) for value in operands[node])
    return moved


@dataclass(frozen=True, eq=False, slots=True)
class _Pipeline:
    """How a loop gathers ahead: the nodes ``moved``, by ``by`` iterations."""

    loop: Loop
    moved: set[int]
    by: int

    def given(self) -> list[int]:
        """Values that moved nodes make for others."""
        body = self.loop.body
        outside = [
            value
            for value, user in zip(body.operand.tolist(), body.consumer.tolist(), strict=True)
            if user not in self.moved
        ]
        used = {*outside, *body.outputs.tolist()}
        return sorted(value for value in used if int(body.producer[value]) in self.moved)

    def gather(
        self, builder: GraphBuilder, value: Mapping[int, int], order: Edges
    ) -> dict[int, int]:
        """Copy the moved nodes; returns what their values are in ``builder``.

        Args:
            builder: takes the copies.
            value: the body's inputs.
            order: edges to nodes that come before all of them.
        """
        made = dict(value)
        place: dict[int, int] = {}
        for node in sorted(self.moved):
            self._gather_one(builder, node, order, place, made)
        return made

    def _gather_one(
        self,
        builder: GraphBuilder,
        node: int,
        order: Edges,
        place: dict[int, int],
        made: dict[int, int],
    ) -> None:
        body = self.loop.body
        edges = order + [(place[n], kind) for n, kind in order_of(body, node) if n in place]
        place[node] = len(builder)
        taken = [root for v in _operands(body, node) for root in self._roots(v)]
        copy_node(builder, body, node, [made[v] for v in taken], edges, made)

    def _roots(self, value: int) -> list[int]:
        """``value``, or the inputs that it is made from if its maker does not move."""
        producer = self.loop.body.producer
        left, seen = [value], {value}
        found = []
        while left:
            current = left.pop()
            maker = int(producer[current])
            if maker < 0 or maker in self.moved:
                found.append(current)
                continue
            left += [v for v in _operands(self.loop.body, maker) if v not in seen]
            seen.update(_operands(self.loop.body, maker))
        return found

    def body(self, tables: TableBuilder, gathers: bool) -> WorkloadGraph:
        """One iteration that gathers for a later one, or one that does not gather."""
        body, given = self.loop.body, self.given()
        builder = GraphBuilder(tables)
        types: list[int] = body.input_type.tolist()
        made = {i: builder.input(types[i]) for i in range(self.loop.carried)}
        slots = [[builder.input(int(body.value_type[v])) for v in given] for _ in range(self.by)]
        for i in range(self.loop.carried, body.inputs):
            made[i] = builder.input(types[i])
        # Weights gathered now are for later; those of this iteration were carried here.
        later = dict(zip(given, slots[-1], strict=True))
        ahead = dict(made)
        made.update(zip(given, slots[0], strict=True))
        place: dict[int, int] = {}
        place_ahead: dict[int, int] = {}
        for node in range(len(body)):
            if node not in self.moved:
                edges = [(place[n], kind) for n, kind in order_of(body, node) if n in place]
                place[node] = len(builder)
                taken = [made[v] for v in _operands(body, node)]
                copy_node(builder, body, node, taken, edges, made)
            elif gathers:
                self._gather_one(builder, node, [], place_ahead, ahead)
        if gathers:
            later = {v: ahead[v] for v in given}
        kept = [value for slot in slots[1:] for value in slot] + [later[v] for v in given]
        return builder.finish([*(made[int(v)] for v in body.outputs), *kept], body.tables)


def _operands(graph: WorkloadGraph, node: int) -> list[int]:
    found: list[int] = graph.operands_of(node).tolist()
    return found


def _rebuilt(graph: WorkloadGraph, plans: dict[int, _Pipeline]) -> WorkloadGraph:
    new = rebuilt(
        graph,
        TableBuilder(graph.tables),
        plans,
        lambda builder, node, values, order: _loops(
            builder, plans[node], values, order, int(graph.source[node])
        ),
    )
    return with_tables(new, graph.tables)


def _loops(
    builder: GraphBuilder,
    plan: _Pipeline,
    operands: list[int],
    order: Edges,
    source: int,
) -> list[int]:
    """The gathers before a loop and its two parts; returns the carried values at the end."""
    loop, given = plan.loop, plan.given()
    values = operands[: loop.carried]
    for _ in range(plan.by):
        gathered = plan.gather(builder, dict(enumerate(operands)), order)
        values = values + [gathered[v] for v in given]
    for gathers, trips in ((True, loop.trip_count - plan.by), (False, plan.by)):
        part = replace(
            loop,
            body=plan.body(builder.tables, gathers),
            carried=len(values),
            trip_count=trips,
        )
        values = list(builder.loop(part, [*values, *operands[loop.carried :]], source, order))
    return values[: loop.carried]
