"""Where a program was when it made what a training renews.

The idea: a loop that makes parameters in each of its rounds begins a training in each, as for
several settings.  The parameters are the largest array that the step renews; before the first step
they are followed to the call that made them from nothing of their shape.

    made_at = MadeAt()
    made_at.note(origin)                            # whenever an array is made
    made_at.loop(period, calls)                     # "train.py:11"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from flint.frontends.jax.programs.operand_sizes import Given, Made
from flint.frontends.jax.programs.periods import Period
from flint.launching.code_behind import Calls, calls_of, loop_around
from flint.passes.in_sequence import Origin


class MadeAt:
    """The program's calls on the stack when arrays were made.

    Of calls at the same instructions they are the last ones.  The innermost alone does not do: a
    function that makes parameters may make what the training's loop needs, too.
    """

    def __init__(self) -> None:
        """Nothing has been made."""
        self._places: dict[Origin, tuple[tuple[int, int], ...]] = {}
        self._stacks: dict[tuple[tuple[int, int], ...], Calls] = {}

    def note(self, origin: Origin) -> None:
        """An array, or the first result of a call, is made now."""
        stack = calls_of(sys._getframe(1))
        place = tuple((id(code), instruction) for code, instruction in stack.values())
        self._places[origin] = place
        self._stacks[place] = stack

    def loop(self, period: Period, calls: Sequence[Made]) -> str:
        """The innermost loop that has made a period's parameters and is in it; "" if there is none.

        Args:
            period: a training step that the program makes now.
            calls: all calls of the program.
        """
        first, second = (
            [one for number in period.calls_of(n) for one in calls[number].given] for n in (1, 2)
        )
        begin = period.line[period.first]
        renewed = {one.shape for one in second if one.since is not None and one.since > begin}
        outside = (one for one in first if one.since is None or one.since <= begin)
        largest = max(
            (one for one in outside if one.shape in renewed),
            key=lambda one: one.size,
            default=None,
        )
        if largest is None:
            return ""
        *_, origin = _followed(largest, calls)
        place = self._places.get(Origin(origin.program, 0) if origin.program >= 0 else origin)
        return loop_around(self._stacks[place], sys._getframe(1)) if place is not None else ""


def _followed(given: Given, calls: Sequence[Made]) -> Iterator[Origin]:
    """An array, and those of its shape that it was computed from, one from the other."""
    found: Given | None = given
    while found is not None and isinstance(found.array, Origin):
        yield found.array
        number = found.array.program
        own = calls[number].given if number >= 0 else ()
        found = next((one for one in own if one.shape == given.shape), None)
    if found is not None:  # one of JAX's own, made nobody knows where
        yield Origin(-1, -1)
