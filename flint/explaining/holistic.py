"""A whole trace counted by the rules of HolisticTraceAnalysis (HTA), to reproduce its numbers.

The idea: HTA counts all steps except the last, takes every event with a stream for a kernel (also
synchronisation), and rounds times inwards to whole microseconds if the file has fractions
(hta/common/trace.py and trace_parser.py, version 0.5.0).  These rules lose up to two microseconds
per kernel; the breakdown of the explained step does not use them.

    holistic(registry.converter("kineto-device-events")(path)).idle_seconds
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.explaining.breakdown import NO_LAUNCH, Breakdown, Kernels, breakdown
from flint.explaining.kernel_kinds import kind_of
from flint.mesh.ragged import Ints
from flint.observed.device_events import DeviceEvents

_MICROSECOND: Final = 1000
Floats: TypeAlias = NDArray[np.float64]


def holistic(events: DeviceEvents) -> Breakdown:
    """Where the device's time goes in a whole trace, by HTA's rules.

    Raises:
        FlintError: nothing ran on a device.
    """
    counted = np.ones(len(events.name), np.bool_)
    if events.steps > 1:
        # Everything launched before the last step mark begins, on any timeline.
        counted = events.correlated & (events.launched != NO_LAUNCH)
        counted &= events.launched < events.marks.max()
    if not counted.any():
        raise FlintError(f"{events.path}: nothing ran on a device")
    start, end = events.start, events.start + events.duration
    launched = events.launched
    if events.fractional:
        begins, took, calls = map(_microseconds, (start, events.duration, launched))
        end = np.floor(begins + took).astype(np.int64) * _MICROSECOND
        start = np.ceil(begins).astype(np.int64) * _MICROSECOND
        rounded = np.ceil(calls).astype(np.int64) * _MICROSECOND
        launched = np.where(launched == NO_LAUNCH, NO_LAUNCH, rounded)
    kinds = np.array([kind_of(name) for name in events.names], np.int64)
    kernels = Kernels(
        events.names, events.name, kinds[events.name], start, end - start, events.stream, launched
    )
    return breakdown(kernels.only(counted), kernels.only(counted & events.kernel))


def _microseconds(nanoseconds: Ints) -> Floats:
    """Times as HTA reads them: 64-bit floats, which tell quarters of microseconds since 1970."""
    found: Floats = nanoseconds // _MICROSECOND + nanoseconds % _MICROSECOND / _MICROSECOND
    return found
