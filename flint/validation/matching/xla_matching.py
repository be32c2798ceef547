"""Matching against programs that XLA has compiled: its rewrites first, then op by op.

The idea: compilers for accelerators merge, pad and cut products and lay all-reduces side by side;
what is found of that is taken out, the rest is matched, and captured ops that compute what another
one computes get its partner.

    found = match_compiled(expected, captured, executed, rules, streams, rank=0)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable

from flint.graph.graph import WorkloadGraph
from flint.observed.columns import OpFacts
from flint.validation.expected.duplicates import origin, repeated
from flint.validation.expected.loop_invariants import Invariants
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import CONSTANT, DUPLICATE, HOISTED, SCALED, Rules
from flint.validation.matching.pairing import Evidence, Matching, without
from flint.validation.matching.pairs import match
from flint.validation.rewrites.all_reduces import rewrite
from flint.validation.rewrites.gemms import merge

#: With more kinds of ops without a partner no duplicates are looked for.
_LOOKED_AT = 100
#: Ops that repeat what they read, and change nothing of it.
_REPEATS = ("broadcast_in_dim", "broadcast", "convert")


def match_compiled(
    expected: Expected,
    captured: list[OpFacts],
    executed: list[OpFacts],
    rules: Rules,
    streams: list[int],
    rank: int,
) -> Matching:
    """Match a program of XLA's, what its compilers for accelerators rewrite before all else."""
    merged = merge(expected, captured, executed, rules)
    reduced = rewrite(expected, captured, executed, rules, rank)
    gone = {i for item in merged for i in item.captured}
    gone.update(reduced.absorbed, (i for i, _ in reduced.pairs))
    taken = {item.executed for item in merged} | {j for _, j in reduced.pairs}
    mine = [i for i in range(len(captured)) if i not in gone]
    yours = [j for j in range(len(executed)) if j not in taken]
    address = expected.address()
    found = match(
        [captured[i] for i in mine], [executed[j] for j in yours], rules,
        [address[i] for i in mine], [streams[j] for j in yours],
    )  # fmt: skip
    found.pairs = [(mine[i], yours[j], evidence) for i, j, evidence in found.pairs]
    found.without_captured = [mine[i] for i in found.without_captured]
    found.without_executed = [yours[j] for j in found.without_executed]
    found.unmatched_captured = [mine[i] for i in found.unmatched_captured]
    found.unmatched_executed = [yours[j] for j in found.unmatched_executed]
    found.reordered = [(mine[i], yours[j]) for i, j in found.reordered]
    # Which of several that look alike were merged is not told by their sizes.
    touched = {rules.key(captured[i]) for i in gone} | {rules.key(executed[j]) for j in taken}
    found.certain = {mine[i] for i in found.certain if rules.key(captured[mine[i]]) not in touched}
    for item in merged:
        found.pairs += [(i, item.executed, Evidence.SIZES) for i in item.captured]
        found.explained.update({reason: len(item.captured) for reason in item.reasons})
    found.pairs += [(i, j, Evidence.SIZES) for i, j in reduced.pairs]
    found.explained.update(reduced.reasons)
    found.without_captured += reduced.absorbed
    found.pairs.sort()
    return found


def pair_repetitions(
    expected: Expected,
    captured: list[OpFacts],
    executed: list[OpFacts],
    found: Matching,
    rules: Rules,
    iterations: tuple[int, ...] | None = None,
) -> None:
    """Explain captured ops without a partner by ops that look the same and repeat each other.

    Collectives on constants and products with a number need no other one to repeat.  Which of
    several that look alike has no partner cannot be told; that as many are repetitions can.  What
    is explained so has run as another op, and counts as no match.

    Args:
        expected: a rank's ops.
        captured, executed: their facts, and what ran.
        found: what has a partner; what is explained is added.
        rules: of ``rules_for``.
        iterations: how often the bodies of executed loops ran; None where the trace does not tell.
    """
    invariants = Invariants(expected)
    _spare(CONSTANT, lambda i: _constant(invariants, captured[i], i), captured, found, rules)
    # A number that is a constant leaves no trace of the product at all.
    _spare(SCALED, lambda i: _scaled(invariants, captured[i], i), captured, found, rules)
    left: dict[Hashable, list[int]] = {}
    for i in found.unmatched_captured:
        if captured[i].kind.must_match:
            left.setdefault(rules.key(captured[i]), []).append(i)
    if not left or len(left) > _LOOKED_AT:
        return
    paired = {rules.key(captured[i]) for i, _, _ in found.pairs}
    lines: dict[Hashable, set[str]] = {}
    for _, j, _ in found.pairs:
        lines.setdefault(rules.key(executed[j]), set()).add(executed[j].source)
    for key, missing in left.items():
        alike = [i for i, facts in enumerate(captured) if rules.key(facts) == key]
        # Where all that ran are of captured lines, each line's ops are accounted for by themselves.
        ours = {captured[i].source for i in alike}
        told = "" not in ours and lines.get(key, {""}) <= ours
        for line in sorted({captured[i].source for i in missing}) if told else [""]:
            some = [i for i in alike if not told or captured[i].source == line]
            here = [i for i in missing if not told or captured[i].source == line]
            reasons = _reasons(expected, invariants, captured, some, len(here), iterations)
            if key not in paired or not reasons:
                continue
            found.unmatched_captured = without(found.unmatched_captured, here)
            found.without_captured += here
            found.explained.update(reasons)
            found.certain.difference_update(some)


