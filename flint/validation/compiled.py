"""Matching against programs that XLA has compiled: its rewrites first, then op by op.

The idea: compilers for accelerators merge, pad and cut products and lay all-reduces side by side;
what is found of that is taken out, the rest is matched, and captured ops that compute what another
one computes get its partner.

    found = match_compiled(expected, captured, executed, rules, streams, rank=0)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

from flint.graph import WorkloadGraph
from flint.validation.duplicates import origin, repeated
from flint.validation.expected import Expected
from flint.validation.invariant import Invariants
from flint.validation.keys import CONSTANT, DUPLICATE, HOISTED, SCALED, Rules
from flint.validation.matching import match
from flint.validation.merged import merge
from flint.validation.observed import OpFacts
from flint.validation.pairing import Evidence, Matching
from flint.validation.reduced import rewrite

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
) -> None:
    """Explain captured ops without a partner by ops that look the same and repeat each other.

    Collectives on constants and products with a number need no other one to repeat.  Which of
    several that look alike has no partner cannot be told; that as many are repetitions can.  They
    get the partner of one that looks the same.
    """
    invariants = Invariants(expected)
    known = [i for i in found.unmatched_captured if captured[i].kind.collective]
    found.explain(CONSTANT, [i for i in known if invariants.constant(i)], [])
    # A number that is a constant leaves no trace of the product at all.
    scaled = [i for i in found.unmatched_captured if _scaled(expected, captured[i], i)]
    found.explain(SCALED, scaled, [])
    left: dict[Hashable, list[int]] = {}
    for i in found.unmatched_captured:
        if captured[i].kind.must_match:
            left.setdefault(rules.key(captured[i]), []).append(i)
    if not left or len(left) > _LOOKED_AT:
        return
    partner = {rules.key(captured[i]): j for i, j, _ in found.pairs}
    lines: dict[Hashable, set[str]] = {}
    for _, j, _ in found.pairs:
        lines.setdefault(rules.key(executed[j]), set()).add(executed[j].source)
    for key, without in left.items():
        alike = [i for i, facts in enumerate(captured) if rules.key(facts) == key]
        # Where all that ran are of captured lines, each line's ops are accounted for by themselves.
        ours = {captured[i].source for i in alike}
        told = "" not in ours and lines.get(key, {""}) <= ours
        for line in sorted({captured[i].source for i in without}) if told else [""]:
            some = [i for i in alike if not told or captured[i].source == line]
            here = [i for i in without if not told or captured[i].source == line]
            reasons = _reasons(expected, invariants, captured, some, len(here))
            if key not in partner or not reasons:
                continue
            for i in here:
                found.pairs.append((i, partner[key], Evidence.SIZES))
                found.unmatched_captured.remove(i)
            found.explained.update(reasons)
            found.certain.difference_update(some)


def _reasons(
    expected: Expected,
    invariants: Invariants,
    captured: list[OpFacts],
    alike: list[int],
    missing: int,
) -> Counter[str]:
    """Why some ops that look alike ran so many times less than captured; empty if nothing says it.

    An op that leaves a loop does so with all of its iterations, so that only some numbers can be
    missing.
    """
    nodes: dict[tuple[int, int], list[int]] = {}
    for i in alike:
        nodes.setdefault((int(expected.graph[i]), int(expected.node[i])), []).append(i)
    fewer = {0}
    for positions in nodes.values():
        most, *others = invariants.runs(positions)
        fewer |= {n + most - runs for n in fewer for runs in others if n + most - runs <= missing}
    collective = any(captured[i].kind.collective for i in alike)
    twice = 0 if collective else repeated(expected, alike)
    hoisted = max(fewer)
    if missing - hoisted > twice:
        return Counter()
    return +Counter({HOISTED: hoisted, DUPLICATE: missing - hoisted})


def _scaled(expected: Expected, facts: OpFacts, position: int) -> bool:
    """Whether a product multiplies by one number, which may be repeated: no sum, one side alike."""
    if not facts.gemms or any(k != 1 for _, _, _, k in facts.gemms):
        return False
    graph = expected.graphs[int(expected.graph[position])]
    return any(_one_number(graph, v) for v in graph[int(expected.node[position])].operands)


def _one_number(graph: WorkloadGraph, value: int) -> bool:
    while math.prod(graph.type_of(value).shape) != 1:
        value = origin(graph, value)
        producer = int(graph.producer[value])
        if producer < 0 or graph.tables.ops[int(graph.op[producer])] not in _REPEATS:
            return False
        value = int(graph.operand[graph.operand_ptr[producer]])
    return True
