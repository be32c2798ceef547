"""Inserting copies of buffers that are overwritten but still needed.

The idea: an update, and a loop that updates a carried value, write into their operand's buffer. If
that buffer is needed afterwards, XLA's copy insertion puts a copy before it, once, and later writes
are in place.  A buffer is still needed if it is

- an input of the program that is not donated, or an invariant of the enclosing loop;
- for a loop also: a constant, an output, or read again, after the loop or in addition to what it
  carries.

    cache = input (not donated);  loop(cache)      becomes      loop(copy(cache))

Values made from nothing or by a broadcast (zeros that two loops fill) are made again instead.

Straight-line updates of values that are read again are left to ``flint.passes.update_aliasing``,
which knows the order in which the granularity leaves them.  Modules that a backend has optimised
already have their copies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.graph.building import TableBuilder
from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph, with_tables
from flint.graph.work import Role
from flint.passes.buffers import buffer_of, constants, overwritten, readers_of
from flint.passes.columns import with_bodies
from flint.passes.permute import permuted
from flint.passes.rematerialize import made_again

COPY = "copy"


def with_copies(graph: WorkloadGraph, kept: Collection[int]) -> WorkloadGraph:
    """``graph`` in issue order, in which nodes that overwrite a buffer still needed use a copy of
    it.

    Args:
        graph: a program, one node per op.
        kept: inputs that are not donated.

    Returns:
        The graph itself if nothing is to be copied. A copy reads and writes the whole value, has
        its user's origin and stands for no op.
    """
    tables = TableBuilder(graph.tables)
    copied = _with_copies(graph, kept, tables.op(COPY))
    return graph if copied is graph else with_tables(copied, tables.finish())


def _with_copies(graph: WorkloadGraph, kept: Collection[int], copy: int) -> WorkloadGraph:
    def inside(body: WorkloadGraph, loop: Loop | None) -> WorkloadGraph:
        fixed = range(loop.carried, body.inputs) if loop else ()
        return _with_copies(body, fixed, copy)

    inner = with_bodies(graph, inside)
    changed = [new.body is not old.body for new, old in zip(inner.loops, graph.loops, strict=True)]
    graph = inner if any(changed) else graph
    found = _to_copy(graph, kept)
    return _inserted(graph, found, copy) if found else graph


def _to_copy(graph: WorkloadGraph, kept: Collection[int]) -> list[int]:
    """Operand entries whose buffer is overwritten and still needed, in the order of their nodes."""
    updates = (graph.role == Role.UPDATE) & (graph.kind == NodeKind.COMPUTE)
    found = []
    for node in np.flatnonzero(updates & (graph.bytes_aliased > 0)).tolist():
        entries = overwritten(graph, node)
        found += [(entry, node) for entry in range(entries.start, entries.stop)]
    loops = [
        (int(graph.operand_ptr[node]) + carried, node)
        for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
        for carried in updated_in_place(graph.loop_of(node))
    ]
    if not found and not loops:
        return []
    buffer = buffer_of(graph)
    lives = [entry for entry, _ in found if int(buffer[graph.operand[entry]]) in kept]
    if not loops:
        return lives
    values = {entry: int(buffer[graph.operand[entry]]) for entry, _ in loops}
    read = readers_of(graph, buffer[graph.operand], values.values())
    always = {*kept, *constants(graph), *buffer[graph.outputs].tolist()}
    taken: set[tuple[int, int]] = set()
    for entry, node in reversed(loops):
        value = values[entry]
        own = [other for other, user in loops if user == node and values[other] == value]
        beside = read[value].count(node) > len(own)
        # If several carried values begin as the same value, the last takes its buffer.
        if value in always or max(read[value]) > node or beside or (node, value) in taken:
            lives.append(entry)
        taken.add((node, value))
    return sorted(lives)


def updated_in_place(loop: Loop) -> list[int]:
    """Carried values whose buffer each iteration updates and passes on."""
    body = loop.body
    inside = {
        node: updated_in_place(body.loop_of(node))
        for node in np.flatnonzero(body.kind == NodeKind.LOOP).tolist()
    }
    updates = (body.role == Role.UPDATE) & (body.bytes_aliased > 0)
    if not updates.any() and not any(inside.values()):
        return []
    root, updated = buffer_of(body), np.zeros(body.values, dtype=bool)
    views = np.flatnonzero(root != np.arange(body.values))
    nodes = {*np.flatnonzero(updates).tolist(), *inside, *body.producer[views].tolist()} - {-1}
    for node in sorted(nodes):
        first, last = (body.result_ptr[node : node + 2] + body.inputs).tolist()
        start = int(body.operand_ptr[node])
        places: Sequence[int] = inside.get(node, range(last - first))
        for place in places:
            source = int(body.operand[start + place])
            root[first + place] = root[source]
            updated[first + place] = updated[source] or bool(updates[node]) or node in inside
    outputs = body.outputs[: loop.carried]
    own = (root[outputs] == np.arange(len(outputs))) & updated[outputs]
    return np.flatnonzero(own).tolist()


def _inserted(graph: WorkloadGraph, entries: list[int], copy: int) -> WorkloadGraph:
    """``graph`` with a copy before the node of each given operand entry."""
    count, nodes = len(entries), len(graph)
    value, user = graph.operand[entries], graph.consumer[entries]
    maker = graph.producer[value]
    again = (maker >= 0) & (made_again(graph) & (graph.bytes_written > 0))[maker]
    source, sources = np.where(again, graph.operand[_first(graph, maker)], value), ~again
    sources |= np.diff(graph.operand_ptr)[maker] > 0
    size = graph.value_bytes[value]
    operand = graph.operand.copy()
    operand[entries] = graph.values + np.arange(count)

    def more(name: str, values: Ints | int, same: bool = False) -> Any:
        column: NDArray[Any] = getattr(graph, name)
        added = np.where(again, column[maker], values) if same else np.broadcast_to(values, count)
        return np.concatenate([column, added]).astype(column.dtype)

    def longer(pointer: Ints, each: Ints | int) -> Ints:
        return np.concatenate([pointer, pointer[-1] + np.cumsum(np.broadcast_to(each, count))])

    appended = replace(
        graph,
        kind=more("kind", NodeKind.COMPUTE),
        role=more("role", Role.MOVEMENT, same=True),
        op=more("op", copy, same=True),
        detail=more("detail", -1),
        source=more("source", graph.source[user]),
        ops_merged=more("ops_merged", 0),
        bytes_read=more("bytes_read", size, same=True),
        bytes_written=more("bytes_written", size, same=True),
        bytes_aliased=more("bytes_aliased", 0),
        result_ptr=longer(graph.result_ptr, 1),
        result_type=more("result_type", graph.value_type[value]),
        operand_ptr=longer(graph.operand_ptr, sources.astype(np.int64)),
        operand=np.concatenate([operand, source[sources]]),
        order_ptr=longer(graph.order_ptr, 0),
        work_ptr=longer(graph.work_ptr, 0),
    )
    # Directly before its user.
    place = np.concatenate([2 * np.arange(nodes) + 1, 2 * user])
    return permuted(appended, np.argsort(place, kind="stable").astype(np.int64))


def _first(graph: WorkloadGraph, nodes: Ints) -> Ints:
    """The first operand entry of each node; any entry for those that have none."""
    return np.minimum(graph.operand_ptr[nodes], len(graph.operand) - 1)
