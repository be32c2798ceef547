"""Products that a backend computes in wider floats than captured, told apart by their operands.

The idea: a trace says which narrower types the operands of a product had before they were widened.
Where the capture has a product of the same sizes and line in one of these types, and none in the
type that ran, this is the type in which the two are compared.

    executed = as_stored(captured, executed, rules)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from flint.validation.classes import OpClass
from flint.validation.keys import Rules
from flint.validation.observed import OpFacts


def as_stored(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules
) -> list[OpFacts]:
    """The executed ops; of products ``stored`` is left only if it is the captured type, alone."""
    known: dict[Hashable, set[str]] = defaultdict(set)
    if any(facts.stored for facts in executed):
        for facts in captured:
            if facts.kind == OpClass.GEMM:
                known[_place(facts, rules)].add(facts.dtype)
    decided: dict[OpFacts, OpFacts] = {}
    for facts in executed:
        if facts.stored and facts not in decided:
            types = known.get(_place(facts, rules), set())
            found = sorted(types.intersection(facts.stored))
            # One of several that look alike here is as good as the other.
            alike = len({rules.computed_as(one) for one in types}) == 1
            other = not alike or any(rules.computed_as(one) == facts.dtype for one in types)
            decided[facts] = replace(facts, stored=() if other else tuple(found[:1]))
    return [decided.get(facts, facts) for facts in executed]


def _place(facts: OpFacts, rules: Rules) -> Hashable:
    return rules.sized_key(replace(facts, dtype="", stored=())), facts.source
