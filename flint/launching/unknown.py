"""Values that are assumed for unknown ones: floats, and answers to conditions.

The idea: every unknown float is 1.0 and every unknown bool False.  A training that ends by a
tolerance (``while abs(loss - before) > 1e-6``) then ends at once.  If a program read such values
and ended before its step, it runs again with other values: floats that fall from read to read, like
a loss, and loops that continue as long as their iterations train.

    unknown = Unknown(values=1)
    unknown.number("train.py:7"), unknown.number("train.py:7")       # 0.45, 0.35
    while unknown.goes_on(frame): ...                                # (True, "so that ...")
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType

from flint.launching.loop_ends import passing, staying
from flint.launching.program import StepChoice
from flint.launching.stated_values import Numbers

#: Upper bound of floats in each run: small, like early accuracies, then large, like early losses.
_SCALES = (0.0, 0.5, 1000.0)
#: How often a line's floats fall, and a loop continues, before they behave as in the first run.
_MOST = 50


@dataclass(slots=True)
class Unknown:
    """The assumed values of one run of a program.

    Attributes:
        values: which set of values, 0 at first; as in ``StepChoice``.
        stated: what the user knows.
        trained: number of training steps so far.
        is_read: whether the program has read such a value.
    """

    values: int = 0
    stated: Numbers = field(default_factory=Numbers)
    trained: int = 0
    is_read: bool = False
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    _asked: dict[tuple[CodeType, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The assumed floats, as text."""
        scale = _SCALES[self.values]
        return f"fall from {0.9 * scale:g} to {0.5 * scale:g}" if scale else "be 1.0"

    def number(self, place: str) -> float:
        """A float that is read at a place of the program; different places read different
        values.
        """
        self.is_read = True
        count, own = self._read.get(place, (0, len(self._read)))
        self._read[place] = count + 1, own
        if not self.values or count >= _MOST:
            return 1.0
        return _SCALES[self.values] * (0.5 + 0.4 * math.pow(0.5, count + own / math.pi % 1))

    def goes_on(self, frame: FrameType | None) -> tuple[bool, str] | None:
        """The answer to a frame's test that raises no error (an ``assert``), or makes its loop
        continue.

        A loop that trains nothing waits for something, which is then assumed to have happened.

        Returns:
            The answer and its reason; None if the answer is free.
        """
        self.is_read = True
        passes = passing(frame)
        if passes is not None:
            return passes, "so that no error is raised"
        answer = staying(frame) if self.values else None
        if frame is None or answer is None:
            return None
        key = frame.f_code, frame.f_lineno
        rounds, trained = self._asked.get(key, (0, -1))
        self._asked[key] = rounds + 1, self.trained
        is_used = trained != self.trained and rounds < _MOST
        return (answer, "so that its loop continues") if is_used else None

    def again(self, choice: StepChoice) -> StepChoice | None:
        """The step to look for with other values, if the assumed values may have ended the
        program.
        """
        more = self.values + 1
        return replace(choice, values=more) if self.is_read and more < len(_SCALES) else None
