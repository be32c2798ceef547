"""Which work of gloo's threads belongs to which c10d op.

The idea: gloo numbers its annotation when it gets the work from the op, so its number comes after
the op's and before the next c10d op's.  If the profiler numbers nothing, works are assigned to the
ops in order: to the first one that began before, is the same collective of the same number of
elements and has no work yet.  (Of a scatter or gather, the root's work has the list for all ranks,
and the others' has nothing.)  If there is none, it may be another collective, as which gloo runs
the op.  Remaining works were started before the profile began.

Each process group has threads of its own that run its works (ProcessGroupGloo.cpp), so what one of
them ran belongs to one group.  Only works that can be no other op's count for this.

    of_op, left = works_of(events, elements)
    threads_of(events, of_op)                    # {index of an op: the thread that ran its work}
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from flint.converters.profilers.kineto.events import Events, GloosWork, Op
from flint.observed.classes import OpClass, base_name, c10d_class

#: The most ops between a c10d op and gloo's annotation.
_WITHIN = 64
_LIBRARY = "c10d::"
#: The most ops without work that are considered.
_LOOKED_AT = 64


def works_of(
    events: Events, elements: Callable[[Op], int]
) -> tuple[dict[int, GloosWork], list[GloosWork]]:
    """Work by the index of its op in ``events.ops``, and work of no op.

    Args:
        events: ops in the order in which they began.
        elements: total elements of the tensors that an op's rank contributes.
    """
    if not events.gloo:
        return {}, []
    calls = [i for i, op in enumerate(events.ops) if op.name.startswith(_LIBRARY)]
    if calls and any(record > 0 for record, _ in events.gloo):
        return _by_number(events, calls), []
    return _in_order(events, calls, elements)


def _by_number(events: Events, calls: list[int]) -> dict[int, GloosWork]:
    numbered = sorted((events.ops[i].record, i) for i in calls if events.ops[i].record >= 0)
    numbers = [record for record, _ in numbered]
    found: dict[int, GloosWork] = {}
    for record, work in events.gloo:
        place = bisect_left(numbers, record) - 1
        if place < 0 or record - numbers[place] > _WITHIN:
            continue
        other = found.setdefault(numbered[place][1], work)
        if other is not work:  # one op, several works
            found[numbered[place][1]] = work._replace(
                start=min(other.start, work.start), end=max(other.end, work.end),
                dtype=other.dtype, elements=other.elements + work.elements,
            )  # fmt: skip
    return found


def _in_order(
    events: Events, calls: list[int], elements: Callable[[Op], int]
) -> tuple[dict[int, GloosWork], list[GloosWork]]:
    waiting = list(calls)
    unsure: set[int] = set()
    kinds = {number: c10d_class(base_name(events.ops[number].name)) for number in calls}
    found: dict[int, GloosWork] = {}
    left = []
    for _, work in events.gloo:
        kind = c10d_class(work.call.name)
        began = [i for i in waiting[:_LOOKED_AT] if events.ops[i].start <= work.start]
        same = [i for i in began if elements(events.ops[i]) == work.elements]
        if kind is None:  # a barrier has no data
            same = [i for i in began if base_name(events.ops[i].name) == work.call.name]
        alike = began if kind is OpClass.OTHER_COLLECTIVE else same
        number = next((i for i in alike if kinds[i] is kind), next(iter(same), None))
        if number is None:
            left.append(work)
        else:
            found[number] = work
            waiting.remove(number)
            others = began if kind is OpClass.OTHER_COLLECTIVE else same
            unsure.update(others if len(others) > 1 else ())
    for number in unsure & found.keys():
        found[number] = found[number]._replace(sure=False)
    return found, left


def threads_of(events: Events, works: Mapping[int, GloosWork]) -> dict[int, object]:
    """The thread that ran a work, by the index of its op, where both are certain.

    Messages, and before PyTorch 2.1 all works, are annotated on the thread that issues them.
    """
    threads, names = (events.ops.columns[number] for number in (2, 3))
    issuing = {threads[place] for place in works}
    issuing |= {
        thread for thread, name in zip(threads, names, strict=True) if name.startswith(_LIBRARY)
    }
    return {
        place: work.thread
        for place, work in works.items()
        if work.sure and work.thread not in issuing
    }
