"""Resolve conditionals that the rank decides: one program per distinct behaviour.

The idea: a predicate over rank and loop counters gives the branch for every rank and iteration.
Ranks with the same answers everywhere share a program, in which each conditional is replaced by its
branch.  If the answer changes with an iteration, the loop is cut into runs of iterations with equal
answers: a pipeline's warm-up, steady state and drain become three loops in a row.

    rank 0:  [i < 3: idle] x 3, [work] x 13        rank 1:  [idle] x 1, [work] x 13, [idle] x 2
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Conditional, Loop, NodeKind, WorkloadGraph, with_tables
from flint.graph.scalars import Place, Scalar, evaluate, largest_parts, levels, place_of
from flint.graph.work import Role
from flint.mesh.ranks import RankSet, all_ranks, from_mask
from flint.passes.copying import Edges, copy_node

#: More programs than this mean that ranks differ by data-like predicates, not by role.
MAX_PROGRAMS = 4096
#: The most ranks x iterations that are evaluated at once.
_CHUNK = 2**24


@dataclass(frozen=True, slots=True)
class Split:
    """One program of a split: a graph without conditionals, and the ranks that run it."""

    graph: WorkloadGraph
    ranks: RankSet


def split_by_rank(
    graph: WorkloadGraph, partitions: int, replicas: int = 1, copies: int = 1
) -> list[Split]:
    """The programs that the ranks really run, conditionals resolved.

    Args:
        graph: may have conditionals with predicates, at any depth.
        partitions, replicas, copies: the module's, as in ``place_of``.

    Raises:
        FlintError: more than ``MAX_PROGRAMS`` distinct programs.
    """
    world = partitions * replicas * copies
    found = list(_conditionals(graph, ()))
    if not found:
        return [Split(graph, all_ranks(world))]
    ranks = np.arange(world, dtype=np.int64)
    behaviour = np.zeros(world, dtype=np.int64)
    ids = (partitions, replicas)
    for conditional, trips in found:
        behaviour = _merged(behaviour, _outcomes(conditional, trips, ranks, ids))
    classes, first = np.unique(behaviour, return_index=True)
    if len(classes) > MAX_PROGRAMS:
        raise FlintError(
            f"conditionals give {len(classes)} different programs over {world} ranks; "
            f"at most {MAX_PROGRAMS} are handled"
        )
    splits = []
    for number, representative in zip(classes.tolist(), first.tolist(), strict=True):
        place = place_of(representative, *ids)
        tables = TableBuilder(graph.tables)
        resolved = _Resolver(tables, place).graph(graph, 0)
        splits.append(Split(with_tables(resolved, tables.finish()), from_mask(behaviour == number)))
    return splits


def _conditionals(
    graph: WorkloadGraph, trips: tuple[int, ...]
) -> Iterator[tuple[Conditional, tuple[int, ...]]]:
    """Conditionals below ``graph`` with the trip counts of the loops around them."""
    for conditional in graph.conditionals:
        yield conditional, trips
        for branch in conditional.branches:
            yield from _conditionals(branch, trips)
    for loop in graph.loops:
        yield from _conditionals(loop.body, (*trips, loop.trip_count))


def _merged(codes: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Small numbers that are equal where both ``codes`` and ``others`` are."""
    _, first = np.unique(codes, return_inverse=True)
    values, second = np.unique(others, return_inverse=True)
    both: NDArray[np.int64] = first.reshape(-1) * len(values) + second.reshape(-1)
    merged: NDArray[np.int64] = np.unique(both, return_inverse=True)[1].reshape(-1)
    return merged


