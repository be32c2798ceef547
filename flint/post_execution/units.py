"""Units: what becomes a node, one per kernel on a device, one per op that does work on a host.

The idea: on a device the kernels are what ran; of a collective's kernels one unit is made, whatever
the library split it into.  On a host (and in execution traces without kernels) units are the
innermost ops that do work themselves, as in ``observed.selection``.  Units stand in the
order in which the host issued them, which is the one order that every dependency follows: streams
are first in, first out, and nobody waits for what is issued later.

    units = units_of(observed, links, step=3)
    units.facts[units.fact[0]].kind, units.duration[0]
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError, UsageError
from flint.graph.distinct import distinct
from flint.observed.classes import OpClass
from flint.observed.columns import Observed, OpFacts
from flint.post_execution.host_device_links import Links

Ints = NDArray[np.int64]

#: Libraries that communicate on devices, by their kernels' names.
_COLLECTIVE_KERNEL = re.compile(r"nccl|rccl|oneccl|hccl|msccl", re.IGNORECASE)
#: Host ops of unknown class that are no kernels themselves: they call others.
_WRAPPERS = ("autograd::", "torch::", "c10d::", "_c10d_functional", "Optimizer.", "ProfilerStep")
#: Annotations of gloo's own work.
_GLOO = "gloo:"
#: So far an op is looked for among those around it.
_DEPTH = 64
NO_EXCHANGE = (
    "communication kernels that belong to no recorded collective, or to a kind that execution "
    "traces lack (gather, scatter, barrier): kept as compute"
)
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
        columns = ("name", "fact", "row", "start", "duration", "issued", "thread", "stream")
        chosen: dict[str, Any] = {name: getattr(self, name)[order] for name in columns}
        return replace(self, **chosen, collective=self.collective[order])


def chosen_step(trace: Observed, wanted: str | None) -> int:
    """The step to convert: the one that is named, else the last whole one.

    Args:
        trace: its steps.
        wanted: ``ProfilerStep#4``, ``4``, or None.

    Raises:
        UsageError: no such step.
    """
    if wanted is not None:
        for number, name in enumerate(trace.steps):
            if wanted in (name, name.rpartition("#")[2]):
                return number
        raise UsageError(
            f"--step {wanted}: {trace.path} has the steps {', '.join(trace.steps[:8])}"
        )
    whole = [number for number in range(len(trace.steps)) if trace.whole[number]]
    return whole[-1] if whole else len(trace.steps) - 1


def units_of(trace: Observed, links: Links | None, step: int) -> Units:
    """The units of a step.

    Args:
        trace: one rank's trace.
        links: of the same trace; None of execution traces.
        step: index into ``trace.steps``.

    Raises:
        FlintError: nothing ran in the step, or several ranks are in the trace.
    """
    if len(trace.ranks) != 1:
        raise FlintError(
            f"{trace.path}: {len(trace.ranks)} ranks in one PyTorch trace, which should have one"
        )
    rows = np.flatnonzero(trace.step == step)
    if links is not None and len(links.kernel_row):
        found = _kernels(trace, links, rows, step)
    else:
        found = _host_ops(trace, links, rows)
    if not len(found):
        raise FlintError(f"{trace.path}: nothing ran in {trace.steps[step]}")
    return found


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


def _by_fact(facts: tuple[OpFacts, ...], test: Callable[[OpFacts], bool]) -> NDArray[np.bool_]:
    return np.array([bool(test(fact)) for fact in facts], bool)


def _kernels(trace: Observed, links: Links, rows: Ints, step: int) -> Units:
    facts = (*trace.facts, OpFacts(OpClass.OTHER, ""))
    nobody = len(trace.facts)
    row = links.kernel_row
    mine = trace.step[np.maximum(row, 0)] == step
    lonely = row < 0
    if lonely.any():
        when = np.where(links.kernel_launch >= 0, links.kernel_launch, links.kernel_start)
        low, high = links.steps[step] if links.steps else (0, np.iinfo(np.int64).max)
        inside = (when >= low) & (when < high)
        mine = np.where(lonely, inside, mine)
    kernel = np.flatnonzero(mine)
    row = row[kernel]
    launched = links.kernel_launch[kernel]
    issued = np.where(launched >= 0, launched, links.kernel_start[kernel])
    known = (launched < 0) & (row >= 0)
    issued[known] = links.issued[row[known]]
    thread = links.kernel_thread[kernel].copy()
    known = (thread < 0) & (row >= 0)
    thread[known] = links.thread[row[known]]
    plain = Units(
        path=trace.path,
        rank=trace.ranks[0],
        device=True,
        timed=True,
        names=links.names,
        name=links.kernel_name[kernel],
        facts=facts,
        fact=np.where(row >= 0, trace.op[np.maximum(row, 0)], nobody),
        row=row,
        start=links.kernel_start[kernel],
        duration=links.kernel_duration[kernel],
        issued=issued,
        thread=thread,
        stream=links.kernel_stream[kernel],
        collective=np.zeros(len(kernel), bool),
        notes={},
    )
    units = _with_collectives(plain, trace, links, rows)
    return units.taken(_issue_order(units))


def _with_collectives(units: Units, trace: Observed, links: Links, rows: Ints) -> Units:
    """One unit per collective in the place of its kernels."""
    talks = _by_fact(trace.facts, lambda fact: fact.kind.collective)[trace.op]
    alone = _by_fact(trace.facts, lambda fact: fact.group is not None and len(fact.group) == 1)
    holder = around(trace.parent, talks)
    outer = trace.parent[np.flatnonzero(talks)]
    above = holder[outer[outer >= 0]]
    innermost = talks.copy()
    innermost[above[above >= 0]] = False
    wanted = rows[innermost[rows] & ~alone[trace.op[rows]]]
    library = of_library(units)
    owner = np.where(library & (units.row >= 0), holder[np.maximum(units.row, 0)], -1)
    owner[~np.isin(owner, wanted)] = -1
    orphan = np.flatnonzero(library & (owner < 0))
    silent = wanted[~np.isin(wanted, owner)]
    kernel = _batches(units, links, silent, orphan)
    others = np.setdiff1d(np.flatnonzero(owner < 0), kernel[kernel >= 0])
    chosen = np.flatnonzero(owner >= 0)
    by_itself = alone[np.append(trace.op, 0)][np.where(holder >= 0, holder, 0)[units.row]]
    unknown = int((library[others] & ~by_itself[others]).sum())
    if unknown:
        units.notes[NO_EXCHANGE] = unknown
    parts = [units.taken(others)]
    if len(chosen):
        parts.append(_merged(units, chosen, owner[chosen], trace))
    if len(silent):
        parts.append(_silent(units, trace, links, silent, kernel))
    return _joined(units, parts)


def of_library(units: Units) -> NDArray[np.bool_]:
    """Which kernels are those of a library that communicates."""
    names = np.array([bool(_COLLECTIVE_KERNEL.search(name)) for name in units.names], bool)
    return names[units.name]


def _batches(units: Units, links: Links, silent: Ints, orphan: Ints) -> Ints:
    """Of collectives without a kernel the one that ran them: the next that is nobody's; else -1.

    Messages of one batch are recorded one by one and launched as one kernel at its end.
    """
    found = np.full(len(silent), -1, np.int64)
    if len(orphan) and len(silent):
        by_issue = orphan[np.argsort(units.issued[orphan], kind="stable")]
        place = np.searchsorted(units.issued[by_issue], links.issued[silent])
        inside = place < len(by_issue)
        found[inside] = by_issue[place[inside]]
    return found


def _merged(units: Units, chosen: Ints, owner: Ints, trace: Observed) -> Units:
    """The kernels of each collective as one unit: the first one's begin, the sum of their times."""
    chosen = chosen[np.lexsort((units.start[chosen], owner))]
    owner = np.sort(owner)
    distinct, first, number = np.unique(owner, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    merged = units.taken(chosen[first])
    duration = np.bincount(number, weights=units.duration[chosen], minlength=len(distinct))
    return replace(
        merged,
        row=distinct,
        fact=trace.op[distinct],
        duration=duration.astype(np.int64),
        collective=np.ones(len(distinct), bool),
    )


def _silent(units: Units, trace: Observed, links: Links, rows: Ints, kernel: Ints) -> Units:
    """Collectives without a kernel of their own: they run in another one's, or nobody saw it.

    The time of a kernel that runs several is given to the last one of them.
    """
    has, at = kernel >= 0, np.maximum(kernel, 0)
    last = np.append(kernel[1:] != kernel[:-1], True)
    if (~has).any():
        text = "collectives without a kernel in the trace: their time is unknown"
        units.notes[text] = units.notes.get(text, 0) + int((~has).sum())
    return replace(
        units,
        name=np.where(has, units.name[at], 0),
        row=rows,
        fact=trace.op[rows],
        start=np.where(has, units.start[at], links.issued[rows]),
        duration=np.where(has & last, units.duration[at], 0),
        issued=links.issued[rows],
        thread=links.thread[rows],
        stream=np.where(has, units.stream[at], NO_STREAM),
        collective=np.ones(len(rows), bool),
    )


def _joined(units: Units, parts: list[Units]) -> Units:
    columns = ("name", "fact", "row", "start", "duration", "issued", "thread", "stream")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in columns
    }
    return replace(units, **joined, collective=np.concatenate([p.collective for p in parts]))


