"""Scores that a loop stores for its backward pass, as fused kernels would not.

The idea: a differentiated scan keeps what its backward pass needs in buffers with a row per
iteration; if attention is written out, its scores are among them.  In a program with unrolled
layers nothing is stored: the backward kernel recomputes the forward kernel's scores.  Both are the
same model, so rows of scores are dropped in the same way.

    for i: rows[i] = exp(q k^T) ...             attention, and no rows
    for j: p = rows[n - j]; p^T do, ...         attention_backward, with q k^T once more

Rows are dropped if the loop that stores them does nothing else with the buffer, if only loops with
the same number of iterations read it, slice by slice, and if attention is found on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import Ints, Loop, NodeKind, Tables, WorkloadGraph
from flint.graph.joins import behind, narrowed, renames
from flint.passes.attention.kernels import contracted
from flint.passes.attention.scores import (
    LIGHT,
    NO_ROWS,
    Again,
    Rows,
    ScoreFinder,
    Scores,
    known_inside,
    known_values,
)
from flint.passes.attention.split import pieces_in_kernels
from flint.passes.dead_invariants import with_inputs
from flint.passes.fewer_carried import without_carried
from flint.passes.order_edges import without_nodes


@dataclass(frozen=True, eq=False, slots=True)
class _Stack:
    """A buffer of a row per iteration.

    Attributes:
        writer, carried: the loop that fills it, and its number among the loop's carried values.
        store, value: the update in the body, and the body's value that it stores.
        readers: loops that read it -> the slices in their bodies.
    """

    writer: int
    carried: int
    store: int
    value: int
    readers: Mapping[int, tuple[int, ...]]


def without_saved_scores(
    graph: WorkloadGraph, known: NDArray[np.int8], tables: Tables
) -> tuple[WorkloadGraph, dict[int, Rows]]:
    """``graph`` whose loops store no scores, and the slices of scores in each loop that had them.

    Args:
        graph: a block.
        known: what is known about its values.
        tables: tables of the new graph, with the kernels' names.
    """
    stacks = _stacks(graph)
    while stacks:
        again: dict[_Stack, Again] = {}
        for writer in dict.fromkeys(stack.writer for stack in stacks):
            mine = [stack for stack in stacks if stack.writer == writer]
            again |= _stored_scores(graph, known, tables, mine)
        rows = _rows(again)
        for reader, slices in rows.items():
            body = graph.loop_of(reader).body
            found = _found(body, known_inside(graph, reader, known), tables, slices)
            taken = {row for _, piece in found for row in piece.rows}
            again = {
                stack: item
                for stack, item in again.items()
                if taken.issuperset(stack.readers.get(reader, ()))
            }
        if len(again) == len(stacks):
            return _without_stacks(graph, stacks), rows
        stacks = list(again)
    return graph, {}


def _rows(again: Mapping[_Stack, Again]) -> dict[int, Rows]:
    rows: dict[int, dict[int, Again]] = {}
    for stack, item in again.items():
        for reader, slices in stack.readers.items():
            rows.setdefault(reader, {}).update(dict.fromkeys(slices, item))
    return dict(rows)


def _found(
    body: WorkloadGraph, given: NDArray[np.int8], tables: Tables, rows: Rows
) -> list[tuple[ScoreFinder, Scores]]:
    """The attention of a body, if all of it can be kernels."""
    block = ScoreFinder(body, known_values(body, given), rows)
    pieces = pieces_in_kernels(block)
    try:
        if pieces:
            contracted(block, pieces, tables)
    except FlintError:
        return []
    return [(block, piece) for piece in pieces]


def _stored_scores(
    graph: WorkloadGraph, known: NDArray[np.int8], tables: Tables, stacks: list[_Stack]
) -> dict[_Stack, Again]:
    """Which stacks of one loop hold attention scores, and what makes them."""
    node = stacks[0].writer
    body = graph.loop_of(node).body
    gone = _only_stored(body, stacks)
    kept = np.delete(np.arange(len(body)), sorted(gone))
    found = _found(_stripped(body, stacks, gone), known_inside(graph, node, known), tables, NO_ROWS)
    again: dict[_Stack, Again] = {}
    for stack in stacks:
        maker = _maker(body, stack.value, gone)
        place = int(np.searchsorted(kept, maker))
        elements = body.type_of(stack.value).elements
        for block, piece in found:
            if maker >= 0 and place in piece.members and elements == piece.elements:
                again[stack] = block.again(piece, place, piece.members[place] + 1)
    return again


def _maker(body: WorkloadGraph, value: int, gone: set[int]) -> int:
    """The node that a stored value comes from, looking through nodes that only serve to store
    it.
    """
    elements = body.type_of(value).elements
    node = int(body.producer[value])
    while node in gone:
        operands = body.operands_of(node).tolist()
        node = next(
            (int(body.producer[v]) for v in operands if body.type_of(v).elements == elements), -1
        )
    return node


def _only_stored(body: WorkloadGraph, stacks: Iterable[_Stack]) -> set[int]:
    """The updates of stacks, the nodes that rename them, and the nodes that only these need."""
    gone = {stack.store for stack in stacks}
    alone = np.diff(body.result_ptr) == 1
    gone |= {node for node in body.producer[_names(body, gone)].tolist() if alone[node]}
    readers = np.bincount(body.operand, minlength=body.values)
    readers[body.outputs] += 1
    ordered = set(body.order_node.tolist())
    lost: set[int] = set()
    for node in range(len(body) - 1, -1, -1):
        results = range(*(body.result_ptr[node : node + 2] + body.inputs).tolist())
        if node not in gone:
            light = body.kind[node] == NodeKind.COMPUTE and body.role[node] in LIGHT
            if not light or node in ordered or lost.isdisjoint(results) or readers[results].any():
                continue
            gone.add(node)
        operands = body.operands_of(node)
        np.subtract.at(readers, operands, 1)
        lost.update(operands.tolist())
    return gone


def _stripped(body: WorkloadGraph, stacks: Iterable[_Stack], gone: set[int]) -> WorkloadGraph:
    """A body that passes on the buffers of stacks unchanged."""
    outputs, unread = body.outputs.copy(), np.zeros(body.values, dtype=bool)
    for stack in stacks:
        outputs[stack.carried] = stack.carried
    unread[_names(body, gone)] = True
    return without_nodes(narrowed(replace(body, outputs=outputs), unread), gone)


def _names(body: WorkloadGraph, nodes: set[int]) -> Ints:
    """The values that rename results of some nodes."""
    made = np.isin(body.producer, sorted(nodes))
    named = behind(body, renames(body))
    return np.flatnonzero(made[named] & (named != np.arange(body.values)))


def _without_stacks(graph: WorkloadGraph, stacks: list[_Stack]) -> WorkloadGraph:
    """``graph`` whose loops do not carry stacks; their readers read the stacks' initial values."""
    loops = list(graph.loops)
    dropped: list[tuple[int, int, int]] = []
    for writer in dict.fromkeys(stack.writer for stack in stacks):
        mine = [stack for stack in stacks if stack.writer == writer]
        carried = [stack.carried for stack in mine]
        loop = loops[int(graph.detail[writer])]
        body = _stripped(loop.body, mine, _only_stored(loop.body, mine))
        kept = np.ones(body.inputs, dtype=bool)
        kept[carried] = False
        body = replace(body, outputs=np.delete(body.outputs, carried))
        fewer = replace(loop, body=body, carried=loop.carried - len(carried))
        loops[int(graph.detail[writer])] = with_inputs(fewer, kept)
        first = int(graph.operand_ptr[writer])
        dropped += [(writer, k, int(graph.operand[first + k])) for k in carried]
    return without_carried(graph, loops, dropped)


