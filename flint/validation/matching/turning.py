"""Where the step of a trace begins in that of a capture: steps follow each other.

The idea: a step that a program repeats is captured from the end of its update on, and the step of a
trace ends when the next begins.  What follows the update, such as a moving average of the weights
or a loss that is averaged over the ranks, begins the one and ends the other.  Then the trace's
heavy ops are those of the capture in the same order, but begin later, and its last ones are taken
as those of the step before.  Light ops move with them if the trace has them only at its end.

    turned_by(captured, executed, rules)        # 40: the executed ops from the 40th on come first
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import count, takewhile

import numpy as np

from flint.mesh.ragged import Ints
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import Rules

#: At most one of this many heavy ops is after an update: two in the other order are a difference.
_SHARE = 4
#: And so many at most, which bounds the work.
_MOST = 1_000
#: So many other ops in a row, at least, are the update: its single ops look like those after it.
_OTHERS = 8


def turned_by(captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules) -> int:
    """The executed op that the captured step begins with; 0 unless more heavy ops agree then."""
    if not rules.recorded:
        return 0
    heavy = [j for j, facts in enumerate(executed) if rules.kind(facts).must_match]
    leading = list(takewhile(lambda facts: not rules.kind(facts).must_match, captured))
    after = _heavy_after(
        [rules.key(facts) for facts in captured if rules.kind(facts).must_match],
        [rules.key(executed[j]) for j in heavy],
    )
    first = heavy[-after] if after else len(executed)
    before = heavy[-after - 1] + 1 if len(heavy) > after else 0
    moved = Counter(rules.key(facts) for facts in leading)
    if not after:  # those that the trace's step begins with need not move
        moved -= Counter(rules.key(facts) for facts in executed[: heavy[0] if heavy else 0])
    turned = _light_before(moved, [rules.key(facts) for facts in executed[before:first]])
    return (first - turned) % len(executed) if turned or after else 0


def _heavy_after(wanted: Sequence[Hashable], ran: Sequence[Hashable]) -> int:
    """How many of the last heavy ops come first in the capture.

    Ops in the middle may have run in another form: those at both ends tell.
    """
    numbers: dict[Hashable, int] = defaultdict(count().__next__)
    captured, executed = (np.array([numbers[key] for key in keys]) for keys in (wanted, ran))
    enough = (min(len(wanted), len(ran)) + 1) // 2
    most, best = _agreeing(captured, executed), 0
    if most == len(wanted):
        return 0
    for after in range(1, min(len(ran) // _SHARE, _MOST) + 1):
        if captured[:1] == executed[-after]:
            agreeing = _agreeing(captured, np.roll(executed, after))
            if agreeing > most and agreeing >= enough:
                most, best = agreeing, after
    return best


def _agreeing(wanted: Ints, ran: Ints) -> int:
    """How many ops at the two ends are the same."""
    size = min(len(wanted), len(ran))
    firsts = wanted[:size] == ran[:size]
    lasts = (wanted[len(wanted) - size :] == ran[len(ran) - size :])[::-1]
    return min(size, sum(size if same.all() else int(same.argmin()) for same in (firsts, lasts)))


def _light_before(moved: Counter[Hashable], ran: Sequence[Hashable]) -> int:
    """How many of the last of these light ops move: back to the first that the capture begins
    with.
    """
    left = Counter(moved)
    turned = others = 0
    for number, key in enumerate(reversed(ran), 1):
        if left[key] > 0:
            left[key] -= 1
            turned, others = number, 0
        else:
            others += 1
        if others >= _OTHERS or not left.total():
            break
    return turned
