"""Questions of recorded ranks that are one question, moved along mesh axes.

The idea: a program compares its rank with the first rank of its own row of the mesh, a number that
Flint does not follow.  Rank 0 asks about rank 0, rank 63 of an 8x8 mesh about rank 56: the question
of one is that of the other, moved as far along the first axis as the ranks are apart.  If that
holds for all recorded ranks, it is known what every other rank asks, and what the answer is.

    moved({0: about_0, 63: about_56}, (8, 8))     # {"at train.py:7": (the first of each row,)}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flint.frontends.torch.evidence import Evidence, evidence_of
from flint.frontends.torch.ranks.partition import unlike_questions

#: A place's questions, each as who is answered yes, in bits.
_Questions = frozenset[bytes]


def moved(
    evidence: Mapping[int, Iterable[Evidence]], shape: tuple[int, ...]
) -> dict[str, tuple[Evidence, ...]]:
    """Place -> what all ranks' own questions there say, where those of recorded ones differ.

    Args:
        evidence: recorded rank -> its evidence.
        shape: devices per mesh axis; rank is row-major.
    """
    kept = {rank: tuple(item for item in items if item.asked) for rank, items in evidence.items()}
    found = {}
    for place in unlike_questions(kept.values()):
        asked = {rank: _questions(items, place) for rank, items in kept.items()}
        some = {rank: questions for rank, questions in asked.items() if questions}
        if None in asked.values() or not some:
            continue
        rank, questions = next(iter(some.items()))
        if (axes := _axes(some, shape)) is not None:
            found[place] = _answers(place, rank, questions, shape, axes)
    return found


def with_moved(
    evidence: Mapping[int, Iterable[Evidence]], shape: tuple[int, ...]
) -> Iterator[Evidence]:
    """All evidence, with all ranks' own questions where it is known how they move."""
    found = moved(evidence, shape)
    for item in itertools.chain.from_iterable(evidence.values()):
        if not item.asked or item.place not in found:
            yield item
    yield from itertools.chain.from_iterable(found.values())


def _questions(items: Sequence[Evidence], place: str) -> _Questions | None:
    """A rank's questions at a place; None if some have more than two answers."""
    kinds = [item.kinds() for item in items if item.place == place]
    if any(item.max() > 1 for item in kinds):
        return None
    return frozenset(np.packbits(item.astype(bool)).tobytes() for item in kinds)


def _axes(asked: Mapping[int, _Questions], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The fewest axes along which all recorded ranks' questions are the first one's, moved."""
    (first, questions), *others = asked.items()
    long = [axis for axis, size in enumerate(shape) if size > 1]
    for count in range(1, len(long) + 1):
        for axes in itertools.combinations(long, count):
            if all(_moved(questions, first, to, shape, axes) == item for to, item in others):
                return axes
    return None


def _moved(
    questions: _Questions, start: int, to: int, shape: tuple[int, ...], axes: tuple[int, ...]
) -> _Questions:
    """A rank's questions as another one asks them."""
    at = np.array(np.unravel_index([start, to], shape))
    steps = [int(at[axis, 1] - at[axis, 0]) for axis in axes]
    return frozenset(
        np.packbits(np.roll(_mask(item, shape), steps, axes)).tobytes() for item in questions
    )


def _answers(
    place: str, rank: int, questions: _Questions, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[Evidence, ...]:
    """What every rank's own questions say: this rank's, where they would be if they had moved."""
    places = list(np.unravel_index(np.arange(int(np.prod(shape))), shape))
    own = np.unravel_index(rank, shape)
    for axis in axes:
        places[axis] = np.full_like(places[axis], own[axis])
    answers = (_mask(item, shape)[tuple(places)] for item in sorted(questions))
    return tuple(evidence_of(place, yes, asked=True) for yes in answers if yes.min() != yes.max())


def _mask(question: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Who is answered yes, [*shape]."""
    bits = np.unpackbits(np.frombuffer(question, np.uint8), count=int(np.prod(shape)))
    return bits.astype(bool).reshape(shape)
