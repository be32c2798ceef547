"""Whole microseconds from exact durations, with nothing lost.

The idea: traces hold integers and most kernels take less than a microsecond, so rounding each one
by itself makes a step of a million kernels free.  Rounding the running sum instead carries every
remainder on to the next compute node; the total is off by at most one microsecond.

    >>> whole_micros(np.array([0.4e-6, 0.4e-6, 0.4e-6]))
    array([0, 1, 0])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def whole_micros(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Microseconds per node in issue order, remainders carried; never all zero if there is work."""
    running = np.rint(np.cumsum(seconds * 1e6)).astype(np.int64)
    micros = np.diff(running, prepend=0)
    if len(seconds) and not running[-1] and seconds.max() > 0:
        micros[int(np.argmax(seconds))] = 1
    return micros
