"""Work: what a node computes and moves, by unit and element type.

The idea: a cost model needs to know on which unit FLOPs run (tensor cores, vector ALUs, special
function units) and in which type, so work is kept as items and never as one number.

    >>> Work((WorkItem(Unit.MATMUL, "bf16", 2 * 8 * 16 * 32, (1, 8, 16, 32)),), 1280, 256, 0).flops
    8192
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Unit(IntEnum):
    """Where FLOPs run; for a measured run, nanoseconds take their place.

    DELAY is how long after its dependencies a node begins, AHEAD how long before them (two clocks
    of a profiler may differ). OUTDATED is the time of a communication in the run, where it was
    among another number of ranks.
    """

    MATMUL = 0
    VECTOR = 1
    TRANSCENDENTAL = 2
    MEASURED = 3
    DELAY = 4
    AHEAD = 5
    OUTDATED = 6


class Role(IntEnum):
    """What an op is to a fusing compiler; decides category and fusion."""

    ALIAS = 0  # the result is the operand's buffer: reshape, mhlo.copy, tuple plumbing
    GENERATE = 1  # made from nothing: constant, iota, partition_id
    ELEMENTWISE = 2
    MOVEMENT = 3  # moves data without arithmetic: broadcast, transpose, slice, gather, pad ...
    REDUCTION = 4
    CONTRACTION = 5  # dot, convolution
    UPDATE = 6  # writes part of an operand's buffer: dynamic_update_slice, scatter
    OPAQUE = 7  # a separate kernel: sort, fft, library calls, composites
    COLLECTIVE = 8
    CONTROL = 9  # call, while, case, if: the walker opens them

    @property
    def category(self) -> str:
        """``"compute"``, ``"movement"``, ``"free"``, ``"communication"`` or ``"control"``."""
        return _CATEGORY[self]


_CATEGORY = {
    Role.ALIAS: "free",
    Role.GENERATE: "free",
    Role.ELEMENTWISE: "compute",
    Role.MOVEMENT: "movement",
    Role.REDUCTION: "compute",
    Role.CONTRACTION: "compute",
    Role.UPDATE: "movement",
    Role.OPAQUE: "compute",
    Role.COLLECTIVE: "communication",
    Role.CONTROL: "control",
}


class WorkItem(NamedTuple):
    """FLOPs of one unit in one element type.

    Attributes:
        unit: where they run.
        dtype: element type of the operands (StableHLO name).
        flops: 2 per multiply-add on MATMUL; XLA's counts on VECTOR (1 per element and op);
            function evaluations on TRANSCENDENTAL; nanoseconds on MEASURED, which replace any
            modelled time, and on DELAY and AHEAD.
        dims: (batch, m, n, k) of a GEMM or of a convolution seen as one; else None.
    """

    unit: Unit
    dtype: str
    flops: int
    dims: tuple[int, int, int, int] | None = None


class Work(NamedTuple):
    """What one op or node does.

    Attributes:
        items: FLOPs by unit and type; empty for pure data movement.
        read: bytes read from operands, as accessed (a slice reads only its own part).
        written: bytes written to results.
        aliased: bytes of results that share an operand's buffer (updated in place), not moved.
    """

    items: tuple[WorkItem, ...]
    read: int
    written: int
    aliased: int = 0

    @property
    def flops(self) -> int:
        """All FLOPs except transcendentals, as XLA's ``flops`` counts them."""
        return sum(item.flops for item in self.items if item.unit < Unit.TRANSCENDENTAL)

    @property
    def transcendentals(self) -> int:
        """Transcendental evaluations, as XLA's ``transcendentals`` counts them."""
        return sum(item.flops for item in self.items if item.unit == Unit.TRANSCENDENTAL)


NO_WORK = Work((), 0, 0, 0)
