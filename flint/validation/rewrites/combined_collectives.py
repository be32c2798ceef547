"""Collectives that a compiler has combined into one with several buffers, or split.

combined_collectives(matching, OpClass.ALL_REDUCE)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Evidence, Matching

#: Per class of collectives.
COMBINED = {
    kind: f"{kind}s that the compiler combined into one" for kind in OpClass if kind.collective
}
PARTED = "one collective of several buffers that runs as several"


def combined_collectives(matching: Matching, kind: OpClass) -> None:
    """Pair one collective with several, if all of its buffers have a partner."""
    rules = matching.rules
    if not kind.collective or kind in rules.by_name:
        return
    for is_captured, reason in ((False, COMBINED[kind]), (True, PARTED)):
        captured_ids, executed_ids = matching.unmatched(kind)
        one, several = matching.executed, matching.captured
        one_ids, several_ids = executed_ids, captured_ids
        if is_captured:
            one, several, one_ids, several_ids = several, one, several_ids, one_ids
        free: dict[Hashable, deque[int]] = defaultdict(deque)
        for number in several_ids:
            buffers = _buffers(several[number], rules)
            if len(buffers) == 1:
                free[buffers[0]].append(number)
        for number in one_ids:
            wanted = _buffers(one[number], rules)
            enough = all(len(free[key]) >= count for key, count in Counter(wanted).items())
            if len(wanted) < 2 or not enough:
                continue
            for key in wanted:
                other = free[key].popleft()
                pair = (number, other) if is_captured else (other, number)
                matching.pair(*pair, Evidence.SIZES, reason)


def _buffers(facts: OpFacts, rules: Rules) -> list[Hashable]:
    """The properties that each buffer of a collective must share with its partner."""
    return [(one, facts.group, rules.reduction(facts)) for one in rules.buffers(facts)]
