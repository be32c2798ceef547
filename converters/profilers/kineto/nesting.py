"""The nesting of a process's ops, and facts about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flint.converters.profilers.kineto.events import Events, GloosWork, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups, facts_of, with_type
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
        of: list[int] = []
        parents: list[int] = []
        numbers: dict[tuple[str, int], int] = {}
        stacks: dict[object, list[tuple[int, int]]] = {}
        for place, op in enumerate(self._events.ops):
            start, duration, thread, name, _, _, arguments = op
            stack = stacks.get(thread)
            if stack is None:
                stack = stacks[thread] = []
            while stack and stack[-1][0] <= start:
                stack.pop()
            number = numbers.get((name, arguments), -1)
            if number < 0 or place in gloo:
                facts = self.arguments(op)
                if place in gloo or facts.kind.collective or name == RECORD:
                    number = self._communication(op, facts, gloo.get(place), stack, of)
                else:
                    number = numbers[name, arguments] = self._rows.number_of(facts)
            of.append(number)
            parents.append(stack[-1][1] if stack else -1)
            stack.append((start + duration, place))
        return np.array(of, np.int64), np.array(parents, np.int64)

    def _communication(
        self,
        op: Op,
        facts: OpFacts,
        work: GloosWork | None,
        stack: Sequence[tuple[int, int]],
        of: Sequence[int],
    ) -> int:
        """The number of an op's facts, completed from gloo's work and the library's calls.

        Args:
            op: the op.
            facts: its own facts.
            work: gloo's work.
            stack: ends and indices of the enclosing ops.
            of: numbers of the facts of the ops before it.
        """
        if work is not None and facts.kind.collective:
            facts = with_type(facts, work)
        elif work is not None:
            facts = completed(facts, work.call)
        if op.name == RECORD or (facts.kind.collective and facts.parts is None):
            facts = self._library.completed(facts, op.thread, op.start, op.start + op.duration)
        number = self._rows.number_of(facts)
        if facts.kind.collective and any(of[outer] == number for _, outer in stack):
            self._rows.note("collectives that the profiler recorded twice: counted once")
            return self._rows.number_of(OpFacts(OpClass.FREE, op.name))
        return number
