"""Events of one rank's profile -> rows: the nesting of ops, and which op launched each kernel.

The idea: an op is a CPU event; kernels belong to the op that launched them, which their ``External
id`` names, or, if it names none, the runtime call with their ``correlation``.  On NCCL and RCCL,
``record_param_comms`` describes collectives; gloo has none, so the c10d op itself is used, with
element type and time from gloo's annotation of its work.

    add_ops(rows, events, groups, rank=0)
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from flint.converters.profilers.kineto.events import Events, GloosWork, Kernel, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups
from flint.converters.profilers.kineto.gloo_work import works_of
from flint.converters.profilers.kineto.nesting import Nesting
from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass, c10d_class
from flint.observed.columns import OpFacts
from flint.observed.rows import ObservedRows

#: Kernels of NCCL and RCCL: ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_Generic.
_NCCL = re.compile(r"[nr]ccl(?:Dev)?Kernel_(AllReduce|AllGather|ReduceScatter|Broadcast)?")
#: The most ops inside an op before the runtime call that launches its kernel.
_LOOKED_BACK = 256
#: The stream of kernels of collectives that no op launched.
_LIBRARY_STREAM = 999
#: The most ops that may share a number.
_REPEATED = 1.25
DEVICES = "kernels of {} devices in one trace: treated as one rank's, which runs one at a time"


class _Thread(NamedTuple):
    """The ops of one thread in the order in which they began."""

    starts: list[int]
    ends: list[int]
    rows: list[int]


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
    order = _order(events.ops)
    events.ops[:] = [events.ops[place] for place in order]
    nesting = Nesting(rows, events, groups)
    gloo, left = works_of(events, lambda op: nesting.arguments(op).elements)
    if left and not events.kernels:
        gloo = _with_ops_of(events, gloo, left)
    of, parent = nesting.rows_of(gloo)
    first = len(rows.columns["op"])
    start, duration = _column(events.ops, "start"), _column(events.ops, "duration")
    numbers: dict[object, int] = {}
    stream = np.array([numbers.setdefault(op.thread, len(numbers)) for op in events.ops], np.int64)
    over = start + duration
    if events.links is not None:
        events.links.add_ops(list(numbers), stream, (start, over, _column(events.ops, "record")))
    # The host does not know when collectives ended.
    communicates = np.array([facts.kind.collective for facts in rows.facts], bool)
    end = np.full(len(over), -1) if events.kernels else np.where(communicates[of], -1, over)
    for place, work in gloo.items():
        # On the calling thread, the annotation begins after a message has been sent.
        begin = start[place] if work.thread == events.ops[place].thread else work.start
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
    external = [op.external for op in events.ops]
    by_external = dict(zip(external, range(first, first + len(of)), strict=True))
    by_external.pop(None, None)
    if _REPEATED * len(by_external) < len(events.ops):
        _check_numbers(rows.path, external)
    places = {name: np.flatnonzero(stream == number) for name, number in numbers.items()}
    per_thread = {
        name: _Thread(start[own].tolist(), over[own].tolist(), (own + first).tolist())
        for name, own in places.items()
    }
    orphans = _add_kernels(rows, events, by_external, per_thread)
    devices = len({kernel.device for kernel in events.kernels})
    if devices > 1:
        rows.note(DEVICES.format(devices))
    if events.links is None:
        calls = [events.runtime.get(kernel.correlation) for kernel in orphans]
        issued = [k.start if c is None else c[1] for k, c in zip(orphans, calls, strict=True)]
        of_step = _steps(np.array(issued, np.int64), events.steps, steps).tolist()
        rows.alone.update((rank, step) for step in of_step)
        for kernel, call, step in zip(orphans, calls, of_step, strict=True):
            named = _NCCL.match(kernel.name)
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


def _order(ops: Sequence[Op]) -> list[int]:
    """The places of ops in the order in which they began, the outer ones first."""
    order: list[int] = np.lexsort((-_column(ops, "duration"), _column(ops, "start"))).tolist()
    return order


def _column(ops: Sequence[Op], name: str) -> Ints:
    """One of the profiler's numbers for each op, shape [ops]."""
    return np.fromiter(map(attrgetter(name), ops), np.int64, len(ops))


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
    """Add ops for gloo's work that belongs to none; returns all works."""
    of_op = [(op, works.get(place)) for place, op in enumerate(events.ops)]
    events.arguments.append({})
    for work in left:
        name, took = f"gloo:{work.call.name}", work.end - work.start
        op = Op(work.start, took, work.thread, name, None, -1, len(events.arguments) - 1)
        of_op.append((op, work))
    of_op.sort(key=lambda pair: (pair[0].start, -pair[0].duration))
    events.ops[:] = [op for op, _ in of_op]
    return {place: work for place, (_, work) in enumerate(of_op) if work is not None}


