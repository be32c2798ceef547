"""Units: what becomes a node, one per kernel on a device, one per op that does work on a host.

The idea: on a device the kernels are what ran; of a collective's kernels one unit is made, whatever
the library split it into.  On a host (and in execution traces without kernels) units are the
innermost ops that do work themselves, as in ``observed.selection``.  Units stand in the
order in which the host issued them, which is the one order that every dependency follows: streams
are first in, first out, and no unit waits for what is issued later.

    units.facts[units.fact[0]].kind, units.duration[0]
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.mesh.ragged import Ints
from flint.observed.columns import OpFacts

#: Libraries that communicate on devices, by their kernels' names; all-reduces of other makers.
_COLLECTIVE_KERNEL = re.compile(
    r"nccl|rccl|oneccl|hccl|msccl|multimem_|cross_device_reduce|(one|two)_?shot_?all_?reduce"
    r"|custom_?all_?reduce|all_?reduce_fusion|quick_?reduce",
    re.IGNORECASE,
)
#: Libraries whose kernels exchange what no op tells of.
_EXCHANGING_KERNEL = re.compile(
    r"deep_?ep\b|\b(deep_ep|dpsk::ep)::|\b(inter|intra)node(_ll)?::|(nv|roc)shmem", re.IGNORECASE
)
#: So far an op is looked for among those around it.
_DEPTH = 64
#: Columns of ``Units`` that have a number or a mark per unit.
COLUMNS = (
    "name", "fact", "row", "start", "duration", "issued", "launch", "thread", "stream",
    "collective",
)  # fmt: skip
#: A unit that runs on no stream that orders it.
NO_STREAM = -1


@dataclass(frozen=True, eq=False)
class Units:
    """One rank's step, in order of issue.

    Attributes:
        path: the trace, for messages.
        rank: whose it is.
        device: whether units are kernels on a device.
        timed: whether ``start`` and ``duration`` are known.
        names: what ``name`` points into.
        name: of the kernel, or of the op where there are no kernels; shape [units].
        facts: what ``fact`` points into.
        fact: what is known of the op that issued it; shape [units].
        row: that op's row in ``Observed``, -1 for none; shape [units].
        start, duration: nanoseconds, -1 unknown; shape [units].
        issued: when the host issued it (ns, or a count where the trace has no times).
        launch: when the host called for it, ns; -1 where the trace does not tell, and on a host;
            shape [units].
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
        """When each was over, ns."""
        return self.start + np.maximum(self.duration, 0)

    def taken(self, order: Ints) -> Units:
        """These units in this order."""
        chosen: dict[str, Any] = {name: getattr(self, name)[order] for name in COLUMNS}
        return replace(self, **chosen)


def around(parent: Ints, marked: NDArray[np.bool_]) -> Ints:
    """Of each row the innermost marked one that is it or encloses it, -1 for none."""
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
    """Of each fact whether it is so."""
    return np.array([bool(test(fact)) for fact in facts], bool)


def exchanging(units: Units) -> NDArray[np.bool_]:
    """Which kernels are of a library that exchanges by itself, as DeepEP and NVSHMEM do."""
    names = np.array([bool(_EXCHANGING_KERNEL.search(name)) for name in units.names], bool)
    return names[units.name]


def of_library(units: Units) -> NDArray[np.bool_]:
    """Which kernels are those of a library that communicates."""
    names = np.array([bool(_COLLECTIVE_KERNEL.search(name)) for name in units.names], bool)
    return names[units.name]


#: Share of a step's time in which nothing ran, from which on there is a warning.
_IDLE = 0.1


def say_idle(units: Units, warnings: dict[str, int]) -> None:
    """Say in how much of the step nothing ran that the graph has."""
    if not units.timed:
        return
    order = np.argsort(units.start, kind="stable")
    reached = np.maximum.accumulate(units.end[order])
    gaps = np.maximum(units.start[order][1:] - reached[:-1], 0).sum()
    span = int(reached[-1] - units.start[order][0])
    if span and gaps / span > _IDLE:
        what = (
            "nothing ran on the device",
            "waiting for the host; execution traces leave this time out",
        )
        if not units.device:
            what = "no op ran", "between ops and around them; execution traces leave this time out"
        text = (
            f"rank {units.rank}: {what[0]} in {gaps / span:.0%} of the step's "
            f"{span / 1e6:.1f} ms, {what[1]}"
        )
        warnings[text] = 1
