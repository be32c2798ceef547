"""What programs issue, in order and with all iterations, without listing the iterations.

The idea: the communications of a program on one communicator, or the messages of one permutation,
are a word; a loop repeats the word of its body.  Two words are equal if their lengths, the sums of
their bytes and their digests are: a digest is the word read as a number in a large base, modulo a
prime of 127 bits, so that joining two words and repeating one are arithmetic, and the cost grows
with the digits of a trip count. Different words of less than 10**18 symbols have the same digest
with a probability of 1e-20.

    first, second = issued([program.graph, other.graph])
    first.on(3) == second.on(3)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph

_PRIME: Final = 2**127 - 1
#: Any large number will do; this one is the digits of pi.
_BASE: Final = 314159265358979323846264338327950288


@dataclass(frozen=True, slots=True)
class Word:
    """Symbols in order.

    Attributes:
        length: number of symbols.
        bytes: their total bytes.
        digest: digest of the symbols in order.
    """

    length: int = 0
    bytes: int = 0
    digest: int = 0

    def __add__(self, other: Word) -> Word:
        return _joined((self, other))

    def times(self, count: int) -> Word:
        """The word ``count`` times, by doubling."""
        found, power = Word(), self
        while count:
            if count & 1:
                found = power + found
            count >>= 1
            power = power + power if count else power
        return found


def _joined(words: Iterable[Word]) -> Word:
    """Words one after another."""
    length = size = digest = 0
    for word in words:
        shift = _BASE if word.length == 1 else pow(_BASE, word.length, _PRIME)
        digest = (digest * shift + word.digest) % _PRIME
        length, size = length + word.length, size + word.bytes
    return Word(length, size, digest)


EMPTY: Final = Word()


#: A permutation, and the channel of its sends and receives (0: none).
Exchange = tuple[Any, int]


@dataclass(frozen=True, slots=True)
class Issued:
    """The words of one program."""

    words: Mapping[Hashable, Word] = field(default_factory=dict)

    def on(self, communicator: int) -> Word:
        """What the program issues on a communicator: kinds and sizes."""
        return self.words.get(communicator, EMPTY)

    def sent(self, exchange: Exchange) -> Word:
        """The sizes of the messages that it sends."""
        return self.words.get(("sent", exchange), EMPTY)

    def received(self, exchange: Exchange) -> Word:
        """The sizes of the messages that it receives."""
        return self.words.get(("received", exchange), EMPTY)

    @property
    def exchanges(self) -> set[Exchange]:
        """The permutations of its messages; sends and receives meet on their channel alone."""
        return {key[1] for key in self.words if isinstance(key, tuple)}


def issued(programs: Sequence[WorkloadGraph]) -> list[Issued]:
    """The words of programs, comparable with each other."""
    symbols: dict[Hashable, int] = {}
    return [Issued(_words(graph, symbols)) for graph in programs]


def _words(graph: WorkloadGraph, symbols: dict[Hashable, int]) -> dict[Hashable, Word]:
    table = graph.tables.communications
    of_entry: dict[int, list[tuple[Hashable, Word]]] = {}
    found: dict[Hashable, list[Word]] = {}
    for node in np.flatnonzero(graph.kind != NodeKind.COMPUTE).tolist():
        kind, detail = int(graph.kind[node]), int(graph.detail[node])
        if kind == NodeKind.COMMUNICATION:
            if detail not in of_entry:
                of_entry[detail] = _letters(table[detail], symbols)
            for key, letter in of_entry[detail]:
                found.setdefault(key, []).append(letter)
        else:
            loop = graph.loops[detail]
            if loop.trip_count:
                for key, word in _words(loop.body, symbols).items():
                    found.setdefault(key, []).append(word.times(loop.trip_count))
    return {key: _joined(words) for key, words in found.items()}


def _letters(item: Communication, symbols: dict[Hashable, int]) -> list[tuple[Hashable, Word]]:
    """The symbol that a communication adds to each word."""

    def letter(*what: Hashable, size: int) -> Word:
        return Word(1, size, symbols.setdefault(what, len(symbols) + 1))

    size = item.largest_bytes or item.bytes_in
    found: list[tuple[Hashable, Word]] = [(item.communicator, letter(item.kind, size, size=size))]
    exchange = (item.permutation, item.channel if item.kind in ("send", "recv") else 0)
    if item.kind in ("collective_permute", "send"):
        found.append((("sent", exchange), letter(item.bytes_in, size=item.bytes_in)))
    if item.kind in ("collective_permute", "recv"):
        found.append((("received", exchange), letter(item.bytes_out, size=item.bytes_out)))
    return found
