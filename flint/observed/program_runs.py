"""Which compiled programs every rank ran, in order, from a profile of several programs.

runs.by_rank[0][3].name                 # "jit_momentum", the fourth program that rank 0 ran
"""

from __future__ import annotations

from typing import NamedTuple


class ProgramRun(NamedTuple):
    """One run of a program on one rank.

    Attributes:
        name: the module's.
        heavy: whether it has a collective, a GEMM, a convolution or attention.
    """

    name: str
    heavy: bool


class ProgramRuns(NamedTuple):
    """All runs in a trace.

    Attributes:
        backend: "cpu", "gpu" or "tpu".
        by_rank: per rank, in the order in which they began.
    """

    backend: str
    by_rank: dict[int, list[ProgramRun]]
