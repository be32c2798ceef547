"""Facts about collectives from the annotations of NCCL's process groups.

The idea: PyTorch before 2.2 records a collective without its name, its buffers, or both (a list of
tensors has no shapes); inside that record, the annotation of the call to the library names the
collective and what the rank contributes.

    calls = LibraryCalls(events.library)
    calls.completed(facts, thread, start, end)
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flint.converters.profilers.kineto.events import LibraryCall
from flint.converters.profilers.torch_ops import bytes_of, tensors_of
from flint.observed.classes import OpClass, c10d_class
from flint.observed.columns import OpFacts

#: "send 0->1", "recv 0<-1": the ranks within the group.
_MESSAGE = re.compile(r"(send|recv) \d{1,9}(?:->|<-)(\d{1,9})")


class LibraryCalls:
    """Calls of the library by thread and time."""

    def __init__(self, calls: Mapping[object, Sequence[LibraryCall]]) -> None:
        self._calls = calls
        self._starts = {thread: [call.start for call in some] for thread, some in calls.items()}
        self._known: dict[tuple[OpFacts, str, str], OpFacts] = {}

    def completed(self, facts: OpFacts, thread: object, start: int, end: int) -> OpFacts:
        """Facts about an op, completed from the only call inside it.

        Args:
            facts: facts of the op.
            thread, start, end: where and when it ran, nanoseconds.
        """
        starts = self._starts.get(thread)
        if starts is None:
            return facts
        first = bisect_left(starts, start)
        inside = [call for call in self._calls[thread][first : first + 2] if call.end <= end]
        if len(inside) != 1:
            return facts
        [call] = inside
        key = facts, call.name, f"{call.dims} {call.types}"
        if key not in self._known:
            self._known[key] = completed(facts, call)
        return self._known[key]


def completed(facts: OpFacts, call: LibraryCall) -> OpFacts:
    """Facts about an op, completed from the library's call for it."""
    message = _MESSAGE.fullmatch(call.name)
    name = message[1] if message else call.name
    kind = c10d_class(name)
    if kind is None or (facts.kind.collective and facts.kind != kind):
        return facts
    if not facts.kind.collective:
        facts = replace(facts, kind=kind, name=name)
    if message and facts.peer < 0:
        facts = replace(facts, peer=int(message[2]))
    tensors: list[Any] = []
    if isinstance(call.dims, list) and isinstance(call.types, list):
        tensors = [tensor for some in tensors_of(call.dims, call.types) for tensor in some]
    sizes = bytes_of(tensors)
    if facts.parts is None and sizes is not None and kind != OpClass.OTHER_COLLECTIVE:
        facts = replace(facts, operands=tuple(tensors), parts=sizes, dtype=tensors[0][1])
    return facts
