"""How the ops of one rank pair up: pairs, why each is one, and what is left.

result = Matching()
result.pairs.append((0, 3, Evidence.SIZES))
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from flint.observed.classes import OpClass


class Evidence(IntEnum):
    """Why two ops are held to be the same."""

    NAME = 0  # class, name and order: the trace has no sizes, so this is a weak match
    SIZES = 1  # what they compute or send as well
    IDENTITY = 2  # and where the program's source has them


#: (captured, executed, evidence).
Pairs: TypeAlias = list[tuple[int, int, Evidence]]


@dataclass(slots=True)
class Matching:
    """How the ops of one rank pair up.

    Attributes:
        pairs: (captured, executed, evidence); positions in what ``match`` was given.
        explained: reason -> how many pairs differ in form by it, or how many ops have no partner.
        without_captured, without_executed: positions of ops without a partner for a known reason,
            and of calls whose partners are their messages.
        unmatched_captured, unmatched_executed: positions of the others, ascending.
        reordered: pairs of a recording in another order than recorded.
        in_order: class -> pairs that follow each other in both.
        certain: captured positions whose partner could be no other op: all recorded ones, and of
            XLA's those that alone look as they do.
    """

    pairs: list[tuple[int, int, Evidence]] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    without_captured: list[int] = field(default_factory=list)
    without_executed: list[int] = field(default_factory=list)
    unmatched_captured: list[int] = field(default_factory=list)
    unmatched_executed: list[int] = field(default_factory=list)
    reordered: list[tuple[int, int]] = field(default_factory=list)
    in_order: dict[OpClass, int] = field(default_factory=dict)
    certain: set[int] = field(default_factory=set)

    def explain(self, reason: str, captured: Sequence[int], executed: Sequence[int]) -> None:
        """Say why ops have no partner."""
        if captured or executed:
            self.explained[reason] += len(captured) + len(executed)
        self.without_captured += captured
        self.without_executed += executed
        self.unmatched_captured = without(self.unmatched_captured, captured)
        self.unmatched_executed = without(self.unmatched_executed, executed)


def without(positions: list[int], taken: Iterable[int]) -> list[int]:
    """The positions that are not taken."""
    gone = set(taken)
    return [position for position in positions if position not in gone]


def equal(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of equal keys, the first of each with the first."""
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for j, key in enumerate(theirs):
        places[key].append(j)
    return [(i, places[key].popleft()) for i, key in enumerate(ours) if places.get(key)]
