"""The ops through which a layout goes, and tables with what changed layouts add."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flint.graph.graph import Form, Tables, WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.passes.xla.transposes import Entry


def tables_with(
    graph: WorkloadGraph, types: dict[TensorType, int], entries: dict[Entry, int]
) -> Tables:
    """A graph's tables with more types and ops."""
    ops, heroes, forms = zip(*entries, strict=True)
    return replace(graph.tables, ops=ops, heroes=heroes, forms=forms, types=tuple(types))


@dataclass(slots=True)
class Region:
    """What a layout travels through.

    Attributes:
        shape: of its values in the program.
        order: the permutation that gives it from that in memory.
        node: the transpose that it begins with; -1: none.
        nodes: ops on values of its shape.
        reduces: whether some are reduced.
    """

    shape: tuple[int, ...]
    order: Form
    node: int = -1
    nodes: list[int] = field(default_factory=list)
    reduces: bool = False

    @property
    def back(self) -> Form:
        """From the order of the program to that in memory."""
        return tuple(np.argsort(self.order).tolist())

    @property
    def memory(self) -> tuple[int, ...]:
        """The shape in memory."""
        return tuple(self.shape[dim] for dim in self.back)
