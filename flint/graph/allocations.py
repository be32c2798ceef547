"""The memory that a recorded program asked its framework's allocator for.

The idea: when values were last read follows from a graph; when a framework really gave their memory
back, and which pool it came from, only its recording knows.  Each row is memory that one buffer
had from one moment to another; moments count the ops that had been issued.

    allocations.born[7], allocations.freed[7], allocations.size[7]
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.graph.arrays import DAMAGED, arrays_of
from flint.mesh.ragged import Ints

#: Since when memory is taken: from before any step, or since the first one (optimizer state).
BEFORE, FIRST_STEP = -2, -1
#: When memory is given back that outlives the step.
NEVER = -1
#: The pool of what lies in the host's memory.
HOST = -1
#: No figure is beyond this: sums of them have room in 64 bits.
_MOST: Final = 2**44
_COLUMNS: Final = ("size", "pool", "born", "freed", "used")


@dataclass(frozen=True, eq=False, slots=True)
class Allocations:
    """What one program's buffers took; rows stand in the order in which they began.

    Attributes:
        size: bytes of each, shape [rows].
        pool: the stream whose memory it is, ``HOST`` for the host's, shape [rows].
        born: when it was asked for; ``BEFORE`` or ``FIRST_STEP``, shape [rows].
        freed: when it was given back, or ``NEVER``, shape [rows].
        used: the last op that read or wrote it, shape [rows].
        expandable: PyTorch's allocator had segments that grow (``expandable_segments:True``).
    """

    size: Ints
    pool: Ints
    born: Ints
    freed: Ints
    used: Ints
    expandable: bool = False

    @classmethod
    def from_rows(cls, rows: Ints, expandable: bool) -> Allocations:
        """Of a table with the columns in their order, shape [rows, 5].

        Raises:
            ValueError: rows that cannot be.
        """
        size, pool, born, freed, used = rows.reshape(-1, len(_COLUMNS)).T.copy()
        found = cls(size, pool, born, freed, used, expandable)
        ends = (found.freed == NEVER) | (found.freed >= np.maximum(found.born, 0))
        sound = (found.size > 0) & (found.pool >= HOST) & (found.born >= BEFORE) & ends
        if not (sound.all() and (rows < _MOST).all() and (np.diff(found.born) >= 0).all()):
            raise ValueError("allocations that no step can make")
        return found

    def rows(self) -> Ints:
        """The table of ``from_rows``."""
        return np.stack([getattr(self, name) for name in _COLUMNS], axis=1)

    def until_last_use(self) -> Allocations:
        """As a compiler plans it: what autograd still holds is given back after its last use."""
        planned = (self.freed != NEVER) & (self.born >= 0)
        return replace(self, freed=np.where(planned, self.used + 1, self.freed))

    def to_bytes(self) -> bytes:
        """As an ``.npz`` archive."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, rows=self.rows(), expandable=np.array(self.expandable))
        return buffer.getvalue()

    @staticmethod
    def from_bytes(data: bytes, name: str) -> Allocations:
        """The allocations of ``to_bytes``.

        Raises:
            FlintError: no such archive.
        """
        try:
            arrays = arrays_of(data, name)
            rows, expandable = arrays["rows"], bool(arrays["expandable"])
            if rows.dtype != np.int64:
                raise ValueError("its table is not of integers")
            return Allocations.from_rows(rows, expandable)
        except DAMAGED as error:
            raise FlintError(f"{name}: not allocations written by Flint ({error})") from error