def _stacks(graph: WorkloadGraph) -> list[_Stack]:
    """The buffers that a loop of a block fills and others read, row by row."""
    nodes = np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
    if len({int(graph.detail[node]) for node in nodes}) < max(len(nodes), 2):
        return []
    read = _readers(graph)
    found = []
    for node in nodes:
        loop = graph.loop_of(node)
        for carried, store, value in _stores(loop):
            result = graph.inputs + int(graph.result_ptr[node]) + carried
            elements = loop.body.type_of(value).elements
            readers: dict[int, tuple[int, ...]] | None = {}
            for reader, index in read.get(result, ()):
                slices = _slices(graph, reader, index, loop.trip_count, elements)
                readers = None if readers is None or not slices else {**readers, reader: slices}
            if readers:
                found.append(_Stack(node, carried, store, value, readers))
    return found


def _readers(graph: WorkloadGraph) -> dict[int, list[tuple[int, int]]]:
    """The readers of each value, under any name, as (node, number of the operand).

    The end of the block counts as a node.
    """
    naming = renames(graph)
    named = behind(graph, naming)
    found: dict[int, list[tuple[int, int]]] = {}
    index = np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    reads = ~naming[graph.consumer]
    for value, node, place in zip(
        named[graph.operand[reads]].tolist(),
        graph.consumer[reads].tolist(),
        index[reads].tolist(),
        strict=True,
    ):
        found.setdefault(value, []).append((node, place))
    for place, value in enumerate(named[graph.outputs].tolist()):
        found.setdefault(value, []).append((len(graph), place))
    return found


def _stores(loop: Loop) -> list[tuple[int, int, int]]:
    """What a loop carries only to write a row into it: (number, update, the value it stores)."""
    body = loop.body
    named = behind(body, renames(body))
    read = _readers(body)
    found = []
    for carried, output in enumerate(named[body.outputs[: loop.carried]].tolist()):
        node = int(body.producer[output])
        if node < 0 or body.tables.ops[int(body.op[node])] != "dynamic_update_slice":
            continue
        buffer, value = named[body.operand[body.operand_ptr[node] :][:2]].tolist()
        alone = read.get(carried) == [(node, 0)] and read.get(output) == [(len(body), carried)]
        if buffer == carried and alone and body.kind[node] == NodeKind.COMPUTE:
            found.append((carried, node, value))
    return found


def _slices(
    graph: WorkloadGraph, node: int, index: int, trip_count: int, elements: int
) -> tuple[int, ...]:
    """The slices of that size, if a loop does nothing else with an operand; else none."""
    if node == len(graph) or graph.kind[node] != NodeKind.LOOP:
        return ()
    loop = graph.loop_of(node)
    if index < loop.carried or loop.trip_count != trip_count:
        return ()
    body = loop.body
    found = []
    for reader, place in _readers(body).get(index, ()):
        if reader == len(body) or body.tables.ops[int(body.op[reader])] != "dynamic_slice":
            return ()
        made = int(body.result_ptr[reader]) + body.inputs
        if place or body.type_of(made).elements != elements:
            return ()
        found.append(reader)
    return tuple(found)
