"""When the nodes of a recorded program began and were launched.

The idea: a graph says what waits for what and how long each node took; a profile also says when
each node began.  What lies between the end of all that a node waits for and its begin is the host's
doing, or the device's; ``flint.passes.host_lane`` makes nodes and delays of it.

    timing = Timing(start, launch, waits)
    timing.start[7] - timing.launch[7]          # from the call to the kernel, nanoseconds
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.graph.arrays import DAMAGED, arrays_of
from flint.mesh.ragged import Ints

#: A launch that the profile does not tell.
UNKNOWN_LAUNCH: Final = -1
#: More nanoseconds than a step takes.
_LATEST: Final = 1 << 62


@dataclass(frozen=True, eq=False, slots=True)
class Timing:
    """Times of one program's nodes, nanoseconds from the begin of the step.

    The step begins when the first node of any traced rank does, on one clock for all of them; of
    programs that ran on a host, when its first mark does.

    Attributes:
        start: when each node began, shape [nodes].
        launch: when the host issued it, 0 for what was issued before the step's begin,
            ``UNKNOWN_LAUNCH`` where the profile does not tell, shape [nodes].
        waits: (node, node launched afterwards): the host went on only when the first one was over,
            shape [waits, 2].
        over: of a program that ran on a host, when the mark of its step ends; 0 where there is
            none.
    """

    start: Ints
    launch: Ints
    waits: Ints
    over: int = 0

    def to_bytes(self) -> bytes:
        """As an ``.npz`` archive."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, start=self.start, launch=self.launch, waits=self.waits, over=self.over
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, nodes: int, name: str) -> Timing:
        """The times of ``to_bytes``.

        Args:
            data: the archive.
            nodes: how many the program's graph has.
            name: of the file, for messages.

        Raises:
            FlintError: no such archive, or one of another graph.
        """
        try:
            arrays = arrays_of(data, name)
            over = int(arrays["over"]) if "over" in arrays else 0  # not in older folders
            found = cls(arrays["start"], arrays["launch"], arrays["waits"], over)
            pairs = found.waits.reshape(-1, 2)
            fits = found.start.shape == found.launch.shape == (nodes,)
            whole = all(part.dtype == np.int64 for part in (found.start, found.launch, pairs))
            inside = ((pairs >= 0) & (pairs < nodes)).all() and (found.start >= 0).all()
            inside &= 0 <= found.over < _LATEST
            if not (fits and whole and inside and (pairs[:, 0] < pairs[:, 1]).all()):
                raise ValueError("its columns do not fit the graph")
        except DAMAGED as error:
            raise FlintError(f"{name}: not times written by Flint ({error})") from error
        return found
