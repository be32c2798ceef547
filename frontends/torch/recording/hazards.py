"""Earlier ops that access the same bytes as an op.

The idea: for every storage, the ops that last wrote, and since then read, which bytes are kept.  An
op comes after the writers of what it reads (read after write: the data edges), and after the
readers and writers of what it overwrites (write after read, write after write).  Extents are
intervals: views that interleave count as overlapping, which adds order and never loses any.

    hazards = Hazards()
    hazards.access(0, stream=0, reads=[], writes=[Extent(7, 0, 64, True)])
    hazards.before(reads=[Extent(7, 32, 64, True)], writes=[])          # Before(data={0}, ...)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Extent(NamedTuple):
    """Bytes ``[low, high)`` of a storage; dense if all of them are accessed."""

    storage: int
    low: int
    high: int
    dense: bool


def extent(
    storage: int, offset: int, shape: Sequence[int], stride: Sequence[int], element: int
) -> Extent:
    """The bytes that a view spans.

    Args:
        storage: its number.
        offset: offset of the first element, in elements.
        shape, stride: in elements.
        element: size of an element, bytes.
    """
    span, count = 1, 1
    for size, step in zip(shape, stride, strict=True):
        if size == 0:
            return Extent(storage, 0, 0, True)
        span += (size - 1) * step
        if step:
            count *= size
    return Extent(storage, offset * element, (offset + span) * element, count == span)


@dataclass(frozen=True, slots=True)
class Before:
    """Earlier ops: those whose data an op takes, and those that it must not overtake."""

    data: frozenset[int]
    order: frozenset[int]


#: Bytes and stream -> the last op; an earlier one of the same stream comes before it anyway.
_Accesses = dict[tuple[int, int, Hashable], int]


@dataclass(slots=True)
class _Storage:
    writes: _Accesses = field(default_factory=dict)
    reads: _Accesses = field(default_factory=dict)


class Hazards:
    """Accesses of the ops so far."""

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}

    def before(self, reads: Iterable[Extent], writes: Iterable[Extent]) -> Before:
        """The ops that an op with these accesses comes after."""
        data: set[int] = set()
        order: set[int] = set()
        for item in reads:
            known = self._storages.get(item.storage)
            if known is not None:
                data.update(_touching(known.writes, item))
        for item in writes:
            known = self._storages.get(item.storage)
            if known is not None:
                order.update(_touching(known.writes, item))
                order.update(_touching(known.reads, item))
        return Before(frozenset(data), frozenset(order - data))

    def access(
        self, op: int, stream: Hashable, reads: Iterable[Extent], writes: Iterable[Extent]
    ) -> None:
        """Note the accesses of an op."""
        for item in reads:
            storage = self._storages.setdefault(item.storage, _Storage())
            storage.reads[item.low, item.high, stream] = op
        for item in writes:
            storage = self._storages.setdefault(item.storage, _Storage())
            if item.dense:
                # Ops after this write also come after everything before it.
                storage.writes = _outside(storage.writes, item)
                storage.reads = _outside(storage.reads, item)
            storage.writes[item.low, item.high, stream] = op


def _touching(accesses: _Accesses, item: Extent) -> Iterable[int]:
    return (op for (low, high, _), op in accesses.items() if low < item.high and item.low < high)


def _outside(accesses: _Accesses, item: Extent) -> _Accesses:
    return {
        key: op for key, op in accesses.items() if not (item.low <= key[0] and key[1] <= item.high)
    }
