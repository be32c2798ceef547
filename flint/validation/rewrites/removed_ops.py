"""Captured ops that a compiler need not run: on constants, with a number, or run once for several.

The idea: it cannot be known which of several ops that look alike has no partner, but it can be
checked that as many of them are repetitions.  An op explained in this way ran as another op, or not
at all, and is not a match.

    constants(matching)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable

from flint.graph.graph import WorkloadGraph
from flint.validation.expected.duplicates import origin, repeated
from flint.validation.expected.loop_invariants import Invariants
from flint.validation.matching.pairing import Matching, Pair

DUPLICATE = "the same op on the same values as another one, which the compiler runs once"
HOISTED = "the same op on the same values in all iterations of a loop, run once before it"
CONSTANT = "a collective on a constant, whose result the compiler knows"
SCALED = "a matrix product with a single number, which is element-wise work: fused or folded"

#: With more kinds of unmatched ops, duplicates are not searched for.
_LOOKED_AT = 100
#: Ops that repeat their operand without changing it.
_REPEATS = ("broadcast_in_dim", "broadcast", "convert")


def explain_removed(matching: Matching, iterations: tuple[int, ...] | None) -> None:
    """Explain captured ops without a partner that a compiler need not run.

    Args:
        matching: explained ops are recorded here.
        iterations: how often the bodies of executed loops ran; None if the trace has no count.
    """
    if matching.expected is None:
        return
    invariants = Invariants(matching.expected)
    exchanges = [facts.kind.collective for facts in matching.captured]
    _spare(CONSTANT, lambda i: exchanges[i] and invariants.constant(i), matching)
    # If the number is a constant, the product leaves no trace.
    _spare(SCALED, lambda i: _scaled(invariants, matching, i), matching)
    _repetitions(invariants, matching, iterations)


def _repetitions(
    invariants: Invariants, matching: Matching, iterations: tuple[int, ...] | None
) -> None:
    """Explain ops without a partner by ops that look the same and repeat each other."""
    captured, executed, key_of = matching.captured, matching.executed, matching.rules.key
    unmatched: dict[Hashable, list[int]] = {}
    for i in matching.unmatched_captured:
        unmatched.setdefault(key_of(captured[i]), []).append(i)
    if not unmatched or len(unmatched) > _LOOKED_AT:
        return
    paired = {key_of(captured[i]) for i, _, _ in matching.pairs}
    run_lines: dict[Hashable, set[str]] = {}
    for _, j, _ in matching.pairs:
        run_lines.setdefault(key_of(executed[j]), set()).add(executed[j].source)
    for key, missing in unmatched.items():
        alike = [i for i, facts in enumerate(captured) if key_of(facts) == key]
        # Where all that ran are of captured lines, each line's ops are accounted for by themselves.
        lines = {captured[i].source for i in alike}
        by_line = "" not in lines and run_lines.get(key, {""}) <= lines
        for line in sorted({captured[i].source for i in missing}) if by_line else [""]:
            some = [i for i in alike if not by_line or captured[i].source == line]
            here = [i for i in missing if not by_line or captured[i].source == line]
            reasons = _reasons(invariants, matching, some, len(here), iterations)
            if key in paired and reasons:
                for reason, count in reasons.items():
                    matching.explain(reason, here[:count], [])
                    here = here[count:]
                matching.certain.difference_update(some)


def _reasons(
    invariants: Invariants,
    matching: Matching,
    alike: list[int],
    missing: int,
    iterations: tuple[int, ...] | None,
) -> Counter[str]:
    """Why some ops that look alike ran that many times less than captured; empty without a reason.

    An op that leaves a loop does so for all of its iterations, so only some numbers can be missing;
    and the loop must have run as often as captured.
    """
    nodes: dict[Hashable, list[int]] = {}
    for i in alike:
        nodes.setdefault(matching.place(i), []).append(i)
    fewer = {0}
    for positions in nodes.values():
        most, *others = runs = invariants.runs(positions)
        if iterations is not None:
            others = [times for n, times in enumerate(others) if {*runs[: n + 1]} <= {*iterations}]
        fewer |= {
            n + most - times for n in fewer for times in others if n + most - times <= missing
        }
    collective = any(matching.captured[i].kind.collective for i in alike)
    twice = 0 if collective else repeated(invariants.expected, alike)
    hoisted = max(fewer)
    if missing - hoisted > twice:
        return Counter()
    return +Counter({HOISTED: hoisted, DUPLICATE: missing - hoisted})


def _spare(reason: str, removable: Callable[[int], bool], matching: Matching) -> None:
    """Explain ops without a partner by as many of their line that a compiler need not run."""
    captured = matching.captured

    def place(i: int) -> Hashable:
        return matching.rules.key(captured[i]), captured[i].source

    unmatched: dict[Hashable, list[int]] = {}
    for i in matching.unmatched_captured:
        unmatched.setdefault(place(i), []).append(i)
    if not unmatched:
        return
    paired: dict[Hashable, list[Pair]] = {}
    for pair in matching.pairs:
        paired.setdefault(place(pair[0]), []).append(pair)
    for key, missing in unmatched.items():
        matching.explain(reason, [i for i in missing if removable(i)], [])
        # The executed ones belong to the others, whichever they were paired with.
        others = iter([i for i in missing if not removable(i)])
        for pair in paired.get(key, ()):
            if removable(pair[0]) and (instead := next(others, None)) is not None:
                matching.give_partner(pair, instead)
                matching.explain(reason, [pair[0]], [])


def _scaled(invariants: Invariants, matching: Matching, i: int) -> bool:
    """Whether a product multiplies by one known number, maybe repeated: no sum, one side alike."""
    gemms = matching.captured[i].gemms
    if not gemms or any(k != 1 for _, _, _, k in gemms):
        return False
    expected = invariants.expected
    number = int(expected.graph[i])
    graph = expected.graphs[number]
    return any(
        invariants.known(number, v) and _one_number(graph, v)
        for v in graph[int(expected.node[i])].operands
    )


def _one_number(graph: WorkloadGraph, value: int) -> bool:
    while math.prod(graph.type_of(value).shape) != 1:
        value = origin(graph, value)
        producer = int(graph.producer[value])
        if producer < 0 or graph.tables.ops[int(graph.op[producer])] not in _REPEATS:
            return False
        value = int(graph.operand[graph.operand_ptr[producer]])
    return True
