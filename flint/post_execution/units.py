"""Units: what becomes a node, one per kernel on a device, one per op that does work on a host.

The idea: on a device the kernels are what ran; all kernels of a collective become one unit.  On a
host (and in execution traces without kernels) units are the innermost ops that do work themselves,
as in ``observed.selection``.  Units are in the order in which the host issued them, which every
dependency follows: streams are first in, first out, and no unit waits for one that is issued later.

    units.facts[units.fact[0]].kind, units.duration[0]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.host.readable import human_seconds
from flint.mesh.ragged import Ints
from flint.observed.columns import OpFacts
from flint.observed.exchanging_kernels import COLLECTIVE_KERNEL, EXCHANGING_KERNEL

#: The most enclosing ops that are searched for an op.
_DEPTH = 64
#: Columns of ``Units`` that have a number or a mark per unit.
COLUMNS = (
    "name", "fact", "row", "start", "duration", "issued", "launch", "thread", "stream",
    "collective",
)  # fmt: skip
#: Stream of a unit that no stream orders.
NO_STREAM = -1


@dataclass(frozen=True, eq=False)
class Units:
    """One rank's step, in order of issue.

    Attributes:
        path: the trace, for messages.
        rank: the rank.
        device: whether units are kernels on a device.
        timed: whether ``start`` and ``duration`` are known.
        names: the strings that ``name`` indexes.
        name: name of the kernel, or of the op if there are no kernels; shape [units].
        facts: the facts that ``fact`` indexes.
        fact: facts about the op that issued it; shape [units].
        row: that op's row in ``Observed``, -1 for none; shape [units].
        start, duration: nanoseconds, -1 if unknown; shape [units].
        issued: when the host issued it (ns, or a count if the trace has no times).
        launch: when the host launched it, ns; -1 if not recorded, and on a host; shape [units].
        thread: the host thread that issued it; shape [units].
        stream: stream that orders it, or ``NO_STREAM``; shape [units].
        collective: whether it communicates; shape [units].
        notes: text -> count.
    """

    path: str
    rank: int
    device: bool
    timed: bool
    names: tuple[str, ...]
    name: Ints
    facts: tuple[OpFacts, ...]
    fact: Ints
    row: Ints
    start: Ints
    duration: Ints
    issued: Ints
    launch: Ints
    thread: Ints
    stream: Ints
    collective: NDArray[np.bool_]
    notes: dict[str, int]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def end(self) -> Ints:
        """When each ended, ns."""
        return self.start + np.maximum(self.duration, 0)

    def taken(self, order: Ints) -> Units:
        """These units in this order."""
        chosen: dict[str, Any] = {name: getattr(self, name)[order] for name in COLUMNS}
        return replace(self, **chosen)


def around(parent: Ints, marked: NDArray[np.bool_]) -> Ints:
    """For each row, the innermost marked row that is or encloses it, -1 for none."""
    found = np.where(marked, np.arange(len(parent)), -1)
    outer = parent.copy()
    for _ in range(_DEPTH):
        open_ = np.flatnonzero((found < 0) & (outer >= 0))
        if not len(open_):
            break
        at = outer[open_]
        found[open_] = found[at]
        outer[open_] = np.where(found[at] >= 0, outer[open_], parent[at])
    return found


def by_fact(facts: tuple[OpFacts, ...], test: Callable[[OpFacts], bool]) -> NDArray[np.bool_]:
    """For each fact, whether the test holds."""
    return np.array([bool(test(fact)) for fact in facts], bool)


def exchanging(units: Units) -> NDArray[np.bool_]:
    """Which kernels belong to a library that exchanges data itself, such as DeepEP and NVSHMEM."""
    names = np.array([bool(EXCHANGING_KERNEL.search(name)) for name in units.names], bool)
    return names[units.name]


def of_library(units: Units) -> NDArray[np.bool_]:
    """Which kernels belong to a communication library."""
    names = np.array([bool(COLLECTIVE_KERNEL.search(name)) for name in units.names], bool)
    return names[units.name]


#: A warning is given if nothing ran in at least this share of a step's time.
_IDLE = 0.1
#: Larger shares are not rounded: something ran.
_MOST = 0.99


def say_idle(units: Units, warnings: dict[str, int]) -> None:
    """Note in how much of the step no unit ran."""
    if not units.timed:
        return
    order = np.argsort(units.start, kind="stable")
    reached = np.maximum.accumulate(units.end[order])
    gaps = np.maximum(units.start[order][1:] - reached[:-1], 0).sum()
    span = int(reached[-1] - units.start[order][0])
    if span and gaps / span > _IDLE:
        what = (
            "nothing ran on the device",
            "execution traces leave this time out (flint explain shows what it waited for)",
        )
        if not units.device:
            what = "no op ran", "between ops and around them; execution traces leave this time out"
        share = f"{gaps / span:.0%}" if gaps / span < _MOST else f"more than {_MOST:.0%}"
        took = human_seconds(span / 1e9)
        text = f"rank {units.rank}: {what[0]} in {share} of the step's {took}, {what[1]}"
        warnings[text] = 1
