"""Which op of a process is inside of which, and what is known of each."""

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
    """Which facts each op of a process has, and which op is around it."""

    def __init__(self, rows: ObservedRows, events: Events, groups: Groups) -> None:
        self._rows, self._events, self._groups = rows, events, groups
        self._library = LibraryCalls(events.library)
        self._known: dict[tuple[str, int], OpFacts] = {}

    def said(self, op: Op) -> OpFacts:
        """What an op's name and arguments say."""
        facts = self._known.get((op.name, op.said))
        if facts is None:
            facts = facts_of(op.name, self._events.said[op.said], self._groups)
            self._known[op.name, op.said] = facts
        return facts

    def rows_of(self, gloo: Mapping[int, GloosWork]) -> tuple[Ints, Ints]:
        """Per op of the process, in order, the number of its facts and the place of its parent.

        Args:
            gloo: works by the place of their ops.
        """
        of: list[int] = []
        parents: list[int] = []
        numbers: dict[tuple[str, int], int] = {}
        stacks: dict[object, list[tuple[int, int]]] = {}
        for place, op in enumerate(self._events.ops):
            start, duration, thread, name, _, _, said = op
            stack = stacks.get(thread)
            if stack is None:
                stack = stacks[thread] = []
            while stack and stack[-1][0] <= start:
                stack.pop()
            number = numbers.get((name, said), -1)
            if number < 0 or place in gloo:
                facts = self.said(op)
                if place in gloo or facts.kind.collective or name == RECORD:
                    number = self._communication(op, facts, gloo.get(place), stack, of)
                else:
                    number = numbers[name, said] = self._rows.number_of(facts)
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
        """The number of what is known of one, by gloo's work and the library's calls, too.

        Args:
            op: it.
            facts: what it says.
            work: gloo's.
            stack: ends and places of the ops around it.
            of: numbers of the facts of the ops in front of it.
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
