"""Where the step of a trace begins in that of a capture: steps follow each other.

The idea: a step that a program repeats is captured from the end of its update on, and the step of a
trace ends when the next begins.  A loss that is averaged over the ranks after the update begins the
one and ends the other.  Then the trace's heavy ops are those of the capture in the same order, but
begin later, and its last ones are taken as those of the step before.

    turned_by(captured, executed, rules)        # 40: the executed ops from the 40th on come first
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import Rules

#: At most one of this many heavy ops is after an update: two in the other order are a difference.
_SHARE = 4


def turned_by(captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules) -> int:
    """The executed op that the captured step begins with; 0 unless all heavy ops agree then."""
    if not rules.recorded:
        return 0
    heavy = [j for j, facts in enumerate(executed) if rules.kind(facts).must_match]
    ran = [rules.key(executed[j]) for j in heavy]
    wanted = [rules.key(facts) for facts in captured if rules.kind(facts).must_match]
    if wanted == ran or len(wanted) != len(ran):
        return 0
    for after in range(1, len(ran) // _SHARE + 1):
        if wanted == ran[-after:] + ran[:-after]:
            return heavy[-after]
    return 0