def _steps(when: Ints, steps: Sequence[tuple[int, int, str]], numbers: Sequence[int]) -> Ints:
    """The numbers of the steps in which moments are, -1 outside of all."""
    if not steps:
        return np.full(len(when), numbers[0])
    begins, ends = (np.array([step[side] for step in steps], np.int64) for side in (0, 1))
    place = np.searchsorted(begins, when, side="right") - 1
    inside = (place >= 0) & (when < ends[place])
    return np.where(inside, np.array(numbers, np.int64)[place], -1)


def _add_kernels(
    rows: ObservedRows,
    events: Events,
    by_external: dict[object, int],
    per_thread: dict[object, _Thread],
) -> list[Kernel]:
    """Assign each kernel to its op: count, first start, time, stream; returns those of no op."""
    orphans: list[Kernel] = []
    columns = rows.columns
    starts, durations, ends, streams, launches = (
        columns[name] for name in ("start", "duration", "end", "stream", "launches")
    )
    numbers: dict[object, int] = {}
    facts = list(rows.facts)
    events.kernels.sort(key=lambda kernel: kernel.start)
    for kernel in events.kernels:
        call = events.runtime.get(kernel.correlation)
        # Until PyTorch 2.1 the number may be that of the call instead of an op.
        of_call = call is not None and kernel.external == kernel.correlation
        number = None if of_call else by_external.get(kernel.external)
        if number is None and call is not None:
            number = _enclosing(*call, per_thread)
        if events.links is not None:
            events.links.kernel(
                kernel.name, kernel.start, kernel.duration, kernel.device, kernel.stream,
                kernel.correlation, number, kernel.bytes,
            )  # fmt: skip
        if number is None:
            orphans.append(kernel)
            continue
        stream = numbers.setdefault((kernel.device, kernel.stream), len(numbers))
        if launches[number] == 0:
            starts[number], durations[number] = kernel.start, 0
            streams[number] = 1000 + stream
            _named_by_kernel(rows, facts, number, kernel.name)
        durations[number] += kernel.duration
        ends[number] = max(ends[number], kernel.start + kernel.duration)
        launches[number] += 1
    return orphans


def _named_by_kernel(rows: ObservedRows, facts: list[OpFacts], number: int, kernel: str) -> None:
    """A record that does not name its collective, as without ``record_shapes`` before PyTorch 2.1.

    Args:
        facts: facts of ``rows`` by number; grows with them.
    """
    named = _NCCL.match(kernel)
    if named is None:
        return
    of, parents = rows.columns["op"], rows.columns["parent"]
    around = number
    while around >= 0:
        if facts[of[around]].kind.collective:
            return
        around = parents[around]
    if facts[of[number]].name != RECORD:
        return
    kind = c10d_class(named[1] or "")
    if kind is None:
        rows.note("NCCL kernels whose collective the trace does not record")
        return
    rows.note("collectives known only from the names of their kernels, without sizes and groups")
    by_name = OpFacts(kind, kernel[: kernel.find("(")] if "(" in kernel else kernel)
    of[number] = rows.facts.setdefault(by_name, len(facts))
    if of[number] == len(facts):
        facts.append(by_name)


def _enclosing(name: object, when: int, per_thread: dict[object, _Thread]) -> int | None:
    """The innermost op of a thread that was running at a moment."""
    thread = per_thread.get(name)
    if thread is None:
        return None
    place = bisect_right(thread.starts, when) - 1
    # Among earlier ops, inner ones come later: take the first that still runs, going backwards.
    for back in range(place, max(-1, place - _LOOKED_BACK), -1):
        if thread.ends[back] >= when:
            return thread.rows[back]
    return None
