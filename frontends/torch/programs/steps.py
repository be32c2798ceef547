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
from typing import Any
from weakref import WeakSet

from flint.frontends.torch.cluster.device import current_stream
from flint.frontends.torch.context import capture
from flint.frontends.torch.user_lines import at_user_line
from flint.launching.program import SeenStep, StepChoice


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

    def _is_wanted(self, name: str, kind: Kind) -> bool:
        if self._choice.name is not None:
            seen = self._seen.get(name) or self._begun.get(name)
            return self._choice.names(name, seen.place if seen else "")
        # One kind of step, and the first step of that kind.
        first = max(self._seen, key=lambda item: self._seen[item].kind, default=name)
        return name == first or kind > self._seen[first].kind

    def seen(self) -> list[SeenStep]:
        """The steps that have been seen, with their counts."""
        return [
            SeenStep(name=name, count=max(item.ends - 1, 0), place=item.place, what=item.what)
            for name, item in (self._begun | self._seen).items()
        ]


def _place() -> str:
    return at_user_line().removeprefix(" at ")


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """What steps in a round: an optimizer with the parameters, by their ids, that it then has.

    DeepSpeed's ZeRO gives one optimizer one of its groups after the other.
    """

    optimizer: Any
    parameters: frozenset[int]

    def is_met_by(self, other: _Member) -> bool:
        """Whether a step of the other is one of this again."""
        apart = self.parameters.isdisjoint(other.parameters)
        none = not self.parameters or not other.parameters
        return self.optimizer is other.optimizer and (none or not apart)


def _parameters(optimizer: Any) -> frozenset[int]:
    return frozenset(id(item) for group in optimizer.param_groups for item in group["params"])


class OptimizerRounds:
    """Rounds of optimizer steps: one optimizer, several in turn, a container and what is in it, one
    that gets its groups of parameters in turn.

    How long a round is becomes clear when the first one comes again.  One that comes only then ends
    longer rounds: a generator's after several of its critic's, the outer one of local SGD.  If it
    steps again before another one does (a penalty with a step of its own), that step belongs to the
    next round.  If the program has made one for other parameters that has not stepped yet, the
    round waits for it.

    Before a program captures a CUDA graph, it takes some steps on a stream of their own, as PyTorch
    asks it to.  Such steps begin and end no round, unless there are many.

    Attributes:
        waits: for such an optimizer, or for steps after such a warm-up.
    """

    NAME = "optimizer"
    #: Steps of others that a round waits for an optimizer.
    PATIENCE = 128
    #: Steps on a stream of their own before one is more than a warm-up; DDP needs 11.
    WARM_UPS = 16

    def __init__(self, steps: Steps, *, patient: bool = True) -> None:
        """Rounds whose ends are the steps'.

        Args:
            steps: that they end.
            patient: wait for optimizers that have not stepped.
        """
        self._steps = steps
        self._patient = patient
        self.waits = False
        self._calls = self._warm_ups = 0
        self._first: list[_Member] = []  # what steps in the first round, in its order
        self._known = False
        self._last: _Member | None = None  # what ends each round, where one does
        self._others = False  # whether another one has stepped since the last round ended
        self._made: WeakSet[Any] = WeakSet()

    @property
    def only(self) -> int:
        """The number of optimizer steps, if no optimizer has stepped twice; else 0."""
        return 0 if self._known else self._calls

    def made(self, optimizer: Any) -> None:
        """The program has made an optimizer."""
        self._made.add(optimizer)

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped; a hook of PyTorch's."""
        if self._warms_up():
            return
        self._calls += 1
        member = _Member(optimizer, _parameters(optimizer))
        if not self._known:
            if not self._first or not self._first[0].is_met_by(member):
                self._first.append(member)
                self._steps.may_begin(self.NAME, Kind.OPTIMIZER)
                return
            self._known = True
            self._end(began=True)
        elif not any(item.is_met_by(member) for item in self._first):
            self._first.append(member)
            self._last, self._others = member, True
            self._steps.forget(self.NAME)
        if self._last is None:
            ends = self._calls % len(self._first) == 0
        else:
            is_last = self._last.is_met_by(member)
            ends = is_last and self._others
            self._others = not is_last
        if ends:
            self._end()

    def _warms_up(self) -> bool:
        aside = self._patient and current_stream().stream_id != 0
        if not aside or self._warm_ups == self.WARM_UPS:
            return False
        self._warm_ups += 1
        self.waits = True
        capture().notice(
            f"an optimizer steps on a stream of its own{at_user_line()}, as before a CUDA graph is "
            "captured: a warm-up, not the step"
        )
        return True

    def _waits(self) -> bool:
        """Whether an optimizer is still to come; one made of others has their parameters.

        Ranks that share them out (ZeRO) may have an optimizer without any.
        """
        seen = {item for one in self._first for item in one.parameters | _parameters(one.optimizer)}
        to_come = [(one, _parameters(one)) for one in self._made]
        late = [one for one, own in to_come if own and seen.isdisjoint(own)]
        self.waits = bool(late) and self._patient and self._calls <= self.PATIENCE
        if late and not self.waits:
            capture().notice(
                f"an optimizer ({type(late[0]).__name__}) has not stepped in the first "
                f"{self._calls} steps of others: the step is one of theirs"
            )
            self._made.clear()
        return self.waits

    def _end(self, *, began: bool = False) -> None:
        if self._last is None and self._waits():
            return
        several = {id(item.optimizer): item.optimizer for item in self._first}
        kinds = ", ".join(type(item).__name__ for item in several.values())
        self._steps.ended(self.NAME, Kind.OPTIMIZER, kinds, began=began)
