"""A training's step that is held, because the program may have another training behind it.

The idea: a search for a learning rate trains as the training does, and comes first.  If the code
behind the running loops computes gradients, the program goes on for a while after its step has been
found; the step is that of the next training, if there is one.

    held = HeldStep(periods.calls, arrays.made_at)
    held.taken(period)                   # None: the program goes on; the period is kept
    held.last()                          # that period: the program has ended
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flint.frontends.jax.programs.made_at import MadeAt
from flint.frontends.jax.programs.operand_sizes import Made
from flint.frontends.jax.programs.periods import Period
from flint.launching.code_behind import TRAINS_EACH_ROUND, Behind, trainings_behind
from flint.launching.notes import noted

#: What a training calls: a function of JAX's for gradients.
_WAYS = (("grad",), ("value_and_grad",))


class HeldStep:
    """The step of a training, if another one may follow.

    Args:
        calls: of the program.
        made_at: where it made its arrays.
    """

    #: Rounds of one training that are waited for the next one.
    PATIENCE = 128

    def __init__(self, calls: Sequence[Made], made_at: MadeAt) -> None:
        self._calls, self._made_at = calls, made_at
        self._period: Period | None = None
        self._behind: tuple[Behind, ...] = ()
        self._rounds, self._loop = 0, ""

    def last(self) -> Period | None:
        """The step that is held, now that the program has ended."""
        return self._to_capture(self._period)

    def taken(self, period: Period) -> Period | None:
        """The step to capture now that a period is complete; None: the program goes on."""
        return self._to_capture(self._of(period))

    def _of(self, period: Period) -> Period | None:
        held, is_over = self._period, any(one.is_reached() for one in self._behind)
        if held is None or is_over:
            is_next = held is not None and period.trains and not _is_one(held, period)
            if held is not None and not is_next:
                return held if _is_one(held, period) else None
            found = trainings_behind(sys._getframe(1), _WAYS) if period.trains else ()
            if held is not None:
                _note(period, f"{held.name} at {held.place}")
            self._loop = self._made_at.loop(period, self._calls) if period.trains else ""
            self._period, self._behind, self._rounds = period if found else None, found, 0
            return None if found else period
        self._rounds += 1
        if self._rounds <= self.PATIENCE:
            return None
        _note(held, f"one at {self._behind[0].place}, not begun yet")
        return held

    def _to_capture(self, period: Period | None) -> Period | None:
        if period is not None and self._loop:
            noted[TRAINS_EACH_ROUND.format(self._loop, "parameters")] = 1
        return period


def _is_one(one: Period, other: Period) -> bool:
    return (one.name, one.place) == (other.name, other.place)


def _note(period: Period, other: str) -> None:
    noted[
        f"the program trains more than once: the step is {period.name} at {period.place}; "
        f"--step NAME captures another: {other}"
    ] += 1
