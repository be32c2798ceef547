"""The vocabulary of graphs: kinds of nodes and edges, phases, origins of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class NodeKind(IntEnum):
    """Kinds of nodes."""

    COMPUTE = 0
    COMMUNICATION = 1
    LOOP = 2
    CONDITIONAL = 3


class EdgeKind(IntEnum):
    """Why one node waits for another."""

    DATA = 0
    ORDER = 1
    STREAM = 2


class Phase(IntEnum):
    """Part of the training step, if the source shows it."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    RECOMPUTE = 4


@dataclass(frozen=True, slots=True)
class Source:
    """Where a node comes from.

    Attributes:
        layer: the framework's module or name-scope path ("" unknown).
        file, line: the user's source line ("" and 0 unknown).
        phase: part of the step.
    """

    layer: str = ""
    file: str = ""
    line: int = 0
    phase: Phase = Phase.UNKNOWN
