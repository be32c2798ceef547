"""Events of one rank's profile -> rows: the nesting of ops, and which op launched each kernel.

The idea: an op is a CPU event; kernels belong to the op that launched them, which their ``External
id`` names, or, if it names none, the runtime call with their ``correlation``.  On NCCL and RCCL,
``record_param_comms`` describes collectives; gloo has none, so the c10d op itself is used, with
element type and time from gloo's annotation of its work.

    add_ops(rows, events, groups, rank=0)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from flint.converters.profilers.kineto.events import (
    Events,
    GloosWork,
    Kernel,
    Op,
    Table,
    times_of_rows,
)
from flint.converters.profilers.kineto.facts import Groups
from flint.converters.profilers.kineto.gloo_work import threads_of, works_of
from flint.converters.profilers.kineto.kernel_rows import OF_NCCL, OpsOfThread, add_kernels
from flint.converters.profilers.kineto.nesting import Nesting
from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.rows import ObservedRows

#: The stream of kernels of collectives that no op launched.
_LIBRARY_STREAM = 999
#: The most ops that may share a number.
_REPEATED = 1.25
BESIDE_KERNELS = (
    "communications of gloo's that no op of the trace handed over, beside kernels: left out"
)
DEVICES = "kernels of {} devices in one trace: treated as one rank's, which runs one at a time"


def stand_in(events: Events) -> None:
    """One op around everything, for a trace with only a device, because a row names the rank."""
    start = min(kernel.start for kernel in events.kernels)
    end = max(kernel.start + kernel.duration for kernel in events.kernels)
    events.arguments.append({})
    events.ops.append(Op(start, end - start, None, "", None, -1, len(events.arguments) - 1))


def add_ops(
    rows: ObservedRows,
    events: Events,
    groups: Groups,
    rank: int,
    steps: Sequence[int],
) -> None:
    """Rows in the order of issue over all threads, and the kernels of each.

    Args:
        rows: the rows are added here.
        events: events of one rank; sorted afterwards.
        groups: process groups.
        rank: their rank.
        steps: numbers of the steps in ``rows``; one for a trace without steps.

    Raises:
        FlintError: the events of several processes are mixed up.
    """
    events.ops.order(_order(events.ops))
    _on_only_device(events.kernels)
    nesting = Nesting(rows, events, groups)
    gloo, left = works_of(events, lambda op: nesting.arguments(op).elements)
    if left and events.kernels:
        rows.note(BESIDE_KERNELS, len(left))
    elif left:
        gloo = _with_ops_of(events, gloo, left)
    of, parent = nesting.rows_of(gloo)
    first = len(rows.columns["op"])
    threads, external, records = (events.ops.columns[number] for number in (2, 4, 5))
    start, duration = times_of_rows(events.ops)
    numbers: dict[object, int] = {
        name: number for number, name in enumerate(dict.fromkeys(threads))
    }
    stream = np.array(list(map(numbers.__getitem__, threads)), np.int64)
    over = start + duration
    if events.links is not None:
        events.links.add_ops(list(numbers), stream, (start, over, np.array(records, np.int64)))
    # The host does not know when the collectives that it started ended.
    starts = np.array([fact.kind.collective and not fact.blocks for fact in rows.facts], bool)
    end = np.where(starts[of] | bool(events.kernels), -1, over)
    for place, work in gloo.items():
        # On the calling thread, the annotation begins after a message has been sent.
        begin = start[place] if work.thread == threads[place] else work.start
        duration[place], end[place] = work.end - begin, work.end
    rows.extend(
        op=of,
        rank=np.full(len(of), rank),
        step=_steps(start, events.steps, steps),
        start=start,
        duration=duration,
        end=end,
        stream=stream,
        parent=np.where(parent < 0, -1, parent + first),
        launches=np.full(len(of), 0 if events.kernels else -1),
    )
    workers: dict[object, int] = {}
    rows.workers.update(
        (first + place, workers.setdefault(thread, len(workers)))
        for place, thread in threads_of(events, gloo).items()
    )
    by_external = dict(zip(external, range(first, first + len(of)), strict=True))
    by_external.pop(None, None)
    if _REPEATED * len(by_external) < len(events.ops):
        _check_numbers(rows.path, external)
    places = {name: np.flatnonzero(stream == number) for name, number in numbers.items()}
    per_thread = {
        name: OpsOfThread(start[own].tolist(), over[own].tolist(), (own + first).tolist())
        for name, own in places.items()
    }
    orphans = add_kernels(rows, events, by_external, per_thread)
    devices = len(set(events.kernels.columns[2]))
    if devices > 1:
        rows.note(DEVICES.format(devices))
    if events.links is None:
        calls = [events.runtime.get(kernel.correlation) for kernel in orphans]
        issued = [k.start if c is None else c[1] for k, c in zip(orphans, calls, strict=True)]
        of_step = _steps(np.array(issued, np.int64), events.steps, steps).tolist()
        rows.alone.update((rank, step) for step in of_step)
        for kernel, call, step in zip(orphans, calls, of_step, strict=True):
            named = OF_NCCL.match(kernel.name)
            if named is not None and call is not None:
                rows.add(
                    OpFacts(OpClass.OTHER_COLLECTIVE, kernel.name.partition("(")[0]),
                    rank=rank,
                    step=step,
                    start=kernel.start,
                    duration=kernel.duration,
                    end=kernel.start + kernel.duration,
                    stream=_LIBRARY_STREAM,
                    launches=1,
                )


def _on_only_device(kernels: Table[Kernel]) -> None:
    """Kernels that name no device ran on the only one that others name."""
    devices = kernels.columns[2]
    if len(named := set(devices) - {-1}) == 1:
        devices[:] = [named.pop()] * len(devices)


def _order(ops: Table[Op]) -> list[int]:
    """The places of ops in the order in which they began, the outer ones first."""
    start, duration = times_of_rows(ops)
    order: list[int] = np.lexsort((-duration, start)).tolist()
    return order


def _check_numbers(path: str, numbers: list[object]) -> None:
    """Ops of one process never share a number.

    Raises:
        FlintError: many do.
    """
    given = [number for number in numbers if type(number) is int and number > 0]
    if len(given) > _REPEATED * len(set(given)):
        raise FlintError(
            f"{path}: the ops of several processes are mixed up in it: {len(given):,} ops have "
            f"{len(set(given)):,} numbers (External id). Convert the traces that it was merged "
            "from, or merge them with another pid for each"
        )


def _with_ops_of(
    events: Events, works: dict[int, GloosWork], left: list[GloosWork]
) -> dict[int, GloosWork]:
    """Add ops for gloo's work that belongs to none; returns all works.

    The thread that handed a work over is its own if that runs other ops, too; otherwise the one
    whose op began last before it.  The op is no longer than its begin: what the thread begins until
    the work is done is no part of it.
    """
    works = dict(works)
    events.arguments.append({})
    own = {work.thread for work in left} - _with_other_ops(events, left)
    starts, threads = (events.ops.columns[number] for number in (0, 2))
    began = [place for place, thread in enumerate(threads) if thread not in own]
    at = [starts[place] for place in began]
    for work in left:
        name, thread, took = f"gloo:{work.call.name}", work.thread, 0
        if thread in own:
            place = bisect_right(at, work.start) - 1
            thread = threads[began[place]] if place >= 0 else thread
            took = 0 if place >= 0 else work.end - work.start
        works[len(events.ops)] = work
        events.ops.append(Op(work.start, took, thread, name, None, -1, len(events.arguments) - 1))
    order = _order(events.ops)
    events.ops.order(order)
    return {place: works[before] for place, before in enumerate(order) if before in works}


def _with_other_ops(events: Events, works: list[GloosWork]) -> set[object]:
    """The threads of some works that also run ops outside of them."""
    spans: dict[object, tuple[list[int], list[int]]] = {}
    for work in sorted(works, key=lambda work: work.start):
        begins, ends = spans.setdefault(work.thread, ([], []))
        begins.append(work.start)
        ends.append(max(work.end, ends[-1] if ends else work.end))  # the last end so far
    found: set[object] = set()
    for start, thread in zip(*(events.ops.columns[number] for number in (0, 2)), strict=True):
        if thread in spans and thread not in found:
            begins, ends = spans[thread]
            at = bisect_right(begins, start) - 1
            if at < 0 or ends[at] <= start:
                found.add(thread)
    return found


def _steps(when: Ints, steps: Sequence[tuple[int, int, str]], numbers: Sequence[int]) -> Ints:
    """The numbers of the steps in which moments are, -1 outside of all."""
    if not steps:
        return np.full(len(when), numbers[0])
    begins, ends = (np.array([step[side] for step in steps], np.int64) for side in (0, 1))
    place = np.searchsorted(begins, when, side="right") - 1
    inside = (place >= 0) & (when < ends[place])
    return np.where(inside, np.array(numbers, np.int64)[place], -1)
