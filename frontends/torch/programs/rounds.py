"""Rounds of optimizer steps, whose ends are those of a program's steps (``steps.py``).

rounds = OptimizerRounds(steps)
rounds.stepped(optimizer)            # a hook of PyTorch's: a round may end here
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch

from flint.frontends.torch.cluster.device import current_stream
from flint.frontends.torch.context import capture
from flint.frontends.torch.programs.steps import Kind, Steps
from flint.frontends.torch.user_lines import at_user_line


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
    next round.  If the program has made one that has not stepped yet, for other parameters or with
    a step in the code that runs, the round waits for it.  If the first one never comes again
    (another optimizer's warm-up), rounds are those of the others.

    Before a program captures a CUDA graph, it takes some steps on a stream of their own, as PyTorch
    asks it to.  Such steps begin and end no round, unless there are many.

    Attributes:
        name: the name of these steps.
        waits: for such an optimizer, for the first one again, or for steps after such a warm-up.
    """

    NAME = "optimizer"
    #: Steps of others that a round waits for an optimizer.
    PATIENCE = 128
    #: Steps on a stream of their own before one is more than a warm-up; DDP needs 11.
    WARM_UPS = 16

    def __init__(self, steps: Steps, *, patient: bool = True, name: str = NAME) -> None:
        """Rounds whose ends are the steps'.

        Args:
            steps: that they end.
            patient: wait for optimizers that have not stepped.
            name: the name of these steps.
        """
        self.name = name
        self._steps = steps
        self._patient = patient
        self.waits = False
        self._calls = self._warm_ups = 0
        self._first: list[_Member] = []  # what steps in the first round, in its order
        self._known = False
        self._last: _Member | None = None  # what ends each round, where one does
        self._others = False  # whether another one has stepped since the last round ended
        self._made: WeakSet[Any] = WeakSet()
        self._in_code: WeakSet[Any] = WeakSet()

    @property
    def only(self) -> int:
        """The number of optimizer steps, if no optimizer has stepped twice; else 0."""
        return 0 if self._known else self._calls

    def next(self, name: str) -> OptimizerRounds:
        """Rounds of a training behind this one, with the optimizers that have not stepped."""
        rounds = OptimizerRounds(self._steps, patient=self._patient, name=name)
        stepped = {id(item.optimizer) for item in self._first}
        for optimizer in self._made:
            if id(optimizer) not in stepped:
                rounds.made(optimizer)
        return rounds

    def made(self, optimizer: Any) -> None:
        """The program has made an optimizer."""
        self._made.add(optimizer)

    def expect(self, owners: Iterable[Any]) -> None:
        """The code that runs has a step of these: optimizers, or what holds one (accelerate's)."""
        held = (vars(one).values() for one in owners if hasattr(one, "__dict__"))
        there = {id(one) for one in itertools.chain(owners, *held)}
        self._in_code.update(one for one in self._made if id(one) in there)

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped; a hook of PyTorch's."""
        if self._warms_up():
            return
        self._stepped(_Member(optimizer, _parameters(optimizer)))

    def _stepped(self, member: _Member) -> None:
        self._calls += 1
        if not self._known:
            if not self._first or not self._first[0].is_met_by(member):
                if self._is_without_first(member):
                    return
                self._first.append(member)
                self._steps.may_begin(self.name, Kind.OPTIMIZER)
                return
            self._known = True
            self._end(began=True)
        elif not any(item.is_met_by(member) for item in self._first):
            self._first.append(member)
            self._last, self._others = member, True
            self._steps.forget(self.name)
        if self._last is None:
            ends = self._calls % len(self._first) == 0
        else:
            is_last = self._last.is_met_by(member)
            ends = is_last and self._others
            self._others = not is_last
        if ends:
            self._end()

    def _is_without_first(self, member: _Member) -> bool:
        """Whether the first one is taken not to come again; the rounds then begin anew."""
        rest = self._first[1:]
        if not any(item.is_met_by(member) for item in rest):
            return False
        self.waits = self._patient and self._calls <= self.PATIENCE
        if self.waits:
            return False
        capture().notice(
            f"an optimizer ({type(self._first[0].optimizer).__name__}) has stepped once, before "
            "others that step again and again: the step is one of theirs"
        )
        self._first, self._calls = [], 0
        for item in (member,) if self._patient else (*rest, member):
            self._stepped(item)
        return True

    def _warms_up(self) -> bool:
        backward = (
            torch._C._current_graph_task_id() >= 0
        )  # whose hooks update, on streams of its own
        aside = self._patient and current_stream().stream_id != 0 and not backward
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

        So has the outer one of local SGD, which a step in the code tells from one made of others or
        replaced.  Ranks that share parameters out (ZeRO) may have an optimizer without any.
        """
        stepped = {id(one.optimizer) for one in self._first}
        seen = {item for one in self._first for item in one.parameters | _parameters(one.optimizer)}
        to_come = [(one, _parameters(one)) for one in self._made if id(one) not in stepped]
        late = [
            one for one, own in to_come if own and (one in self._in_code or seen.isdisjoint(own))
        ]
        self.waits = bool(late) and self._patient and self._calls <= self.PATIENCE
        if late and not self.waits:
            capture().notice(
                f"an optimizer ({type(late[0]).__name__}) has not stepped in the first "
                f"{self._calls} steps of others: the step is one of theirs"
            )
            self._made.clear()
            self._in_code.clear()
        return self.waits

    def note(self) -> None:
        """Name optimizers of the same parameters that have not stepped: no round waits for them.

        An outer one of local SGD is such, and one that the program has replaced.
        """
        stepped = {id(item.optimizer) for item in self._first}
        seen = {item for one in self._first for item in one.parameters}
        for one in self._made:
            if id(one) not in stepped and not seen.isdisjoint(_parameters(one)):
                capture().notice(
                    f"an optimizer ({type(one).__name__}) of the same parameters has not stepped: "
                    "if it steps after several of another, as in local SGD, it is not in the step; "
                    "with flint.step() behind it, --step step captures them all"
                )

    def _end(self, *, began: bool = False) -> None:
        if self._last is None and self._waits():
            return
        several = {id(item.optimizer): item.optimizer for item in self._first}
        kinds = ", ".join(type(item).__name__ for item in several.values())
        self._steps.ended(self.name, Kind.OPTIMIZER, kinds, began=began)
