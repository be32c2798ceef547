"""The memory that a recorded program asked its framework's allocator for.

The idea: a graph shows when values were last read; only a recording shows when a framework really
freed their memory, and which pool it came from.  Each row is the memory of one buffer from one
moment to another; a moment is the number of ops issued so far.

    allocations.born[7], allocations.freed[7], allocations.size[7]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.graph.arrays import DAMAGED, archive_of, arrays_of
from flint.mesh.ragged import Ints

#: Start of memory that was taken before any step, or in the first one (optimizer state).
BEFORE, FIRST_STEP = -2, -1
#: End of memory that outlives the step.
NEVER = -1
#: The pool of buffers in the host's memory.
HOST = -1
#: The largest figure, so that sums fit into 64 bits.
_MOST: Final = 2**44
_COLUMNS: Final = ("size", "pool", "born", "freed", "used")


@dataclass(frozen=True, eq=False, slots=True)
class Allocations:
    """The memory of one program's buffers; rows are in order of their start.

    Attributes:
        size: bytes of each, shape [rows].
        pool: the stream that owns the memory, ``HOST`` for the host's, shape [rows].
        born: when it was allocated, or ``BEFORE`` or ``FIRST_STEP``, shape [rows].
        freed: when it was freed, or ``NEVER``, shape [rows].
        used: the last op that read or wrote it, shape [rows].
        expandable: whether PyTorch's allocator had segments that grow
            (``expandable_segments:True``).
    """

    size: Ints
    pool: Ints
    born: Ints
    freed: Ints
    used: Ints
    expandable: bool = False

    @classmethod
    def from_rows(cls, rows: Ints, expandable: bool) -> Allocations:
        """Make it from a table with the columns in their order, shape [rows, 5].

        Raises:
            ValueError: impossible rows.
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
        """The allocations as a compiler would plan them: tensors that autograd holds are freed
        after their last use.
        """
        planned = (self.freed != NEVER) & (self.born >= 0)
        return replace(self, freed=np.where(planned, self.used + 1, self.freed))

    def to_bytes(self) -> bytes:
        """As an ``.npz`` archive."""
        return archive_of({"rows": self.rows(), "expandable": np.array(self.expandable)})

    @staticmethod
    def from_bytes(data: bytes, name: str) -> Allocations:
        """The allocations of ``to_bytes``.

        Raises:
            FlintError: not such an archive."""
        try:
            arrays = arrays_of(data, name)
            rows, expandable = arrays["rows"], bool(arrays["expandable"])
            if rows.dtype != np.int64:
                raise ValueError("its table is not of integers")
            return Allocations.from_rows(rows, expandable)
        except DAMAGED as error:
            raise FlintError(f"{name}: not allocations written by Flint ({error})") from error
