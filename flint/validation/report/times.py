"""Measured and modelled time, per class.

The idea: both are summed over the same ops, those with a partner, so that a ratio depends only on
the model, not on other ops.  A collective's kernel also waits for the last rank to arrive; if
several ranks were traced, their time beyond that of the fastest counts as waiting.

    times = Times()
    times.add(matching, measured, modelled)
    times.classes[OpClass.GEMM].ratio
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.pairing import Matching

_NANO = 1e-9


@dataclass(slots=True)
class ClassTime:
    """One class, summed over the compared ranks.

    Attributes:
        measured: seconds of all its executed ops.
        matched: the part of ops with a partner.
        waiting: the part of this that collectives spent beyond the time of the fastest traced rank;
            0 if only one rank of each was traced.
        modelled: seconds of the captured ops with a partner.
        unknown: number of executed ops whose time the trace lacks.
    """

    measured: float = 0.0
    matched: float = 0.0
    waiting: float = 0.0
    modelled: float = 0.0
    unknown: int = 0

    @property
    def ratio(self) -> float | None:
        """Measured time without waiting, divided by modelled time; None if either is missing."""
        busy = self.matched - self.waiting
        return busy / self.modelled if self.modelled > 0 and busy > 0 else None


@dataclass(slots=True)
class Times:
    """Times per class.

    Attributes:
        system: the modelled system; "" without a model.
        classes: times per class.
        ranks: number of ranks that they are summed over.
        steps: number of steps that they are the mean of; the least over ranks.
        collectives: number of measured collectives of several ranks with a partner.
        met: the number of these with known waiting, because another rank of the same one was
            traced.
    """

    system: str = ""
    classes: dict[OpClass, ClassTime] = field(default_factory=dict)
    ranks: int = 0
    steps: int = 1
    collectives: int = 0
    met: int = 0

    def of(self, kind: OpClass) -> ClassTime:
        """The times of a class, made on first use."""
        return self.classes.setdefault(kind, ClassTime())

    def add(
        self,
        matching: Matching,
        measured: NDArray[np.int64],
        modelled: NDArray[np.float64] | None,
    ) -> None:
        """One rank's.

        Args:
            matching: its ops and their pairs.
            measured: nanoseconds per executed op, -1 unknown.
            modelled: seconds per captured op; None without a system.
        """
        self.ranks += 1
        for number, facts in enumerate(matching.executed):
            time = self.of(facts.kind)
            if measured[number] < 0:
                # A product that became a multiplication is timed with the ops that it is fused
                # with.
                time.unknown += facts.kind != OpClass.ELEMENTWISE or facts.gemms is None
            else:
                time.measured += int(measured[number]) * _NANO
        modelled_ids: set[int] = set()
        timed_ids: set[int] = set()
        for i, j, _ in matching.pairs:
            if measured[j] < 0:
                continue
            time = self.of(matching.captured[i].kind)
            if j not in timed_ids:  # several captured ops may run as one, and one as several
                time.matched += int(measured[j]) * _NANO
                self.collectives += _waits(matching.captured[i])
            if modelled is not None and i not in modelled_ids:
                time.modelled += float(modelled[i])
            modelled_ids.add(i)
            timed_ids.add(j)

    def total(self, *, collective: bool) -> ClassTime:
        """All communication, or all compute."""
        found = ClassTime()
        for kind, time in self.classes.items():
            if kind.collective == collective:
                for name in ClassTime.__slots__:
                    setattr(found, name, getattr(found, name) + getattr(time, name))
        return found

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return any(time.measured > 0 for time in self.classes.values())


def _waits(facts: OpFacts) -> bool:
    """Whether an op may wait for another rank: all communications, except in groups of one."""
    alone = facts.group is not None and len(facts.group) == 1
    return facts.kind.collective and not (alone and facts.kind != OpClass.COLLECTIVE_PERMUTE)
