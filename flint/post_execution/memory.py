"""The last writers of each byte of a storage.

The idea: each storage is cut into ordered pieces that do not overlap, each with the units that may
have written it last: one, or several if only part of a range was written, such as columns of a
matrix.

    memory = Memory()
    memory.write(7, 0, 64, unit=3, whole=True)
    memory.write(7, 16, 32, unit=4, whole=True)
    memory.writers(7, 24, 48)        # [4, 3]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class _Pieces(NamedTuple):
    """Pieces of a storage in order: first byte, past the last one, writers."""

    low: list[int]
    high: list[int]
    units: list[tuple[int, ...]]


class Memory:
    """The last writers of all storages."""

    def __init__(self) -> None:
        self._storages: dict[int, _Pieces] = {}

    def writers(self, storage: int, low: int, high: int) -> Sequence[int]:
        """Units that may have written some of the bytes from ``low`` to ``high`` last."""
        pieces = self._storages.get(storage)
        if pieces is None:
            return ()
        first, last = bisect_right(pieces.high, low), bisect_left(pieces.low, high)
        if last - first == 1:
            return pieces.units[first]
        return [unit for units in pieces.units[first:last] for unit in units]

    def write(self, storage: int, low: int, high: int, unit: int, whole: bool) -> None:
        """From now on a unit is the last writer of the bytes from ``low`` to ``high``.

        Args:
            storage, low, high: the bytes.
            unit: the unit.
            whole: whether it wrote all of them, or needs the old content; else earlier writers
                stay.
        """
        if low >= high:
            return
        pieces = self._storages.get(storage)
        if pieces is None:
            self._storages[storage] = _Pieces([low], [high], [(unit,)])
            return
        first, last = bisect_right(pieces.high, low), bisect_left(pieces.low, high)
        if whole and last - first == 1 and (pieces.low[first], pieces.high[first]) == (low, high):
            pieces.units[first] = (unit,)
            return
        touched = (pieces.low[first:last], pieces.high[first:last], pieces.units[first:last])
        made: list[tuple[int, int, tuple[int, ...]]] = []
        at = low
        for begin, end, units in zip(*touched, strict=True):
            if begin < low:
                made.append((begin, low, units))
            if not whole:
                if at < begin:
                    made.append((at, begin, (unit,)))
                others = tuple(other for other in units if other != unit)
                made.append((max(begin, low), min(end, high), (*others, unit)))
                at = min(end, high)
        if at < high:
            made.append((at, high, (unit,)))
        if first < last and pieces.high[last - 1] > high:
            made.append((high, pieces.high[last - 1], pieces.units[last - 1]))
        pieces.low[first:last] = [piece[0] for piece in made]
        pieces.high[first:last] = [piece[1] for piece in made]
        pieces.units[first:last] = [piece[2] for piece in made]
