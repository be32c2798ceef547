"""Rows of a trace, gathered while a reader goes through its file."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed, OpFacts

#: The most rows of a trace.
MAX_ROWS = 50_000_000
#: Columns of ``Observed``, in the order of ``ObservedRows.add``.
COLUMNS = ("op", "rank", "step", "start", "duration", "end", "stream", "parent", "launches")


class ObservedRows:
    """Gathers rows while a reader goes through its file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.facts: dict[OpFacts, int] = {}
        self.columns: dict[str, array[int]] = {name: array("q") for name in COLUMNS}
        self._op = self.columns["op"]
        self._rank, self._step, self._start, self._duration, self._end = (
            self.columns[name].append for name in ("rank", "step", "start", "duration", "end")
        )
        self._stream, self._parent, self._launches = (
            self.columns[name].append for name in ("stream", "parent", "launches")
        )
        self.notes: dict[str, int] = {}
        #: Kernels that no op launched, by rank and step.
        self.alone: Counter[tuple[int, int]] = Counter()
        #: Threads of process groups that ran rows.
        self.workers: dict[int, int] = {}

    def add(
        self,
        facts: OpFacts,
        *,
        rank: int,
        step: int = -1,
        start: int = -1,
        duration: int = -1,
        end: int = -1,
        stream: int = 0,
        parent: int = -1,
        launches: int = -1,
    ) -> int:
        """Add a row; returns its number.

        Raises:
            FlintError: more rows than a trace may have.
        """
        number = len(self._op)
        self._check(1)
        self._op.append(self.number_of(facts))
        # Written out, because a loop takes twice as long.
        self._rank(rank)
        self._step(step)
        self._start(start)
        self._duration(duration)
        self._end(end)
        self._stream(stream)
        self._parent(parent)
        self._launches(launches)
        return number

    def number_of(self, facts: OpFacts) -> int:
        """The index of facts among those of all rows."""
        return self.facts.setdefault(facts, len(self.facts))

    def extend(self, **columns: Ints) -> None:
        """Add rows by all of their columns (``COLUMNS``), shape [rows] each.

        Raises:
            FlintError: more rows than a trace may have.
        """
        self._check(len(columns["op"]))
        for name in COLUMNS:
            self.columns[name].frombytes(np.ascontiguousarray(columns[name], np.int64).tobytes())

    def _check(self, added: int) -> None:
        if len(self._op) + added > MAX_ROWS:
            raise FlintError(f"{self.path}: more than {MAX_ROWS:,} ops")

    def note(self, text: str, count: int = 1) -> None:
        """Count a note for the report."""
        self.notes[text] = self.notes.get(text, 0) + count

    def finish(
        self,
        *,
        form: str,
        backend: str,
        world: int | None,
        steps: tuple[str, ...],
        base: int = 0,
    ) -> Observed:
        """The columns; known starts and ends count from ``base``, nanoseconds."""
        columns: dict[str, Any] = {
            name: np.array(column, dtype=np.int64) for name, column in self.columns.items()
        }
        for name in ("start", "end"):
            columns[name][columns[name] >= 0] += base
        return Observed(
            path=self.path, form=form, backend=backend, world=world, facts=tuple(self.facts),
            steps=steps, notes=self.notes, alone=self.alone, workers=self.workers, **columns,
        )  # fmt: skip
