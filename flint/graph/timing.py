"""When the nodes of a recorded program began and were launched.

The idea: a graph has what waits for what and how long each node took; a profile also has when each
node began.  The time from the end of a node's dependencies to its own start is due to the host or
the device; ``flint.passes.host_lane`` turns it into nodes and delays.

    timing = Timing(start, launch, waits)
    timing.start[7] - timing.launch[7]          # from the call to the kernel, nanoseconds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.graph.arrays import DAMAGED, archive_of, arrays_of
from flint.mesh.ragged import Ints

#: A launch that the profile does not record.
UNKNOWN_LAUNCH: Final = -1
#: More nanoseconds than a step takes.
_LATEST: Final = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Timing:
    """Times of one program's nodes, in nanoseconds from the start of the step.

    The step begins with the first node of any traced rank, on one clock for all ranks; for programs
    that ran on a host, with its first mark.

    Attributes:
        start: when each node began, shape [nodes].
        launch: when the host issued it, 0 if before the step's start, ``UNKNOWN_LAUNCH`` if not
            recorded, shape [nodes].
        waits: (node, node launched afterwards): the host continued only after the first one had
            ended, shape [waits, 2].
        over: when the rank had ended the step, if that is known by more than its nodes: the end of
            a host's mark, or of a message that its sender has ended before; else 0.
        end: when what a node makes was there, if its time is that of what it sends and not of what
            it receives (a permutation's), shape [nodes]; None: its start and its time.
    """

    start: Ints
    launch: Ints
    waits: Ints
    over: int = 0
    end: Ints | None = None

    def to_bytes(self) -> bytes:
        """As an ``.npz`` archive."""
        arrived = {} if self.end is None else {"end": self.end}
        times = {"start": self.start, "launch": self.launch, **arrived}
        return archive_of({"waits": self.waits, "over": np.array(self.over), **times})

    @classmethod
    def from_bytes(cls, data: bytes, nodes: int, name: str) -> Timing:
        """The times of ``to_bytes``.

        Args:
            data: the archive.
            nodes: number of nodes of the program's graph.
            name: the file's name, for messages.

        Raises:
            FlintError: not such an archive, or one for another graph.
        """
        try:
            arrays = arrays_of(data, name)
            over = int(arrays["over"]) if "over" in arrays else 0  # not in older folders
            end = arrays.get("end")
            found = cls(arrays["start"], arrays["launch"], arrays["waits"], over, end)
            pairs = found.waits.reshape(-1, 2)
            fits = found.start.shape == found.launch.shape == (nodes,)
            whole = all(part.dtype == np.int64 for part in (found.start, found.launch, pairs))
            inside = ((pairs >= 0) & (pairs < nodes)).all() and (found.start >= 0).all()
            inside &= 0 <= found.over < _LATEST
            if end is not None:
                fits &= end.shape == (nodes,) and end.dtype == np.int64 and bool((end >= 0).all())
            if not (fits and whole and inside and (pairs[:, 0] < pairs[:, 1]).all()):
                raise ValueError("its columns do not fit the graph")
        except DAMAGED as error:
            raise FlintError(f"{name}: not times written by Flint ({error})") from error
        return found
