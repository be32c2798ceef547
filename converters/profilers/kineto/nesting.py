"""The nesting of a process's ops, and facts about each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import add

import numpy as np

from flint.converters.profilers.kineto.events import Events, GloosWork, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups, facts_of, with_type
from flint.converters.profilers.kineto.kept import GLOO, NCCL
from flint.converters.profilers.kineto.library_calls import LibraryCalls, completed
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.rows import ObservedRows


class Nesting:
    """The facts and the enclosing op of each op of a process."""

    def __init__(self, rows: ObservedRows, events: Events, groups: Groups) -> None:
        self._rows, self._events, self._groups = rows, events, groups
        self._library = LibraryCalls(events.library)
        self._known: dict[tuple[str, int], OpFacts] = {}
        #: Numbers of the facts of communications.
        self._talking: set[int] = set()

    def arguments(self, op: Op) -> OpFacts:
        """Facts from an op's name and arguments."""
        facts = self._known.get((op.name, op.arguments))
        if facts is None:
            facts = facts_of(op.name, self._events.arguments[op.arguments], self._groups)
            self._known[op.name, op.arguments] = facts
        return facts

    def rows_of(self, gloo: Mapping[int, GloosWork]) -> tuple[Ints, Ints]:
        """For each op of the process, in order, the number of its facts and the index of its
        parent.

        Args:
            gloo: works by the index of their ops.
        """
        names, arguments = (self._events.ops.columns[number] for number in (3, 6))
        of: list[int] = []
        parents = self._parents()
        numbers: dict[tuple[str, int], int] = {}
        for place, described in enumerate(zip(names, arguments, strict=True)):
            number = numbers.get(described, -1)
            if number < 0 or place in gloo:
                op = self._events.ops[place]
                facts = self.arguments(op)
                spoken = facts.kind.collective or op.name == RECORD or op.name.startswith(NCCL)
                if place in gloo or spoken:
                    outer = set(_numbers_around(parents[place], parents, of))
                    number = self._communication(op, facts, gloo.get(place), outer)
                else:
                    number = numbers[described] = self._rows.number_of(facts)
            of.append(number)
        return np.array(of, np.int64), np.array(parents, np.int64)

    def _parents(self) -> list[int]:
        """The index of the op that encloses each, -1 for none."""
        starts, durations, threads = self._events.ops.columns[:3]
        ends = list(map(add, starts, durations))
        last: dict[object, int] = {}
        parents: list[int] = []
        for place, (start, thread) in enumerate(zip(starts, threads, strict=True)):
            outer = last.get(thread, -1)
            while outer >= 0 and ends[outer] <= start:
                outer = parents[outer]
            parents.append(outer)
            last[thread] = place
        return parents

    def _communication(
        self, op: Op, facts: OpFacts, work: GloosWork | None, outer: Collection[int]
    ) -> int:
        """The number of an op's facts, completed from gloo's work and the library's calls.

        Args:
            op: the op.
            facts: its own facts.
            work: gloo's work.
            outer: numbers of the facts of the enclosing ops.
        """
        if work is not None and facts.kind.collective:
            facts = with_type(facts, work)
        elif work is not None:
            facts = completed(facts, work.call)
            if facts.kind is OpClass.OTHER and op.name.startswith(GLOO):
                facts = OpFacts(OpClass.OTHER_COLLECTIVE, op.name)
        annotation = op.name.startswith(NCCL)
        if annotation and not self._talking.isdisjoint(outer):
            # PyTorch before 1.12 writes it as an op: it belongs to the communication around it.
            return self._rows.number_of(facts)
        unsized = facts.kind.collective and facts.parts is None
        if op.name == RECORD or annotation or unsized:
            facts = self._library.completed(facts, op.thread, op.start, op.start + op.duration)
        number = self._rows.number_of(facts)
        if facts.kind.must_match:
            self._talking.add(number)
        if facts.kind.collective and number in outer:
            self._rows.note("collectives that the profiler recorded twice: counted once")
            return self._rows.number_of(OpFacts(OpClass.FREE, op.name))
        return number


def _numbers_around(place: int, parents: Sequence[int], of: Sequence[int]) -> Iterator[int]:
    """Numbers of the facts of an op and of those around it, the inner ones first."""
    while place >= 0:
        yield of[place]
        place = parents[place]