def _reasons(
    expected: Expected,
    invariants: Invariants,
    captured: list[OpFacts],
    alike: list[int],
    missing: int,
    iterations: tuple[int, ...] | None,
) -> Counter[str]:
    """Why some ops that look alike ran so many times less than captured; empty if nothing says it.

    An op that leaves a loop does so with all of its iterations, so that only some numbers can be
    missing; and the loop must have run as often as captured.
    """
    nodes: dict[tuple[int, int], list[int]] = {}
    for i in alike:
        nodes.setdefault((int(expected.graph[i]), int(expected.node[i])), []).append(i)
    fewer = {0}
    for positions in nodes.values():
        most, *others = runs = invariants.runs(positions)
        if iterations is not None:
            others = [times for n, times in enumerate(others) if {*runs[: n + 1]} <= {*iterations}]
        fewer |= {
            n + most - times for n in fewer for times in others if n + most - times <= missing
        }
    collective = any(captured[i].kind.collective for i in alike)
    twice = 0 if collective else repeated(expected, alike)
    hoisted = max(fewer)
    if missing - hoisted > twice:
        return Counter()
    return +Counter({HOISTED: hoisted, DUPLICATE: missing - hoisted})


def _spare(
    reason: str,
    known: Callable[[int], bool],
    captured: list[OpFacts],
    found: Matching,
    rules: Rules,
) -> None:
    """Explain ops without a partner by as many of their line that a compiler does not run.

    Args:
        reason: why.
        known: whether a compiler need not run an op.
        captured, found, rules: as of ``pair_repetitions``.
    """
    left: dict[Hashable, list[int]] = {}
    for i in found.unmatched_captured:
        if captured[i].kind.must_match:
            left.setdefault((rules.key(captured[i]), captured[i].source), []).append(i)
    if not left:
        return
    partners: dict[Hashable, list[tuple[int, int, Evidence]]] = {}
    for pair in found.pairs:
        partners.setdefault((rules.key(captured[pair[0]]), captured[pair[0]].source), []).append(
            pair
        )
    for key, missing in left.items():
        found.explain(reason, [i for i in missing if known(i)], [])
        # What ran is of the others, whichever of them was given it.
        others = iter([i for i in missing if not known(i)])
        for pair in partners.get(key, ()):
            if known(pair[0]) and (instead := next(others, None)) is not None:
                found.pairs[found.pairs.index(pair)] = instead, pair[1], Evidence.SIZES
                found.unmatched_captured.remove(instead)
                found.certain.discard(pair[0])
                found.without_captured.append(pair[0])
                found.explained[reason] += 1


def _constant(invariants: Invariants, facts: OpFacts, position: int) -> bool:
    return facts.kind.collective and invariants.constant(position)


def _scaled(invariants: Invariants, facts: OpFacts, position: int) -> bool:
    """Whether a product multiplies by one known number, maybe repeated: no sum, one side alike."""
    if not facts.gemms or any(k != 1 for _, _, _, k in facts.gemms):
        return False
    expected = invariants.expected
    number = int(expected.graph[position])
    graph = expected.graphs[number]
    return any(
        invariants.known(number, v) and _one_number(graph, v)
        for v in graph[int(expected.node[position])].operands
    )


def _one_number(graph: WorkloadGraph, value: int) -> bool:
    while math.prod(graph.type_of(value).shape) != 1:
        value = origin(graph, value)
        producer = int(graph.producer[value])
        if producer < 0 or graph.tables.ops[int(graph.op[producer])] not in _REPEATS:
            return False
        value = int(graph.operand[graph.operand_ptr[producer]])
    return True
