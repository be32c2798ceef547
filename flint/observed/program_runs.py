"""Which compiled programs every rank ran, in order, from a profile of several programs.

The idea: programs of one name differ in the types of their arguments and results: a step's product
and one that initialises a weight are both ``jit_multiply``.

runs.by_rank[0][3].name                 # "jit_momentum", the fourth program that rank 0 ran
"""

from __future__ import annotations

from typing import NamedTuple


class AskedProgram(NamedTuple):
    """Which of the programs in a profile is meant.

    Attributes:
        name: the module's.
        number: how many others of that name, and of these types, ran before it.
        types: of its arguments and results; "" if any will do.
        of: of so many of these types, which are the last ones; 0 if they are the first ones.
        devices: ids of the devices that it ran on, ascending; () if any will do.
    """

    name: str
    number: int = 0
    types: str = ""
    of: int = 0
    devices: tuple[int, ...] = ()


class ProgramRun(NamedTuple):
    """One run of a program on one rank.

    Attributes:
        name: the module's.
        heavy: whether it has a collective, a GEMM, a convolution or attention.
        types: of its arguments and results; "" if they are not known.
    """

    name: str
    heavy: bool
    types: str = ""


class ProgramRuns(NamedTuple):
    """All runs in a trace.

    Attributes:
        backend: "cpu", "gpu" or "tpu".
        by_rank: per rank, or per device id, in the order in which they began.
    """

    backend: str
    by_rank: dict[int, list[ProgramRun]]
