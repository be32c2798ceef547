"""Device events of a trace as listed in its file: all steps and streams, nothing inferred.

The idea: a workload is made from one step, with links resolved.  Code that counts a whole trace,
like other tools, needs the unchanged events, with the call that launched each and the step marks.

    events = registry.converter("kineto-device-events")(Path("rank0.json.gz"))
    events.duration[events.kernel].sum()        # nanoseconds of all kernels, copies and fills
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.mesh.ragged import Ints

#: Replaces a time or a number that an event does not have.
UNKNOWN: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class DeviceEvents:
    """Events that name a stream of a device, in the order of the file.

    Attributes:
        path: the file.
        rank: its rank; None if the file does not name it.
        names: the strings that ``name`` indexes.
        name: shape [events].
        start, duration: nanoseconds, shape [events].
        stream: the profiler's number, shape [events].
        launched: nanosecond of the host call that launched it, ``UNKNOWN`` if the file has no such
            call, shape [events].
        kernel: kernels, copies and fills; the others are marks and synchronisation, shape [events].
        correlated: whether it names a call, shape [events].
        marks: nanosecond at which each step mark begins, on any timeline.
        steps: number of steps that the marks name.
        fractional: whether the file has fractions of microseconds.
    """

    path: str
    rank: int | None
    names: tuple[str, ...]
    name: Ints
    start: Ints
    duration: Ints
    stream: Ints
    launched: Ints
    kernel: NDArray[np.bool_]
    correlated: NDArray[np.bool_]
    marks: Ints
    steps: int
    fractional: bool
