"""Stacks that a loop fills twice with the same values, one of which XLA's compiler removes.

The idea: a scan that returns what it carries and keeps it for the backward pass, too, writes it
into two stacks.  Both begin with the same constant and get the same values in the same places, so
that one of them is enough (``WhileLoopSimplifier``):

    body (s, t):  s' = update s, x, i;  t' = update t, x, i        body (s):  s' = update s, x, i

Source: ``while_loop_simplifier.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Loop, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.columns import with_bodies
from flint.passes.dead_invariants import with_inputs
from flint.passes.fewer_carried import without_carried
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.simplify import equal_values


def without_repeated_stacks(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` whose loops fill no two stacks alike, in bodies too."""
    graph = with_bodies(graph, lambda body, _: without_repeated_stacks(body))
    nodes = np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
    if not nodes:
        return graph
    loops, dropped = list(graph.loops), []
    begins = _beginnings(graph)
    for node in nodes:
        number = int(graph.detail[node])
        first = int(graph.operand_ptr[node])
        starts = [begins[value] for value in graph.operand[first:][: loops[number].carried]]
        twice = _repeated(loops[number], starts)
        if twice:
            loops[number] = _without(loops[number], twice)
            result = graph.inputs + int(graph.result_ptr[node])
            dropped += [(node, again, result + kept) for again, kept in twice.items()]
    return without_carried(graph, loops, dropped) if dropped else graph


def _beginnings(graph: WorkloadGraph) -> list[tuple[int, ...]]:
    """What tells each value; of broadcasts, what is broadcast to which type, shape [values]."""
    equal = equal_values(graph).tolist()
    begins: list[tuple[int, ...]] = [(value,) for value in equal]
    spread = transparent_nodes(graph) & (graph.role == Role.MOVEMENT)
    for node in np.flatnonzero(spread).tolist():
        made = graph.inputs + int(graph.result_ptr[node])
        source = int(graph.operand[graph.operand_ptr[node]])
        kind = int(graph.result_type[graph.result_ptr[node]])
        begins[made] = (equal[source], int(graph.op[node]), kind)
    return begins


def _repeated(loop: Loop, starts: list[tuple[int, ...]]) -> dict[int, int]:
    """Carried values that are filled as an earlier one is, which also begins alike."""
    body, equal = loop.body, equal_values(loop.body).tolist()
    known: dict[tuple[object, ...], int] = {}
    found: dict[int, int] = {}
    for carried, value in enumerate(body.outputs[: loop.carried].tolist()):
        maker = int(body.producer[value])
        if maker < 0 or body.role[maker] != Role.UPDATE:
            continue
        buffer, *rest = body.operands_of(maker).tolist()
        if buffer == carried and np.count_nonzero(body.operand == carried) == 1:
            key = (int(body.op[maker]), starts[carried], *(equal[each] for each in rest))
            if known.setdefault(key, carried) != carried:
                found[carried] = known[key]
    return found


def _without(loop: Loop, twice: dict[int, int]) -> Loop:
    """A loop that does not carry the second stacks; what fills them is read by nothing."""
    body, gone = loop.body, list(twice)
    named = np.arange(body.values)
    named[gone] = list(twice.values())
    kept = np.ones(body.inputs, dtype=bool)
    kept[gone] = False
    body = replace(body, operand=named[body.operand], outputs=named[np.delete(body.outputs, gone)])
    return with_inputs(replace(loop, body=body, carried=loop.carried - len(gone)), kept)
