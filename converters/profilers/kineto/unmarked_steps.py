"""Steps of a profile that marks none, as ``torch.profiler`` without a schedule leaves it.

The idea: every optimizer notes its own step.  One after which a backward pass follows is the last
of its step of training, and what comes then is the next step, or the end of this one (a loss that
is averaged, gradients that are set to zero).  The first step tells which: the profile begins with
it, so the next begins where the ops are again as in the beginning.

    events.steps.extend(steps_of(events))       # [(0, 70, "step#0"), (80, 150, "step#1")]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from flint.converters.profilers.kineto.events import Events, Op

#: How a note of an optimizer begins, and an op of the backward pass.
UPDATE: Final = "Optimizer.step#"
_BACKWARD: Final = "autograd::engine::evaluate_function"
#: So many ops that follow each other are enough to know a step's begin by.
_ALIKE: Final = 16


def steps_of(events: Events) -> list[tuple[int, int, str]]:
    """Begin, end and name of each step, in order; none where there are fewer than two.

    Args:
        events: of one process, without marks.
    """
    ops = sorted(events.ops, key=lambda op: (op.start, -op.duration))
    noted = [(op.start, op.start + op.duration) for op in ops if op.name.startswith(UPDATE)]
    updates = sorted([*events.updates, *noted])
    ends = _ends(updates, [op.start for op in ops if op.name.startswith(_BACKWARD)])
    if len(ends) < 2:
        return []
    issued = _outermost(ops, *updates[0])
    starts = [op.start for op in issued]
    parts = [0, *(bisect_left(starts, end) for end in ends)]
    if len(set(parts)) < len(parts):
        return []  # a step in which the calling thread does nothing is none
    begin = [op.name for op in issued[: min(_ALIKE, parts[1])]]
    begins = [
        _begin([op.name for op in issued[first:last]], begin) + first
        for first, last in pairwise(parts)
    ]
    after_all = begins[-1] > parts[-2]  # something follows the optimizer's step, of the last, too
    bounds = [starts[place] for place in begins]
    over = max(op.start + op.duration for op in ops) + 1
    bounds[0], last = min(bounds[0], ops[0].start), over if after_all else ends[-1]
    return [
        (start, end, f"step#{number}")
        for number, (start, end) in enumerate(zip(bounds, [*bounds[1:], last], strict=True))
    ]


def _ends(updates: Sequence[tuple[int, int]], backward: Sequence[int]) -> list[int]:
    """Ends of the optimizers' steps after which a backward pass begins, and of the last one."""
    found = []
    for (_, end), (following, _) in pairwise(updates):
        if bisect_right(backward, following) > bisect_left(backward, end):
            found.append(end)
    return [*found, updates[-1][1]] if updates else []


def _outermost(ops: Sequence[Op], begin: int, end: int) -> list[Op]:
    """Ops inside of no other, on the thread that calls the optimizer.

    Args:
        ops: in order.
        begin, end: of the optimizer's first step.
    """
    calling = next((op.thread for op in ops if begin <= op.start < end), ops[0].thread)
    found: list[Op] = []
    over = -1
    for op in ops:
        if op.thread == calling and op.start >= over:
            found.append(op)
            over = op.start + op.duration
    return found


def _begin(names: Sequence[str], begin: Sequence[str]) -> int:
    """The first place at which names go on like the begin of the first step; 0 without any."""
    places = range(len(names) - len(begin) + 1)
    return next((at for at in places if list(names[at : at + len(begin)]) == list(begin)), 0)
