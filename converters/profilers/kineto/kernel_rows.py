"""Which op launched each kernel of a profile, and the times that it has from them.

The idea: a kernel belongs to the op that its ``External id`` names, or, if it names none, to the op
around the runtime call with its ``correlation``.

    orphans = add_kernels(rows, events, by_external, per_thread)
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from flint.converters.profilers.kineto.events import Events, Kernel, times_of_rows
from flint.converters.profilers.kineto.facts import RECORD
from flint.mesh.ragged import Ints
from flint.observed.classes import c10d_class
from flint.observed.columns import OpFacts
from flint.observed.rows import ObservedRows

#: Kernels of NCCL and RCCL: ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_Generic.
OF_NCCL = re.compile(r"[nr]ccl(?:Dev)?Kernel_(AllReduce|AllGather|ReduceScatter|Broadcast)?")
#: The most ops inside an op before the runtime call that launches its kernel.
_LOOKED_BACK = 256
#: What an op has from its kernels.
_OF_KERNELS = ("start", "duration", "end", "stream", "launches")


class OpsOfThread(NamedTuple):
    """The ops of one thread in the order in which they began."""

    starts: list[int]
    ends: list[int]
    rows: list[int]


def add_kernels(
    rows: ObservedRows,
    events: Events,
    by_external: dict[object, int],
    per_thread: dict[object, OpsOfThread],
) -> list[Kernel]:
    """Assign each kernel to its op: count, first start, time, stream; returns those of no op."""
    order = np.argsort(times_of_rows(events.kernels)[0], kind="stable")
    events.kernels.order(order.tolist())
    _, _, devices, streams, names, externals, calls, moved = events.kernels.columns
    issued = map(events.runtime.get, calls)
    row = np.array(
        [
            _launcher(external, number, call, by_external, per_thread)
            for external, number, call in zip(externals, calls, issued, strict=True)
        ],
        np.int64,
    )
    times = times_of_rows(events.kernels)
    if events.links is not None:
        events.links.add_kernels(
            (row, *times, np.array(moved, np.int64)), names, devices, streams, calls
        )
    known = np.flatnonzero(row >= 0)
    tracks = [(devices[kernel], streams[kernel]) for kernel in known.tolist()]
    numbers = {track: number for number, track in enumerate(dict.fromkeys(tracks), 1000)}
    stream = np.array([numbers[track] for track in tracks], np.int64)
    first = _set_times(rows, row[known], times[0][known], times[1][known], stream)
    facts = list(rows.facts)
    nccl = {name for name in set(names) if OF_NCCL.match(name)}
    for kernel in known[first].tolist():
        if names[kernel] in nccl:
            _named_by_kernel(rows, facts, int(row[kernel]), names[kernel])
    return [events.kernels[kernel] for kernel in np.flatnonzero(row < 0).tolist()]


def _set_times(rows: ObservedRows, row: Ints, start: Ints, duration: Ints, stream: Ints) -> Ints:
    """Give ops the times of their kernels.

    Args:
        rows: the ops.
        row: op of each kernel, shape [kernels].
        start, duration: nanoseconds, in order of start; shape [kernels].
        stream: where it ran, shape [kernels].

    Returns:
        The indices of the kernels that are the first of an op, ascending.
    """
    if not len(row):
        return row
    by_op = np.argsort(row, kind="stable")
    begins = np.flatnonzero(np.diff(row[by_op], prepend=-1))
    first = by_op[begins]
    op = row[first]
    columns = {name: np.frombuffer(rows.columns[name], np.int64) for name in _OF_KERNELS}
    columns["start"][op] = start[first]
    columns["duration"][op] = np.add.reduceat(duration[by_op], begins)
    over = np.maximum.reduceat((start + duration)[by_op], begins)
    columns["end"][op] = np.maximum(columns["end"][op], over)
    columns["stream"][op] = stream[first]
    columns["launches"][op] = np.diff(begins, append=len(row))
    return np.sort(first)


def _launcher(
    external: object,
    correlation: object,
    call: tuple[object, int] | None,
    by_external: dict[object, int],
    per_thread: dict[object, OpsOfThread],
) -> int:
    """The row that launched a kernel, -1 if unknown.

    Args:
        external, correlation: the profiler's numbers of its op and of its call.
        call: thread and time of that call.
        by_external: rows by the profiler's numbers.
        per_thread: the ops of each thread.
    """
    # Until PyTorch 2.1 the number may be that of the call instead of an op.
    of_call = call is not None and external == correlation
    number = None if of_call else by_external.get(external)
    if number is None and call is not None:
        number = _enclosing(*call, per_thread)
    return -1 if number is None else number


def _named_by_kernel(rows: ObservedRows, facts: list[OpFacts], number: int, kernel: str) -> None:
    """A record that does not name its collective, as without ``record_shapes`` before PyTorch 2.1.

    Args:
        facts: facts of ``rows`` by number; grows with them.
        kernel: name of a kernel of NCCL's.
    """
    named = OF_NCCL.match(kernel)
    assert named is not None
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


def _enclosing(name: object, when: int, per_thread: dict[object, OpsOfThread]) -> int | None:
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