def _outcomes(
    conditional: Conditional,
    trips: tuple[int, ...],
    ranks: NDArray[np.int64],
    ids: tuple[int, int],
) -> NDArray[np.int64]:
    """A number per rank that is equal for ranks with equal branches in all iterations.

    Ranks with equal values for all parts of the predicate that do not depend on iterations are
    evaluated only once: for example, all ranks of a stage.
    """
    predicate = conditional.predicate
    used = sorted(levels(predicate))
    shape = [trips[level] for level in used]
    steps = math.prod(shape)
    if steps > _CHUNK:
        raise FlintError(
            f"a conditional whose branch depends on the rank runs {steps} times: too many to "
            "evaluate"
        )
    alike = np.zeros(len(ranks), dtype=np.int64)
    everywhere = place_of(ranks, *ids)
    for part in largest_parts(predicate, lambda levels_: not levels_):
        if part.op != "constant":
            alike = _merged(alike, np.broadcast_to(evaluate(part, everywhere), ranks.shape))
    _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
    numbers = np.zeros(len(first), dtype=np.int64)
    seen: dict[bytes, int] = {}
    per_chunk = max(1, _CHUNK // max(steps, 1))
    for start in range(0, len(first), per_chunk):
        some = ranks[first[start : start + per_chunk]]
        taken = _branches(predicate, used, shape, some, ids)
        codes = [seen.setdefault(row.tobytes(), len(seen)) for row in taken]
        numbers[start : start + per_chunk] = codes
    return numbers[inverse.reshape(-1)]


def _branches(
    predicate: Scalar,
    used: list[int],
    shape: list[int],
    ranks: NDArray[np.int64],
    ids: tuple[int, int],
) -> NDArray[np.int64]:
    """Branch by rank and iteration of the loops in ``used``, shape [ranks, iterations]."""
    steps = int(np.prod(shape)) if shape else 1
    grid = np.indices(shape, dtype=np.int64).reshape(len(shape), steps)
    iterations = {level: grid[i][None, :] for i, level in enumerate(used)}
    place = place_of(ranks[:, None], *ids, iterations)
    value = np.asarray(evaluate(predicate, place)).astype(np.int64)
    return np.ascontiguousarray(np.broadcast_to(value, (len(ranks), steps)))


class _Resolver:
    """Copies a graph for one representative rank, conditionals replaced by their branches."""

    def __init__(self, tables: TableBuilder, place: Place) -> None:
        self.tables = tables
        self.place = place

    def graph(self, graph: WorkloadGraph, level: int) -> WorkloadGraph:
        builder = GraphBuilder(self.tables)
        inputs = [builder.input(int(item)) for item in graph.input_type]
        values = self.into(builder, graph, inputs, level, [])
        return builder.finish([values[int(value)] for value in graph.outputs])

    def into(
        self,
        builder: GraphBuilder,
        graph: WorkloadGraph,
        inputs: list[int],
        level: int,
        gate: Edges,
    ) -> dict[int, int]:
        """Copy the nodes of ``graph`` into ``builder``; returns old value -> new number.

        Everything that is copied waits for ``gate``.
        """
        values = dict(enumerate(inputs))
        # What replaces a node: its copy, what a branch or loop became, or what it waited for.
        made: dict[int, list[int]] = {}
        for node in graph:
            operands = [values[value] for value in node.operands]
            first = len(builder)
            edges = node.edges[len(operands) :]
            order = [(new, edge.kind) for edge in edges for new in made[edge.producer]]
            if gate and not order and all(value < graph.inputs for value in node.operands):
                order = gate
            loop, conditional = node.loop, node.conditional
            if conditional is not None:
                results = self._branch(builder, conditional, operands, level, order)
                values.update(zip(node.results, results, strict=True))
            elif loop is not None:
                source = int(graph.source[node.index])
                results = self._loop(builder, loop, operands, level, source, order)
                values.update(zip(node.results, results, strict=True))
            else:
                copy_node(builder, graph, node.index, operands, order, values)
            made[node.index] = list(range(first, len(builder))) or [
                *(builder.producer_of(number) for number in operands if number >= 0),
                *(new for new, _ in order),
            ]
        return values

    def _branch(
        self,
        builder: GraphBuilder,
        conditional: Conditional,
        operands: list[int],
        level: int,
        order: Edges,
    ) -> list[int]:
        taken = int(np.asarray(evaluate(conditional.predicate, self.place)))
        branch = conditional.branches[taken]
        inside = self.into(builder, branch, operands, level, order)
        results = []
        for value in branch.outputs.tolist():
            number = inside[value]
            if order and value < branch.inputs:
                # Passed through unchanged, but not available before the conditional is reached.
                kind, op = int(branch.input_type[value]), self.tables.op("case")
                (number,) = builder.node(
                    NodeKind.COMPUTE, op, [number], [kind], role=Role.ALIAS, order=order
                )
            results.append(number)
        return results

    def _loop(
        self,
        builder: GraphBuilder,
        loop: Loop,
        operands: list[int],
        level: int,
        source: int,
        order: Edges,
    ) -> list[int]:
        carried, fixed = operands[: loop.carried], operands[loop.carried :]
        for start, stop in self._runs(loop, level):
            outer = self.place
            self.place = replace(outer, iterations={**outer.iterations, level: start})
            body = self.graph(loop.body, level + 1)
            self.place = outer
            run = replace(loop, body=body, trip_count=stop - start)
            carried = list(builder.loop(run, [*carried, *fixed], source=source, order=order))
        return carried

    def _runs(self, loop: Loop, level: int) -> list[tuple[int, int]]:
        """Maximal runs of iterations in which every conditional of the body takes the same
        branch.
        """
        if not loop.trip_count:
            return [(0, 0)]
        answers = []
        for conditional, inner in _conditionals(loop.body, ()):
            predicate = conditional.predicate
            if level not in levels(predicate):
                continue
            deeper = sorted(item for item in levels(predicate) if item > level)
            shape = [loop.trip_count, *(inner[item - level - 1] for item in deeper)]
            grid = np.indices(shape, dtype=np.int64).reshape(len(shape), -1)
            iterations = dict(self.place.iterations)
            iterations |= {item: grid[i] for i, item in enumerate([level, *deeper])}
            place = replace(self.place, iterations=iterations)
            value = np.broadcast_to(np.asarray(evaluate(predicate, place)), grid.shape[1:])
            answers.append(value.reshape(loop.trip_count, -1).astype(np.int64))
        if not answers:
            return [(0, loop.trip_count)]
        rows = np.concatenate(answers, axis=1)
        changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1
        edges = [0, *changes.tolist(), loop.trip_count]
        return list(pairwise(edges))
