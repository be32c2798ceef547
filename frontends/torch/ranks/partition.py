"""The partition of the ranks that follows from all evidence together.

The idea: every piece of evidence divides the ranks, and ranks that none divides form a cell: all
evidence is crossed, so that no kind takes precedence.  A program's questions may produce more cells
than can be recorded: a loop over all ranks' numbers produces one for each.  Then ranks are
distinguished by their number of yes answers at a place; the place is named.

    crossed(evidence, world=64)        # Partition(cells=[0, 1, 1, ... 2, 2], count=3)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.evidence import Evidence, Kinds

#: More cells than this are refused, because each costs a recording.
MOST_CELLS = 256

#: The most cells made by questions of one place that differ only in a number.
_MOST_BY_QUESTIONS = 64


@dataclass(frozen=True, slots=True)
class Partition:
    """Cells of ranks that no evidence distinguishes.

    Attributes:
        cells: the number of every rank's cell, [world].
        count: of cells.
        facts: the number of every rank's cell without the questions, [world].
        counted: places whose questions count by the number of yes answers.
        left_out: places whose questions are ignored.
    """

    cells: Kinds
    count: int
    facts: Kinds
    counted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def crossed(evidence: Iterable[Evidence], world: int) -> Partition:
    """Cross all evidence.

    Args:
        evidence: of all recorded ranks; equal pieces count once.
        world: number of ranks.

    Raises:
        FlintError: facts alone make more cells than are recorded.
    """
    distinct = sorted(set(evidence), key=lambda item: (item.place, item.packed))
    facts = _product(
        np.zeros(world, np.int64), [item.kinds() for item in distinct if not item.asked]
    )
    count = int(facts.max()) + 1
    if count > MOST_CELLS:
        raise FlintError(
            f"ranks differ in {count:,} ways (sizes of shards, pipeline stages, roots); the limit "
            f"is {MOST_CELLS}: capture a smaller mesh"
        )
    asked: dict[str, list[Kinds]] = {}
    for item in distinct:
        if item.asked:
            asked.setdefault(item.place, []).append(item.kinds())
    counted: list[str] = []
    while (cells := _cells(facts, asked)).max() >= _MOST_BY_QUESTIONS:
        place = max(asked, key=lambda key: len(asked[key]), default="")
        if not place or len(asked[place]) == 1:
            break
        asked[place] = [np.sum(asked[place], 0)]
        counted.append(place)
    left_out: list[str] = []
    while cells.max() >= MOST_CELLS:
        sizes = {key: int(_cells(facts, {key: asked[key]}).max()) for key in sorted(asked)}
        left_out.append(max(sizes, key=lambda key: sizes[key]))
        del asked[left_out[-1]]
        cells = _cells(facts, asked)
    named = tuple(sorted(counted)), tuple(sorted(left_out))
    return Partition(cells, int(cells.max()) + 1, facts, *named)


def unlike_questions(reports: Iterable[Iterable[Evidence]]) -> list[str]:
    """Places where recorded ranks ask different questions, not only fewer.

    There the rank is compared with a number that differs among ranks, so for which other ranks the
    answer is yes is not known.

    Args:
        reports: the evidence of every recorded rank.
    """
    asked: dict[str, set[frozenset[bytes]]] = {}
    for evidence in reports:
        own: dict[str, list[bytes]] = {}
        for item in evidence:
            if item.asked:
                own.setdefault(item.place, []).append(item.packed)
        for place, questions in own.items():
            asked.setdefault(place, set()).add(frozenset(questions))
    return [
        place
        for place, found in sorted(asked.items())
        if not all(one <= other for one, other in itertools.pairwise(sorted(found, key=len)))
    ]


def _cells(facts: Kinds, asked: Mapping[str, Sequence[Kinds]]) -> Kinds:
    return _product(facts, [kinds for place in asked.values() for kinds in place])


def _product(cells: Kinds, more: Iterable[Kinds]) -> Kinds:
    """Cells of ranks that are equal in everything, [world]."""
    for kinds in more:
        pairs = cells * (int(kinds.max()) + 1) + kinds
        if pairs.max() < 4 * len(pairs):  # without sorting
            there = np.zeros(int(pairs.max()) + 1, bool)
            there[pairs] = True
            cells = (np.cumsum(there) - 1)[pairs]
        else:
            cells = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return cells
