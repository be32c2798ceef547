"""Events of one rank's profile -> rows: which op is inside of which, and whose the kernels are.

The idea: an op is a CPU event; kernels belong to the op that launched them, which their
``External id`` names, or, where it is missing, the runtime call with their ``correlation``.
Collectives are told by ``record_param_comms`` on NCCL and RCCL; gloo has none, there the c10d op
itself is taken, its element type and its time from the annotation that gloo makes of its work.

    add_ops(rows, events, groups, rank=0)
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from flint.converters.profilers.kineto.events import Events, GloosWork, Kernel, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups, facts_of, with_type
from flint.converters.profilers.kineto.gloo_work import works_of
from flint.converters.profilers.kineto.library_calls import LibraryCalls, completed
from flint.errors import FlintError
from flint.observed.classes import OpClass, c10d_class
from flint.observed.columns import ObservedRows, OpFacts

#: Kernels of NCCL and RCCL: ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_Generic.
_NCCL = re.compile(r"[nr]ccl(?:Dev)?Kernel_(AllReduce|AllGather|ReduceScatter|Broadcast)?")
#: An op has at most so many inside of it before the runtime call that launches its kernel.
_LOOKED_BACK = 256
#: The stream of kernels of collectives that no op launched.
_LIBRARY_STREAM = 999
#: So many ops may have the same number as one has.
_REPEATED = 1.25
DEVICES = "kernels of {} devices in one trace: treated as one rank's, which runs one at a time"


class _Thread(NamedTuple):
    """The ops of one thread in the order in which they began."""

    starts: list[int]
    ends: list[int]
    rows: list[int]


def stand_in(events: Events) -> None:
    """One op around everything, for a trace of a device alone: a row says whose a trace is."""
    start = min(kernel.start for kernel in events.kernels)
    end = max(kernel.start + kernel.duration for kernel in events.kernels)
    events.said.append({})
    events.ops.append(Op(start, end - start, None, "", None, -1, len(events.said) - 1))


def add_ops(
    rows: ObservedRows,
    events: Events,
    groups: Groups,
    rank: int,
    steps: Sequence[int],
) -> None:
    """Rows in the order of issue over all threads, and the kernels of each.

    Args:
        rows: is given them.
        events: of one rank; in order afterwards.
        groups: process groups.
        rank: whose they are.
        steps: numbers of the steps in ``rows``, one of a trace without any.

    Raises:
        FlintError: the events of several processes are mixed up.
    """
    step_of = partial(_step, events.steps, [step[0] for step in events.steps], steps)
    events.ops.sort(key=lambda op: (op.start, -op.duration))
    known: dict[tuple[str, int], OpFacts] = {}

    def said(op: Op) -> OpFacts:
        facts = known.get((op.name, op.said))
        if facts is None:
            facts = known[op.name, op.said] = facts_of(op.name, events.said[op.said], groups)
        return facts

    gloo, left = works_of(events, lambda op: said(op).elements)
    if left and not events.kernels:
        gloo = _with_ops_of(events, gloo, left)
    library = LibraryCalls(events.library)
    stacks: dict[object, list[tuple[int, int, OpFacts]]] = {}
    by_external: dict[object, int] = {}
    per_thread: dict[object, _Thread] = {}
    threads: dict[object, int] = {}
    for place, op in enumerate(events.ops):
        facts = known.get((op.name, op.said)) or said(op)
        work = gloo.get(place) if gloo else None
        if work is not None and facts.kind.collective:
            facts = with_type(facts, work)
        if work is not None and not facts.kind.collective:
            facts = completed(facts, work.call)
        if op.name == RECORD or (facts.kind.collective and facts.parts is None):
            facts = library.completed(facts, op.thread, op.start, op.start + op.duration)
        stack = stacks.setdefault(op.thread, [])
        while stack and stack[-1][0] <= op.start:
            stack.pop()
        if facts.kind.collective and any(outer == facts for _, _, outer in stack):
            rows.note("collectives that the profiler recorded twice: counted once")
            facts = OpFacts(OpClass.FREE, op.name)
        number = rows.add(
            facts,
            rank=rank,
            step=step_of(op.start),
            start=op.start,
            duration=op.duration if work is None else work.end - work.start,
            end=_end(op, facts, work, bool(events.kernels)),
            stream=threads.setdefault(op.thread, len(threads)),
            parent=stack[-1][1] if stack else -1,
            launches=0 if events.kernels else -1,
        )
        stack.append((op.start + op.duration, number, facts))
        if events.links is not None:
            events.links.op(op.thread, op.start, op.duration, op.record)
        by_external[op.external] = number
        thread = per_thread.setdefault(op.thread, _Thread([], [], []))
        thread.starts.append(op.start)
        thread.ends.append(op.start + op.duration)
        thread.rows.append(number)
    by_external.pop(None, None)
    if _REPEATED * len(by_external) < len(events.ops):
        _check_numbers(rows.path, [op.external for op in events.ops])
    orphans = _add_kernels(rows, events, by_external, per_thread)
    devices = len({kernel.device for kernel in events.kernels})
    if devices > 1:
        rows.note(DEVICES.format(devices))
    if events.links is None:
        for kernel in orphans:
            named = _NCCL.match(kernel.name)
            if named is not None and kernel.correlation in events.runtime:
                rows.add(
                    OpFacts(OpClass.OTHER_COLLECTIVE, kernel.name.partition("(")[0]),
                    rank=rank,
                    step=step_of(events.runtime[kernel.correlation][1]),
                    start=kernel.start,
                    duration=kernel.duration,
                    end=kernel.start + kernel.duration,
                    stream=_LIBRARY_STREAM,
                    launches=1,
                )


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
    """Ops for work of gloo that belongs to none; returns the works with them."""
    of_op = [(op, works.get(place)) for place, op in enumerate(events.ops)]
    events.said.append({})
    for work in left:
        name, took = f"gloo:{work.call.name}", work.end - work.start
        op = Op(work.start, took, work.thread, name, None, -1, len(events.said) - 1)
        of_op.append((op, work))
    of_op.sort(key=lambda pair: (pair[0].start, -pair[0].duration))
    events.ops[:] = [op for op, _ in of_op]
    return {place: work for place, (_, work) in enumerate(of_op) if work is not None}


def _end(op: Op, facts: OpFacts, work: GloosWork | None, on_device: bool) -> int:
    """When an op's work was over, as far as the host knows: of collectives it does not."""
    if work is not None:
        return work.end
    return -1 if on_device or facts.kind.collective else op.start + op.duration


