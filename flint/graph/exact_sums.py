"""Sums of columns that are exact whatever the size.

The idea: FLOPs and bytes of a large step times the trip counts of its loops pass 2**63.  Columns
are summed in halves of 32 bits, which cannot overflow below 2**31 nodes, and joined as Python
integers.

    >>> sums(np.array([0, 1, 0]), np.array([2**62, 5, 2**62]))
    {0: 9223372036854775808, 1: 5}
"""

from __future__ import annotations

import numpy as np

from flint.mesh.ragged import Ints

_HALF = 32
_LOW = (1 << _HALF) - 1


def sums(key: Ints, values: Ints) -> dict[int, int]:
    """Sum of ``values`` by ``key``.

    Args:
        key: shape [n].
        values: none negative, shape [n].
    """
    if not len(key):
        return {}
    codes, index = np.unique(key, return_inverse=True)
    low, high = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
    np.add.at(low, index, values & _LOW)
    np.add.at(high, index, values >> _HALF)
    pairs = zip(codes.tolist(), low.tolist(), high.tolist(), strict=True)
    return {code: (above << _HALF) + below for code, below, above in pairs}


def counts(key: Ints) -> dict[int, int]:
    """How often each key occurs."""
    codes, found = np.unique(key, return_counts=True)
    return dict(zip(codes.tolist(), found.tolist(), strict=True))


def total(values: Ints) -> int:
    """Sum of ``values``, none negative."""
    return (int((values >> _HALF).sum()) << _HALF) + int((values & _LOW).sum())
