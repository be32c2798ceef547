"""Units of a step on a device: one per kernel, and one per collective in place of its kernels.

units = kernel_units(trace, links, rows, step)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flint.graph.stated import is_fill
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.columns import NO_OP, Observed, OpFacts
from flint.post_execution.links import Links
from flint.post_execution.units import (
    COLUMNS,
    NO_STREAM,
    Units,
    around,
    by_fact,
    exchanging,
    of_library,
)

NO_EXCHANGE = (
    "communication kernels that belong to no recorded collective, or to a kind that execution "
    "traces lack (gather, scatter, barrier): kept as compute"
)
OWN_EXCHANGE = (
    "kernels of libraries that communicate on their own (DeepEP, NVSHMEM): kept as kernels with "
    "their time, because the trace does not record their messages"
)


def kernel_units(trace: Observed, links: Links, rows: Ints, step: int) -> Units:
    """The units of a step.

    Args:
        trace: one rank's trace.
        links: of the same trace.
        rows: of the step.
        step: index into ``trace.steps``.
    """
    row = links.kernel_row
    in_step = _of_steps(trace, links) == step
    lonely = row < 0
    if lonely.any():
        when = _launched(links)
        low, high = links.steps[step] if links.steps else (-1, np.iinfo(np.int64).max)
        inside = (when >= low) & (when < high)
        in_step = np.where(lonely, inside, in_step)
    kernel = np.flatnonzero(in_step)
    row = row[kernel]
    launched = links.kernel_launch[kernel]
    issued = np.where(launched >= 0, launched, links.kernel_start[kernel])
    known = (launched < 0) & (row >= 0)
    issued[known] = links.issued[row[known]]
    launch = np.where(launched >= 0, launched, -1)
    launch[known] = issued[known]
    thread = links.kernel_thread[kernel].copy()
    known = (thread < 0) & (row >= 0)
    thread[known] = links.thread[row[known]]
    facts, fact = _facts_of(trace, links, kernel)
    plain = Units(
        path=trace.path,
        rank=trace.ranks[0],
        device=True,
        timed=True,
        names=links.names,
        name=links.kernel_name[kernel],
        facts=facts,
        fact=fact,
        row=row,
        start=links.kernel_start[kernel],
        duration=links.kernel_duration[kernel],
        issued=issued,
        launch=launch,
        thread=thread,
        stream=links.kernel_stream[kernel],
        collective=np.zeros(len(kernel), bool),
        notes={NO_OP: alone} if (alone := int((row < 0).sum())) else {},
    )
    units = _with_collectives(plain, trace, links, rows)
    if not len(units):
        return units
    return units.taken(_issue_order(units))


def _of_steps(trace: Observed, links: Links) -> Ints:
    """The step of each kernel that an op launched, shape [kernels].

    It is the op's.  But an op may be a range around several steps (an epoch, a loop of inference):
    its kernels are of the steps in which they were launched.
    """
    of = trace.step[np.maximum(links.kernel_row, 0)]
    if not links.steps:
        return of
    begins, ends = np.array(links.steps, np.int64).T
    place = np.searchsorted(begins, links.kernel_launch, side="right") - 1
    inside = (place >= 0) & (links.kernel_launch < ends[place])
    return np.where(inside, place, of)


def _facts_of(trace: Observed, links: Links, kernel: Ints) -> tuple[tuple[OpFacts, ...], Ints]:
    """Facts of ops, and those of each kernel.

    A copy moves what the profile says, if no op says more.

    Args:
        trace: one rank's trace.
        links: of the same trace.
        kernel: numbers of the kernels, shape [units].
    """
    row = links.kernel_row[kernel]
    fact = np.where(row >= 0, trace.op[np.maximum(row, 0)], len(trace.facts))
    facts = [*trace.facts, OpFacts(OpClass.OTHER, "")]
    silent = by_fact(tuple(facts), lambda item: item.operands is None and item.moved is None)
    copies = np.flatnonzero((links.kernel_moved[kernel] > 0) & silent[fact])
    fills = np.array([is_fill(name) for name in links.names] or [False])[links.kernel_name[kernel]]
    keys = np.stack([fact, links.kernel_moved[kernel], fills])[:, copies]
    known, number = np.unique(keys, axis=1, return_inverse=True)
    fact[copies] = len(facts) + number.reshape(-1)
    for of, size, fill in known.T.tolist():
        facts.append(replace(facts[of], moved=(0 if fill else size, size)))
    return tuple(facts), fact


def _launched(links: Links) -> Ints:
    """When each kernel was launched, ns on the host; if the trace lacks its call, at the latest.

    A host may be far ahead of its device: what runs in a step may be from before.  It was launched
    before all that comes after it on its stream.  What comes before all of which the trace has the
    calls is from before the profile: -1.
    """
    known = links.kernel_launch >= 0
    when = np.where(known, links.kernel_launch, links.kernel_start)
    order = np.lexsort((links.kernel_start, links.kernel_stream))
    stream = links.kernel_stream[order]
    begins = np.flatnonzero(stream[1:] != stream[:-1]) + 1
    for own in np.split(order, begins):
        when[own] = np.minimum.accumulate(when[own][::-1])[::-1]
        first = int(np.argmax(known[own]))  # 0 if there is none
        when[own[:first]] = -1
    return np.where(known, links.kernel_launch, when)


def _with_collectives(units: Units, trace: Observed, links: Links, rows: Ints) -> Units:
    """One unit per collective in place of its kernels."""
    talks = by_fact(trace.facts, lambda fact: fact.kind.collective)[trace.op]
    alone = by_fact(trace.facts, lambda fact: fact.group is not None and len(fact.group) == 1)
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
    if own := int((exchanging(units)[others] & ~library[others]).sum()):
        units.notes[OWN_EXCHANGE] = own
    parts = [units.taken(others)]
    if len(chosen):
        parts.append(_merged(units, chosen, owner[chosen], trace))
    if len(silent):
        parts.append(_silent(units, trace, links, silent, kernel))
    return _joined(units, parts)


def _batches(units: Units, links: Links, silent: Ints, orphan: Ints) -> Ints:
    """For each collective without a kernel, the kernel that ran it: the next that belongs to none;
    else -1.

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
    """The kernels of each collective as one unit: start of the first one, sum of their times."""
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
    """Collectives without their own kernel: they run in another one's, or it was not recorded.

    The time of a kernel that runs several is given to the last one of them.
    """
    has = kernel >= 0
    name, start, duration, stream = (
        np.append(column, 0)[kernel]  # the last one for -1
        for column in (units.name, units.start, units.duration, units.stream)
    )
    last = np.append(kernel[1:] != kernel[:-1], True)
    if (~has).any():
        text = "collectives without a kernel in the trace: their time is unknown"
        units.notes[text] = units.notes.get(text, 0) + int((~has).sum())
    return replace(
        units,
        name=name,
        row=rows,
        fact=trace.op[rows],
        start=np.where(has, start, links.issued[rows]),
        duration=np.where(last, duration, 0),
        issued=links.issued[rows],
        launch=links.issued[rows],
        thread=links.thread[rows],
        stream=np.where(has, stream, NO_STREAM),
        collective=np.ones(len(rows), bool),
    )


def _joined(units: Units, parts: list[Units]) -> Units:
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
    }
    return replace(units, **joined)


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
