"""The step of a trace that is converted: the requested one, else the last with work in it.

chosen_step(trace, links, None)          # (number, units)
chosen_step(*as_one_step(trace, links), ALL_STEPS)     # the whole trace
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.errors import FlintError, UsageError
from flint.host.readable import listed
from flint.observed.columns import REPEATED, UNMARKED, Observed
from flint.observed.steps import numbered
from flint.post_execution.around_ops import with_work_of_others
from flint.post_execution.host_units import host_units
from flint.post_execution.kernel_units import kernel_units
from flint.post_execution.links import Links
from flint.post_execution.units import Units

#: ``--step`` for the whole trace.
ALL_STEPS: Final = "all"
_UNMARKED: Final = (UNMARKED, REPEATED)
#: The most steps that a note names.
_NAMED = 8


def chosen_step(trace: Observed, links: Links | None, wanted: str | None) -> tuple[int, Units]:
    """The step to convert and its units: the requested one, else the last with work in it.

    Args:
        trace: the trace with its steps.
        links: links of the same trace; None for execution traces.
        wanted: ``ProfilerStep#4``, ``4``, ``ALL_STEPS`` (for a trace with one step), or None.

    Raises:
        UsageError: no such step.
        FlintError: nothing ran in it, or several ranks are in the trace.
    """
    if len(trace.ranks) != 1:
        raise FlintError(
            f"{trace.path}: {len(trace.ranks)} ranks in one PyTorch trace, which should have one"
        )
    numbers = list(range(len(trace.steps)))[::-1]
    if wanted not in (None, ALL_STEPS):
        named = numbered(trace.steps, wanted)
        if named is None:
            raise UsageError(
                f"--step {wanted}: {trace.path} has the steps {listed(trace.steps, _NAMED)}"
            )
        numbers = [named]
    for number in numbers:
        found = _units_of(trace, links, number)
        if len(found):
            skipped = numbers[: numbers.index(number)]
            if skipped:
                empty = listed([trace.steps[other] for other in reversed(skipped)], _NAMED)
                found.notes[f"steps at the end in which nothing ran ({empty}): left out"] = 1
            unmarked = [text for text in _UNMARKED if trace.notes.pop(text, 0)]
            if wanted is None and unmarked:
                found.notes[
                    f"{unmarked[0]}: {trace.steps[number]} of {len(trace.steps):,} is converted; "
                    f"--step {(number or len(trace.steps)) - 1} takes another, --step all the "
                    "whole trace"
                ] = 1
            return number, found
    names = trace.steps[numbers[0]] if len(numbers) == 1 else "any step"
    raise FlintError(f"{trace.path}: nothing ran in {names}")


def as_one_step(trace: Observed, links: Links | None) -> tuple[Observed, Links | None]:
    """The trace as a single step."""
    notes = {text: count for text, count in trace.notes.items() if text not in _UNMARKED}
    step = np.zeros(len(trace), np.int64)
    trace = replace(trace, step=step, steps=("whole trace",), notes=notes)
    return trace, links if links is None else replace(links, steps=())


def _units_of(trace: Observed, links: Links | None, step: int) -> Units:
    """The units of a step.

    Args:
        trace: one rank's trace.
        links: of the same trace; None of execution traces.
        step: index into ``trace.steps``.
    """
    trace = with_work_of_others(trace)
    rows = np.flatnonzero(trace.step == step)
    if links is not None and len(links.kernel_row):
        return kernel_units(trace, links, rows, step)
    return host_units(trace, links, rows)
