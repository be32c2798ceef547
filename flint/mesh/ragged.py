"""Ragged columns: many short index ranges at once.

>>> segments(np.array([10, 20]), np.array([2, 3]))
array([10, 11, 20, 21, 22])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def segments(start: Ints, length: Ints) -> Ints:
    """``start[i] .. start[i] + length[i] - 1`` for every i, one after another."""
    ends = np.cumsum(length)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(start - ends + length, length)
