"""Trainings of a program, one after the other: a search for a learning rate, then the training.

The idea: the step is found in the first loop that updates, and the program may have another one
behind it.  The code that runs next is that behind the loops of the calls on the stack; if it calls
methods named ``backward`` and ``step``, as trainings do, the program goes on for a while, and its
next training has the step.

    trainings = Trainings(steps, leave)
    trainings.stepped(optimizer)         # a hook of PyTorch's
    trainings.goes_on(Kind.OPTIMIZER)    # True: this step may be a search's
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import without_modes
from flint.frontends.torch.programs.rounds import OptimizerRounds
from flint.frontends.torch.programs.steps import Kind, Steps
from flint.frontends.torch.recording.tracking import Tracker
from flint.launching.code_behind import (
    TRAINS_EACH_ROUND,
    Behind,
    Calls,
    calls_of,
    loop_around,
    owners_of,
    trainings_behind,
)

#: The methods that a training calls: of a loss, a scaler or an engine, and of an optimizer.
_WAYS = (("backward", "step"),)


class Trainings:
    """Rounds of optimizer steps, of one training after the other.

    Attributes:
        rounds: of the present one.
    """

    #: Optimizer steps of one training that are waited for the next one.  Searches for a learning
    #: rate have about a hundred.
    PATIENCE = 128

    def __init__(self, steps: Steps, leave: Callable[[], None], patient: bool = True) -> None:
        """The first training, whose steps end here.

        Args:
            steps: that rounds end.
            leave: called when a step was kept and no other training has begun.
            patient: wait for the next training, and in each for optimizers that have not stepped.
        """
        self._steps, self._leave, self._patient = steps, leave, patient
        self._calls, self._number = 0, 1
        self._behind: tuple[Behind, ...] = ()
        self._kept, self._waits, self._has_made = "", False, False
        self._made: dict[int, Calls] = {}
        self._loop = ""
        self.rounds = OptimizerRounds(steps, patient=patient)

    @property
    def only(self) -> int:
        """The number of optimizer steps, if no optimizer has stepped twice; else 0."""
        return self.rounds.only if self._number == 1 else 0

    @property
    def waits(self) -> str:
        """The name of the rounds if they wait for an optimizer or the end of a warm-up."""
        return self.rounds.name if self.rounds.waits else ""

    @property
    def has_step(self) -> bool:
        """Whether a step has been kept, because another training may follow."""
        return bool(self._kept)

    @property
    def _is_over(self) -> bool:
        """Whether the next training is no longer waited for."""
        return self._waits and self._calls > self.PATIENCE

    def made(self, optimizer: Any) -> None:
        """The program has made an optimizer."""
        self._has_made = True
        self._made[id(optimizer)] = calls_of(sys._getframe(1))
        self.rounds.made(optimizer)

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped; a hook of PyTorch's."""
        if any(one.is_reached() for one in self._behind):
            self._begin_next()
        self._calls += 1
        if self._calls == 2:  # the program is in its loop, if not before
            frame = sys._getframe(1)
            with without_modes():  # Dynamo, which may run the program's code, would trace it
                made = self._made.get(id(optimizer), {})
                self._behind = trainings_behind(frame, _WAYS, made)
                self._loop = loop_around(made, frame)
                self.rounds.expect(owners_of(frame, "step"))
        self.rounds.stepped(optimizer)
        if self._is_over:
            self._leave()

    def goes_on(self, kind: Kind) -> bool:
        """Whether a step that has ended is only kept, because another training may follow."""
        if kind is not Kind.OPTIMIZER:
            return False
        self._kept = self.rounds.name
        self._waits = self._patient and bool(self._behind) and self._calls <= self.PATIENCE
        return self._waits

    def caught(self, tracker: Tracker) -> BaseException | None:
        """An error of a model that the program has caught, and has not trained behind it."""
        return tracker.failed if self._has_made and not self.has_step else None

    def failed(self, error: BaseException) -> None:
        """The program has failed; a step that was kept is not concerned."""
        if self._kept:
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            capture().notice(f"the program failed behind the step ({self._kept}): {said}")
            self._leave()

    def note(self) -> None:
        """Say which training the step is of, and which others there are."""
        if self._patient:
            self.rounds.note()
        seen = {name: one for name, one in self._steps.of_optimizers() if one.ends > 1}
        others = [f"{name} at {one.place}" for name, one in seen.items() if name != self._kept]
        if self._is_over:
            next_one = f"{OptimizerRounds.NAME}-{self._number + 1}"
            others += [f"{next_one} at {one.place}, not begun yet" for one in self._behind[:1]]
        if self._kept and self._patient and others:
            capture().notice(
                f"the program trains more than once: the step is {self._kept} at "
                f"{seen[self._kept].place}; --step NAME captures another: {', '.join(others)}"
            )
        if self._kept and self._patient and self._loop:
            capture().notice(TRAINS_EACH_ROUND.format(self._loop, "an optimizer"))

    def _begin_next(self) -> None:
        self._number += 1
        self._calls, self._behind = 0, ()
        self._steps.over(self.rounds.name)
        self.rounds = self.rounds.next(f"{OptimizerRounds.NAME}-{self._number}")
