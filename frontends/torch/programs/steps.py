"""Which step of a program is captured, and when it begins and ends.

The idea: a step lies between two ends of the same kind.  Ends are marks of the program
(``flint.step()``), rounds of optimizer steps and, in programs without an optimizer, updates of
parameters (``own_updates.py``), rounds of a loop (``loops.py``) and calls of a model without
gradients.  The first kind found, in this order, is
the program's step unless the user names another; the last two are known to be the step only when
the program has ended without any other.

    steps = Steps(StepChoice(number=2), start, end)
    steps.ended("optimizer", Kind.OPTIMIZER, "AdamW")    # the third time: end()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from flint.frontends.torch.user_lines import at_user_line
from flint.launching.program import SeenStep, StepChoice

#: Steps that are found otherwise than by their ends, for a warning.
NO_TRAINING = (
    "the program creates an optimizer or runs a backward pass, but ends before that repeats: the "
    "step runs from one call of a model without gradients to the next"
)
ONCE = "no optimizer steps twice: the step is from the first call of a model to the last update"
REPEATED = "no optimizer steps, or not on every rank: the step is one round of the repeated ops"
LOOP = "its repeated ops, without an optimizer's step"


class Kind(IntEnum):
    """The kind of the ends of a step; a greater kind takes precedence."""

    CALL = 0
    LOOP = 1
    UPDATE = 2
    OPTIMIZER = 3
    MARK = 4


_WORDS = {
    Kind.CALL: "from one call of a model without gradients to the next",
    Kind.LOOP: "from one round of the repeated ops to the next",
    Kind.UPDATE: "from one update of a model's parameters to the next, without an optimizer",
    Kind.OPTIMIZER: "from the end of one optimizer step to the end of the next",
    Kind.MARK: "from one flint.step() to the next",
}


@dataclass(slots=True)
class _Seen:
    kind: Kind
    place: str
    what: str
    ends: int = 0


class Steps:
    """The steps of a program, as it runs."""

    def __init__(
        self, choice: StepChoice, start: Callable[[Kind], None], end: Callable[[Kind], None]
    ) -> None:
        """Watch for a step.

        Args:
            choice: the wanted step.
            start: called where it may begin; the last call is where it does.
            end: called at its end.
        """
        self._choice, self._start, self._end = choice, start, end
        self._seen: dict[str, _Seen] = {}
        self._begun: dict[str, _Seen] = {}  # that have not ended once
        self._over: set[str] = set()
        self._of = ""  # the step that was started last

    def ended(self, name: str, kind: Kind, what: str = "", *, began: bool = False) -> None:
        """A step of that name ends here, or, at the first call, the part before the first step.

        Args:
            name: of the step.
            kind: the kind of its ends.
            what: a further description.
            began: this concerns an earlier end, after which the next step may have begun.
        """
        words = f"{_WORDS[kind]} ({what})" if what else _WORDS[kind]
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = _Seen(kind, _place(), words)
        seen.ends += 1
        if self._is_wanted(name, kind):
            if seen.ends == self._choice.number and not began:
                self._of = name
                self._start(kind)
            elif seen.ends == self._choice.number + 1 and self._of == name:
                self._end(kind)

    def may_begin(self, name: str, kind: Kind) -> None:
        """A step may begin here that has not ended once, so its content is not known yet."""
        self._begun.setdefault(name, _Seen(kind, _place(), _WORDS[kind]))
        if self._choice.number == 1 and self._is_wanted(name, kind):
            self._of = name
            self._start(kind)

    def forget(self, name: str) -> None:
        """The noted ends of a step were not ends."""
        self._seen.pop(name, None)

    def over(self, name: str) -> None:
        """The program has gone on to another step of the same kind."""
        self._over.add(name)

    def of_optimizers(self) -> list[tuple[str, _Seen]]:
        """Names of those that optimizers end, and how often that was."""
        return [item for item in self._seen.items() if item[1].kind is Kind.OPTIMIZER]

    def _is_wanted(self, name: str, kind: Kind) -> bool:
        if self._choice.name is not None:
            seen = self._seen.get(name) or self._begun.get(name)
            return self._choice.names(name, seen.place if seen else "")
        # One kind of step, and the first step of that kind that the program has not left.
        greatest = max((item.kind for item in self._seen.values()), default=kind)
        same = (
            item
            for item, seen in self._seen.items()
            if seen.kind is greatest and item not in self._over
        )
        return kind > greatest or (kind is greatest and name == next(same, name))

    def seen(self) -> list[SeenStep]:
        """The steps that have been seen, with their counts."""
        return [
            SeenStep(name=name, count=max(item.ends - 1, 0), place=item.place, what=item.what)
            for name, item in (self._begun | self._seen).items()
        ]


def _place() -> str:
    return at_user_line().removeprefix(" at ")
