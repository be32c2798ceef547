"""The distinct values of an array.

The idea: ``np.unique`` asks first whether the array is a masked one, for which it imports them: a
tenth of a short command's start.

    distinct(np.array([3, 1, 3]))       # [1, 3]
"""

from __future__ import annotations

import numpy as np

from flint.mesh.ragged import Ints


def distinct(values: Ints) -> Ints:
    """The values, ascending, each once; an array of several dims is looked at as one of one."""
    ordered = np.sort(values, axis=None)
    keep = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]
