"""The distinct values of an array.

The idea: ``np.unique`` first checks whether the array is masked, for which it imports masked
arrays: a tenth of a short command's start-up time.

    distinct(np.array([3, 1, 3]))       # [1, 3]
"""

from __future__ import annotations

import numpy as np

from flint.mesh.ragged import Ints


def distinct(values: Ints) -> Ints:
    """The distinct values in ascending order; an array of several dims is flattened."""
    ordered = np.sort(values, axis=None)
    keep = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]
