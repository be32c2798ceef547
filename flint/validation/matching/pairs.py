"""Pairs captured ops with executed ones, class by class, and says how each pair was found.

The idea: first the ops that are the same in both (``same_ops``), then those that ran in another
form (``other_forms``).  What is left may still be explained (gloo's own work); what is not, is a
mismatch.

    result = match(captured, executed, rules)
    result.pairs[0], result.unmatched_captured
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.alignment import longest_ascending
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Evidence, Matching, without
from flint.validation.matching.same_ops import by_identity, in_order
from flint.validation.rewrites.cpu_substitutes import GLOO, Gloo, explanations
from flint.validation.rewrites.gather_scatter import call_of
from flint.validation.rewrites.other_forms import (
    gathered_through_root,
    multiplied,
    parted,
    pointwise,
    ragged,
    spread,
    wider,
)


def match(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    rules: Rules,
    address: Sequence[Hashable] = (),
    threads: Sequence[int] = (),
) -> Matching:
    """Pair the ops of one rank.

    Args:
        captured: in issue order.
        address: of each captured op in the program, the same in each iteration of a loop.
        executed: in the order in which they began.
        rules: of ``rules_for``.
        threads: of each executed op, or its stream; () where nobody knows.
    """
    result = Matching()
    ours, theirs = _by_class(captured, rules), _by_class(executed, rules)
    gloo: Gloo | None = None
    kinds = sorted(ours.keys() | theirs.keys())
    for kind in [kind for kind in kinds if kind.must_match]:
        _match_class(kind, captured, executed, ours, theirs, rules, address, result)
    if rules.recorded:
        gathered_through_root(captured, executed, result)
        if rules.on_host and any(not kind.must_match for kind in kinds):
            gloo = _aside(captured, executed, threads, theirs, result)
        for kind in [kind for kind in kinds if not kind.must_match]:
            _match_class(kind, captured, executed, ours, theirs, rules, address, result)
    else:  # XLA fuses light ops: counted, not compared
        ragged(captured, executed, rules, result)
        pointwise(captured, executed, rules, result)
        multiplied(captured, executed, rules, result)
    if gloo is not None:
        known = [(i, j) for i, j, _ in result.pairs]
        for item in explanations(
            captured, executed, known, result.unmatched_captured, result.unmatched_executed, gloo
        ):
            result.explain(item.reason, item.captured, item.executed)
    result.pairs.sort()
    result.unmatched_captured.sort()
    result.unmatched_executed.sort()
    return result


def _match_class(
    kind: OpClass,
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    ours: dict[OpClass, list[int]],
    theirs: dict[OpClass, list[int]],
    rules: Rules,
    address: Sequence[Hashable],
    result: Matching,
) -> None:
    """Pair the ops of a class; those left over go to ``result`` as unmatched."""
    mine, yours = ours.get(kind, []), theirs.get(kind, [])
    if rules.recorded:
        pairs = in_order(captured, executed, mine, yours, rules, result)
    else:
        pairs = by_identity(captured, executed, mine, yours, rules, address, result)
    pairs = [
        (i, j, Evidence.SIZES if e == Evidence.NAME and rules.sized(executed[j]) else e)
        for i, j, e in pairs
        if not rules.contradicts(captured[i], executed[j])
    ]
    left = without(mine, (i for i, _, _ in pairs))
    over = without(yours, (j for _, j, _ in pairs))
    if kind.collective and kind not in rules.by_name:
        more = parted(kind, captured, executed, left, over, rules, result)
        left = without(left, (i for i, _, _ in more))
        over = without(over, (j for _, j, _ in more))
        pairs += more
    sized = kind.collective or kind == OpClass.GEMM
    if rules.recorded and kind not in rules.by_name and not sized:
        more = wider(captured, executed, left, over, pairs, rules, result)
        if kind == OpClass.ELEMENTWISE:
            more += spread(
                captured, executed, without(left, (i for i, _, _ in more)),
                without(over, (j for _, j, _ in more)), result,
            )  # fmt: skip
        left = without(left, (i for i, _, _ in more))
        over = without(over, (j for _, j, _ in more))
        pairs += more
    for i, j, _ in pairs:
        result.explained.update(rules.reasons(captured[i], executed[j]))
    result.pairs += pairs
    firsts = {i: j for i, j, _ in sorted(pairs, reverse=True)}
    result.in_order[kind] = longest_ascending([firsts[i] for i in sorted(firsts)])
    result.unmatched_captured += left
    result.unmatched_executed += over


def _aside(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    threads: Sequence[int],
    theirs: dict[OpClass, list[int]],
    result: Matching,
) -> Gloo:
    """What gloo may run for the collectives; what it ran on threads of its own is set aside."""
    pairs = [(i, j) for i, j, _ in result.pairs]
    gloo = Gloo(captured, pairs, [j for _, j in pairs if call_of(executed[j]) == "gather"])
    if not threads:
        return gloo
    programs = {threads[j] for j, facts in enumerate(executed) if facts.kind.must_match}
    others = [j for j in range(len(executed)) if threads[j] not in programs]
    own = gloo.take(executed, others)
    result.explain(GLOO, [], own)
    for kind, positions in theirs.items():
        theirs[kind] = without(positions, own)
    return gloo


def _by_class(ops: Sequence[OpFacts], rules: Rules) -> dict[OpClass, list[int]]:
    found: dict[OpClass, list[int]] = defaultdict(list)
    for number, facts in enumerate(ops):
        found[rules.kind(facts)].append(number)
    return found