def _issue_order(units: Units) -> Ints:
    """By time of issue, on each stream in the order in which things began there."""
    order = np.lexsort((units.issued, units.start, units.stream))
    issued = units.issued[order].copy()
    streams = units.stream[order]
    bounds = np.flatnonzero(np.diff(streams, prepend=streams[0] - 1, append=streams[-1] + 1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if streams[low] != NO_STREAM:
            issued[low:high] = np.maximum.accumulate(issued[low:high])
    place: Ints = order[np.lexsort((units.start[order], issued))]
    return place


def _may_be_kernel(fact: OpFacts) -> bool:
    """Whether an op of no known class may do work itself."""
    named = "::" in fact.name and not fact.name.startswith(_WRAPPERS)
    return fact.kind == OpClass.OTHER and named


def _within_library(trace: Observed, links: Links | None) -> NDArray[np.bool_]:
    """Ops that gloo runs on threads of its own for a collective: part of it.

    On the thread that issues collectives an annotation lasts until its work is done elsewhere, and
    what begins meanwhile has nothing to do with it.
    """
    inside = np.zeros(len(trace), bool)
    if links is None:
        return inside
    talks = _by_fact(trace.facts, lambda fact: fact.kind.collective)[trace.op]
    issuing = set(distinct(links.thread[talks]).tolist())
    for span in links.spans:
        if span.name.startswith(_GLOO) and span.thread not in issuing:
            begun = (links.issued >= span.start) & (links.issued < span.end)
            inside |= begun & (links.thread == span.thread)
    return inside


def _of_numbers(fact: OpFacts) -> bool:
    """Whether all that an op is known to read are single numbers."""
    return bool(fact.operands) and not _of_tensors(fact)


def _of_tensors(fact: OpFacts) -> bool:
    """Whether an op is known to read more than single numbers."""
    return any(shape for shape, _ in fact.operands or ())


def _host_ops(trace: Observed, links: Links | None, rows: Ints) -> Units:
    works = _by_fact(trace.facts, lambda fact: fact.kind not in (OpClass.FREE, OpClass.OTHER))
    talks = _by_fact(trace.facts, lambda fact: fact.kind.collective)
    unknown = _by_fact(trace.facts, _may_be_kernel)
    parent, op = trace.parent, trace.op
    # A number that an op on tensors is given is made a tensor inside of it: no work by itself.
    numbers = works & _by_fact(trace.facts, _of_numbers)
    tensors = _by_fact(trace.facts, _of_tensors)
    below_works = np.zeros(len(trace), bool)
    below_numbers = np.zeros(len(trace), bool)
    below_talks = np.zeros(len(trace), bool)
    has_parts = np.zeros(len(trace), bool)
    for row in rows[::-1].tolist():
        outer = int(parent[row])
        if outer >= 0:
            has_parts[outer] = True
            kind = op[row]
            below_works[outer] |= below_works[row] or (works[kind] and not numbers[kind])
            below_numbers[outer] |= below_numbers[row] or numbers[kind]
            below_talks[outer] |= below_talks[row] or talks[op[row]]
    below_works[rows] |= below_numbers[rows] & ~tensors[op[rows]]
    taken = np.where(
        talks[op[rows]],
        ~below_talks[rows],
        ~below_works[rows] & (works[op[rows]] | (unknown[op[rows]] & ~has_parts[rows])),
    )
    covered = _within_library(trace, links)
    chosen = []
    for row, take in zip(rows.tolist(), taken.tolist(), strict=True):
        outer = int(parent[row])
        if covered[row] or (outer >= 0 and covered[outer]):
            covered[row] = True
        elif take:
            covered[row] = True
            chosen.append(row)
    row = np.array(chosen, np.int64)
    names = {fact.name: None for fact in trace.facts}
    number = {name: i for i, name in enumerate(names)}
    of_fact = np.array([number[fact.name] for fact in trace.facts], np.int64)
    collective = talks[op[row]]
    timed = trace.timed
    thread = links.thread[row] if links is not None else trace.stream[row]
    end = np.where(trace.end[row] >= 0, trace.end[row], trace.start[row] + trace.duration[row])
    units = Units(
        path=trace.path,
        rank=trace.ranks[0],
        device=False,
        timed=timed,
        names=tuple(names),
        name=of_fact[op[row]],
        facts=trace.facts,
        fact=op[row],
        row=row,
        # What another thread did for a collective began when that thread began.
        start=np.where(collective, end - trace.duration[row], trace.start[row])
        if timed else np.full(len(row), -1, np.int64),
        duration=trace.duration[row] if timed else np.full(len(row), -1, np.int64),
        issued=trace.start[row] if timed else np.arange(len(row), dtype=np.int64),
        thread=thread,
        stream=np.where(collective, NO_STREAM, thread),
        collective=collective,
        notes={},
    )  # fmt: skip
    return units.taken(np.argsort(units.issued, kind="stable"))
