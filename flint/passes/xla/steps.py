"""One block with some of its nodes in several steps, which passes then change: what is written for
a convolution or behind one, a product as a sum.

    steps = Steps(graph, copies, types)
    steps.moves(node, op, value)        # a step that only moves a value
    graph = steps.done()
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import WORK_COLUMNS, Ints, WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, lists, repeated


class Steps:
    """A block being changed.

    Attributes:
        last: the last copy of each former node.
        operands: values that each node reads.
        made: number of the type of each result.
        read, written: bytes of each node.
        works: whether a node keeps its work.
    """

    def __init__(self, graph: WorkloadGraph, copies: Ints, types: dict[TensorType, int]) -> None:
        """Args:
        graph: the block.
        copies: how many steps each node has, shape [nodes].
        types: all types of the program, by number; new ones are added.
        """
        self.graph, _, self.last = repeated(graph, copies)
        self.types = types
        self.operands = lists(self.graph.operand_ptr, self.graph.operand)
        self.op, self.role = self.graph.op.copy(), self.graph.role.copy()
        self.made = self.graph.result_type.copy()
        self.read, self.written = self.graph.bytes_read.copy(), self.graph.bytes_written.copy()
        self.works = np.ones(len(self.graph), dtype=bool)

    def value(self, node: int) -> int:
        """A node's first result."""
        return self.graph.inputs + int(self.graph.result_ptr[node])

    def makes(self, node: int, kind: TensorType) -> None:
        """A node's result has this type."""
        self.made[self.graph.result_ptr[node]] = self.types.setdefault(kind, len(self.types))

    def moves(self, node: int, op: int, value: int, role: Role = Role.MOVEMENT) -> None:
        """A node only moves a value; ``op`` is its entry in the table of ops."""
        self.op[node], self.role[node], self.operands[node] = op, role, [value]
        self.works[node] = False

    def done(self) -> WorkloadGraph:
        """The changed block; steps that do no work have none."""
        owner = row_of_entry(self.graph.work_ptr)
        items = np.flatnonzero(self.works[owner])
        return replace(
            self.graph, op=self.op, role=self.role, result_type=self.made,
            bytes_read=self.read, bytes_written=self.written,
            operand_ptr=pointer(np.array([len(row) for row in self.operands], dtype=np.int64)),
            operand=np.array([value for row in self.operands for value in row], dtype=np.int64),
            work_ptr=pointer(np.bincount(owner[items], minlength=len(self.graph))),
            tables=replace(self.graph.tables, types=tuple(self.types)),
            **gathered(self.graph, WORK_COLUMNS, items),
        )  # fmt: skip
