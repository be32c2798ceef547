"""Evidence of differences among ranks, in one form: comparisons, shard sizes, groups, stages.

The idea: each piece of evidence gives every rank a number, its kind, equal for ranks that it does
not distinguish.  A program asks the same question many times: each piece of evidence is kept once,
by the place that it comes from.

    found = Gathered()
    found.ask("at train.py:7", np.arange(64) == 0)       # a question and who is answered yes
    found.add("shards of 16 rows", np.arange(64) < 16)   # a fact
    found.all()
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Kinds = NDArray[np.int64]

#: Of more questions from one place than this, only a rank's number of yes answers is kept.
MOST_AT_A_PLACE = 64


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of evidence that distinguishes ranks.

    Attributes:
        place: where it comes from.
        asked: whether it is a question of the program, which may have no effect; otherwise a fact
            on which sizes or messages depend.
        packed: the ranks' kinds, compressed.
        close: whether it divides more than usually matters, such as every group from the others:
            it counts where recorded ranks differ that nothing else distinguishes.
    """

    place: str
    asked: bool
    packed: bytes
    close: bool = False

    def kinds(self) -> Kinds:
        """The number of every rank's kind, [world]; 0 and 1 (no and yes) for a question."""
        raw = zlib.decompress(self.packed)
        return np.frombuffer(raw[1:], raw[:1].decode()).astype(np.int64)


def evidence_of(place: str, kinds: Any, asked: bool = False, close: bool = False) -> Evidence:
    """Evidence from the ranks' kinds, whole numbers or booleans, [world]."""
    kinds = np.asarray(kinds)
    if kinds.dtype != bool:
        kinds = np.unique(kinds, return_inverse=True)[1].reshape(-1)
    code = next(code for code in "BHIQ" if kinds.max(initial=0) <= np.iinfo(code).max)
    packed = zlib.compress(code.encode() + kinds.astype(code).tobytes(), 1)
    return Evidence(place, asked, packed, close)


class Gathered:
    """The evidence of one rank's capture, each piece once."""

    def __init__(self) -> None:
        self._asked: dict[str, dict[bytes, int]] = {}
        self._counts: dict[str, Kinds] = {}
        self._facts: dict[Evidence, None] = {}

    def ask(self, place: str, yes: NDArray[np.bool_]) -> None:
        """A question of the program: for which ranks the answer is yes, [world]."""
        if yes.all() or not yes.any():
            return
        if place in self._counts:
            self._counts[place] += yes
            return
        found = self._asked.setdefault(place, {})
        found[np.packbits(yes).tobytes()] = len(yes)
        if len(found) > MOST_AT_A_PLACE:
            self._counts[place] = np.sum([_mask(*item) for item in found.items()], 0)
            del self._asked[place]

    def ask_value(self, place: str, kinds: Kinds, close: bool = False) -> None:
        """A number of the program that may distinguish ranks, [world]."""
        if kinds.min() != kinds.max():
            self._facts[evidence_of(place, kinds, asked=True, close=close)] = None

    def add(self, place: str, kinds: NDArray[Any]) -> None:
        """A fact: whole numbers or booleans that differ among ranks, [world]."""
        if kinds.min() != kinds.max():
            self._facts[evidence_of(place, kinds)] = None

    def all(self) -> tuple[Evidence, ...]:
        """All of it."""
        asked = [
            evidence_of(place, _mask(*item), asked=True)
            for place, found in self._asked.items()
            for item in found.items()
        ]
        counted = [evidence_of(place, kinds, True) for place, kinds in self._counts.items()]
        return (*self._facts, *asked, *counted)


def _mask(packed: bytes, world: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=world).astype(bool)
