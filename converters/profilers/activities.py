"""Profilers of devices alone -> observed ops: kernels, calls, and the ranges that programs mark.

The idea: what such profilers record (CUPTI's and ROCprofiler's activities) are the device events
and calls of a Kineto trace, and ranges (NVTX, ROCTX) correspond to its ops: those of PyTorch's
``emit_nvtx`` have shapes, those of NCCL bytes and communicators, those of users only names.  So a
reader adds a rank's events, and this module makes a Kineto trace's rows of them.

    events = Events.empty([], LinksBuilder())
    Ranges(events).add("aten::mm, seq = 3, op_id = 7", thread, 0, 20)
    observed, links = finished(events, rows, source, {})
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from flint.converters.profilers.kineto.events import LATEST, Events, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups
from flint.converters.profilers.kineto.marks import mark
from flint.converters.profilers.kineto.rows import add_ops, stand_in
from flint.converters.profilers.ranges import described
from flint.errors import FlintError
from flint.observed.columns import UNKNOWN_RANK, Hints, Observed
from flint.observed.rows import ObservedRows
from flint.post_execution.links import Links

#: Names of steps in programs, PyTorch Lightning and DeepSpeed.
_STEP: Final = re.compile(
    r"(ProfilerStep#|(train(ing)?[ _:.-]*)?(step|iter(ation)?|batch)[ _:#=.-]*)\d{1,12}",
    re.IGNORECASE,
)
_RANK: Final = re.compile(r"rank[-_.]?(\d{1,7})", re.IGNORECASE)
#: The most characters of a device's name.
_LONGEST_NAME: Final = 80


@dataclass(frozen=True, slots=True)
class Source:
    """Where the events of a rank are from.

    Attributes:
        path: the file.
        form: what is read, as ``Observed.form``.
        process: the number of its process.
        rank: its rank.
        stated: whether the library of collectives or the file's name gives the rank.
        world: number of ranks of the run; None if not known.
        base: the time of 0, nanoseconds since 1970; 0 if not known.
        device: the device's name.
        hints: how to record more.
        numbered: what to say if ranks are only numbered.
        no_ranges: what to say if there are no ranges.
        nothing: what to say if nothing ran on a device.
        notes: what else to say.
    """

    path: Path
    form: str
    process: int
    rank: int
    stated: bool
    world: int | None
    base: int
    device: str
    hints: Hints
    numbered: str
    no_ranges: str
    nothing: str
    notes: tuple[str, ...] = ()


class Ranges:
    """Adds ranges to a rank's events: ops, steps and lines of the user's code."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._numbers: dict[str, int] = {}

    def step(self, name: str, start: int, duration: int) -> bool:
        """Add a range as a step if it is named like one."""
        if not _STEP.fullmatch(name):
            return False
        self._events.steps.append((start, start + duration, name))
        return True

    def add(
        self,
        name: str,
        thread: object,
        start: int,
        duration: int,
        collective: dict[str, Any] | None = None,
    ) -> None:
        """Add a range that encloses what its thread does.

        Args:
            name: its text.
            thread: its thread.
            start, duration: nanoseconds.
            collective: facts about it if it is a call of NCCL or RCCL, in Kineto's form.
        """
        if collective is not None:
            name, arguments = RECORD, collective
        else:
            name, arguments, frame = described(name)
            if frame:
                assert self._events.links is not None
                self._events.links.frame(frame, thread, start, duration)
            if not name:
                return
        key = f"{name} {arguments}"
        place = self._numbers.setdefault(key, len(self._events.arguments))
        if place == len(self._events.arguments):
            self._events.arguments.append(arguments)
        self._events.ops.append(Op(start, duration, thread, name, None, -1, place))


def finished(
    events: Events, source: Source, groups: Mapping[str, tuple[int, ...]]
) -> tuple[Observed, Links]:
    """A rank's rows and links.

    Args:
        events: what its process did.
        source: where they are from.
        groups: the ranks of process groups.

    Raises:
        FlintError: nothing ran on a device, or events of several processes are mixed up.
    """
    assert events.links is not None
    rows = ObservedRows(f"{source.path} (process {source.process})")
    for note in source.notes:
        rows.note(note)
    if not source.stated:
        rows.note(source.numbered if source.rank else UNKNOWN_RANK)
    if not events.ops:
        if not events.kernels:
            raise FlintError(f"{source.path}: {source.nothing}")
        stand_in(events)
        rows.note(source.no_ranges)
    events.steps.sort()
    mark(events, rows, "no range in the profile is named like a step")
    steps = tuple(step[2] for step in events.steps) or ("whole trace",)
    add_ops(rows, events, Groups(dict(groups), False), source.rank, range(len(steps)))
    observed = rows.finish(
        form=source.form, backend="gpu", world=source.world, steps=steps, base=source.base
    )
    observed = replace(observed, device=source.device[:_LONGEST_NAME], hints=source.hints)
    return observed, events.links.finish(dict(groups), events.steps, source.base)


def span(start: object, end: object) -> tuple[int, int] | None:
    """Start and duration of what has these times, in nanoseconds; None if it has none."""
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < LATEST:
        return None
    return start, min(max(0, end - start), LATEST)


def ranks_of_names(paths: Sequence[Path]) -> list[int] | None:
    """The ranks that the files' names give; None unless each gives another."""
    found = [_RANK.search(path.name) or _RANK.search(path.parent.name) for path in paths]
    ranks = [int(match[1]) for match in found if match is not None]
    return ranks if len(set(ranks)) == len(paths) else None
