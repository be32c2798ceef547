"""Where a step begins and ends: from the end of one optimizer step to the end of the next.

The idea: optimizers step in a pattern (one of them, or a few in turn, or a container and those that
are in it), which repeats.  A step of the program is one round of the pattern.  Which round it is
becomes clear when the first optimizer comes again; until then, each end may be the one after which
the step begins, and recording starts anew.

    steps = OptimizerSteps(2, start, end)
    with steps.watching(): ...         # start() at the end of the first round, end() at the next
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from flint.frontends.torch.user_lines import at_user_line
from flint.launching.program import SeenStep

NAME = "optimizer"


class OptimizerSteps:
    """Rounds of optimizer steps."""

    def __init__(self, number: int, start: Callable[[], None], end: Callable[[], None]) -> None:
        """Watch for a round.

        Args:
            number: of the round that is recorded, from 1: the first whole one, from the end of the
                first to the end of the second, is 1.
            start: called where it may begin, the last time where it does.
            end: called at its end.
        """
        self._number, self._start, self._end = number, start, end
        self._calls = 0
        self._first: list[torch.optim.Optimizer] = []  # of the first round, in their order
        self._round = 0  # optimizers in a round; 0: not known yet
        self._place = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Within it, optimizers are watched."""
        handle = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            handle.remove()

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._place = self._place or at_user_line().removeprefix(" at ")
        self._calls += 1
        if not self._round:
            if not any(optimizer is item for item in self._first):
                self._first.append(optimizer)
                if self._number == 1:
                    self._start()
                return
            self._round = len(self._first)
        if self._calls == self._round * self._number > self._round:
            self._start()
        elif self._calls == self._round * (self._number + 1):
            self._end()

    def seen(self) -> list[SeenStep]:
        """The rounds that have ended."""
        if not self._first:
            return []
        kinds = ", ".join(type(item).__name__ for item in self._first)
        return [
            SeenStep(
                name=NAME,
                count=self._calls // (self._round or len(self._first)),
                place=self._place,
                what=f"from the end of one optimizer step to the end of the next ({kinds})",
            )
        ]