def _step(
    steps: Sequence[tuple[int, int, str]], starts: list[int], numbers: Sequence[int], when: int
) -> int:
    """The number of the step in which a moment is, -1 outside of all."""
    if not starts:
        return numbers[0]
    place = bisect_right(starts, when) - 1
    return numbers[place] if place >= 0 and when < steps[place][1] else -1


def _add_kernels(
    rows: ObservedRows,
    events: Events,
    by_external: dict[object, int],
    per_thread: dict[object, _Thread],
) -> list[Kernel]:
    """Give each kernel to its op: count, first start, time, stream; returns those of no op."""
    orphans: list[Kernel] = []
    columns = rows.columns
    starts, durations, ends, streams, launches = (
        columns[name] for name in ("start", "duration", "end", "stream", "launches")
    )
    numbers: dict[object, int] = {}
    facts = list(rows.facts)
    events.kernels.sort(key=lambda kernel: kernel.start)
    for kernel in events.kernels:
        number = by_external.get(kernel.external)
        if number is None and kernel.correlation in events.runtime:
            number = _enclosing(*events.runtime[kernel.correlation], per_thread)
        if events.links is not None:
            events.links.kernel(
                kernel.name, kernel.start, kernel.duration, kernel.device, kernel.stream,
                kernel.correlation, number,
            )  # fmt: skip
        if number is None:
            rows.note("kernels that no op of the trace launched")
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
    """A record that does not say what it is of, as without ``record_shapes`` before PyTorch 2.1.

    Args:
        facts: those of ``rows`` by number; grows with them.
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
    told = OpFacts(kind, kernel[: kernel.find("(")] if "(" in kernel else kernel)
    of[number] = rows.facts.setdefault(told, len(facts))
    if of[number] == len(facts):
        facts.append(told)


def _enclosing(name: object, when: int, per_thread: dict[object, _Thread]) -> int | None:
    """The innermost op of a thread that was running at a moment."""
    thread = per_thread.get(name)
    if thread is None:
        return None
    place = bisect_right(thread.starts, when) - 1
    # Of the ops that began before, those inside of others come later: the first that still runs.
    for back in range(place, max(-1, place - _LOOKED_BACK), -1):
        if thread.ends[back] >= when:
            return thread.rows[back]
    return None
