"""What a program is told of values that nobody knows: floats, and answers to questions.

The idea: every unknown float is 1.0 and every unknown bool False.  A training that ends by a
tolerance (``while abs(loss - before) > 1e-6``) then ends at once.  A program that has ended before
its step, and was told such values, runs again with other ones: floats that fall from read to read,
as a loss does, and loops that go on as long as their rounds train.

    unknown = Unknown(values=1)
    unknown.number("train.py:7"), unknown.number("train.py:7")       # 0.45, 0.35
    while unknown.goes_on(frame): ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType

from flint.launching.loop_ends import staying
from flint.launching.program import StepChoice

#: What floats begin below, run for run: small, as accuracies at first, and large, as first losses.
_SCALES = (0.0, 0.5, 1000.0)
#: So often a line's floats fall, and a loop goes on, before they are as in the first run.
_MOST = 50


@dataclass(slots=True)
class Unknown:
    """What one run of a program is told.

    Attributes:
        values: which values, 0 at first; as in ``StepChoice``.
        trained: how often something was trained so far.
        is_read: a program was told a value.
    """

    values: int = 0
    trained: int = 0
    is_read: bool = False
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    _asked: dict[tuple[CodeType, int], tuple[int, int]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What floats are."""
        scale = _SCALES[self.values]
        return f"fall from {0.9 * scale:g} to {0.5 * scale:g}" if scale else "be 1.0"

    def number(self, place: str) -> float:
        """A float that is read at a place of the program; no two places read the same."""
        self.is_read = True
        count, own = self._read.get(place, (0, len(self._read)))
        self._read[place] = count + 1, own
        if not self.values or count >= _MOST:
            return 1.0
        return _SCALES[self.values] * (0.5 + 0.4 * math.pow(0.5, count + own / math.pi % 1))

    def goes_on(self, frame: FrameType | None) -> bool | None:
        """The answer by which a loop goes on to what a frame asks; None: there is no such answer.

        A round that trains nothing waits for something, which has then happened.
        """
        self.is_read = True
        answer = staying(frame) if self.values else None
        if frame is None or answer is None:
            return None
        key = frame.f_code, frame.f_lineno
        rounds, trained = self._asked.get(key, (0, -1))
        self._asked[key] = rounds + 1, self.trained
        return answer if trained != self.trained and rounds < _MOST else None

    def again(self, choice: StepChoice) -> StepChoice | None:
        """What to look for with other values, where those may have ended the program."""
        more = self.values + 1
        return replace(choice, values=more) if self.is_read and more < len(_SCALES) else None
