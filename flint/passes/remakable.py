"""The readers of each node of a block, and which nodes all of their readers could recompute.

The idea: decisions made node by node (``flint.passes.inline``) are based on a block's columns:
roles, sizes, readers through views and constants, and which reductions go along rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import can_make_itself, loads, transparent_nodes

#: The most elements of a row that is reduced and read again in one kernel.
MAX_ROW: Final = 1 << 16
#: The most ops with one number per row that are looked through.
DEPTH: Final = 8
#: Roles of ops in a chain of producers, in addition to reductions of rows.
CHAIN: Final = (Role.ELEMENTWISE, Role.MOVEMENT)
_READERS: Final = (*CHAIN, Role.REDUCTION, Role.UPDATE)


class Readers:
    """The columns of one block as lists.

    Attributes:
        may: nodes that every reader could recompute.
        users: readers of each node, through nodes that are recomputed anyway.
    """

    def __init__(self, graph: WorkloadGraph, kept: NDArray[np.bool_]) -> None:
        transparent = transparent_nodes(graph)
        self.graph = graph
        self.role = graph.role.tolist()
        self.ptr = graph.operand_ptr.tolist()
        self.operand = graph.operand.tolist()
        self.maker = graph.producer[graph.operand].tolist()
        self.elements: list[int] = [item.elements for item in graph.tables.types]
        self.types = graph.value_type.tolist()
        self.first = (graph.result_ptr[:-1] + graph.inputs).tolist()
        self.may: list[bool] = (self._may(transparent) & ~kept).tolist()
        self.users = self._users(transparent)
        self.transparent = transparent.tolist()

    def _may(self, transparent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Nodes without order edges whose readers can all recompute them."""
        graph = self.graph
        reads = np.isin(graph.role, _READERS) & (graph.kind == NodeKind.COMPUTE)
        entries = [
            (consumer, maker)
            for consumer, maker in zip(graph.consumer.tolist(), self.maker, strict=True)
            if maker >= 0
        ]
        # Nodes that load operands of a contraction, in reverse order.
        feeds = (graph.role == Role.CONTRACTION).tolist()
        load = loads(graph).tolist()
        for consumer, maker in sorted(entries, key=lambda pair: -pair[1]):
            if feeds[consumer] and (load[maker] or transparent[maker]):
                feeds[maker] = True
        good = (reads | transparent) & ~np.array(feeds, dtype=bool)
        may = (graph.kind == NodeKind.COMPUTE) & (np.diff(graph.result_ptr) == 1)
        may &= np.isin(graph.role, (*CHAIN, Role.REDUCTION)) & (np.diff(graph.order_ptr) == 0)
        may &= ~np.array(feeds, dtype=bool) & (graph.bytes_written > 0)
        may[graph.order_node] = False
        makers = graph.producer[graph.operand]
        may[makers[(~good[graph.consumer] | ~can_make_itself(graph)) & (makers >= 0)]] = False
        leaving = graph.producer[graph.outputs]
        may[leaving[leaving >= 0]] = False
        # If a reader is recomputed anyway, the reader after it must be able to recompute this, too.
        for node in np.flatnonzero(transparent)[::-1].tolist():
            if not may[node] and not good[node]:
                before = makers[graph.operand_ptr[node] : graph.operand_ptr[node + 1]]
                may[before[before >= 0]] = False
        found: NDArray[np.bool_] = may
        return found

    def _users(self, transparent: NDArray[np.bool_]) -> dict[int, list[int]]:
        """Readers of each node, through nodes that are recomputed anyway."""
        seen = transparent.tolist()
        users: dict[int, list[int]] = {}
        consumers = self.graph.consumer.tolist()
        for entry in range(len(self.maker) - 1, -1, -1):
            maker, consumer = self.maker[entry], consumers[entry]
            if maker >= 0:
                found = users.get(consumer, []) if seen[consumer] else [consumer]
                users.setdefault(maker, []).extend(found)
        return {node: list(dict.fromkeys(found)) for node, found in users.items()}

    def ends(self, node: int, rows: tuple[int, int], depth: int = 0) -> list[int]:
        """Readers of a node, and of values with one number per row that are computed from it."""
        found: list[int] = []
        for user in self.users.get(node, []):
            small = self.role[user] == Role.ELEMENTWISE and self.made(user) == rows[0]
            if small and depth < DEPTH and self.may[user]:
                found += self.ends(user, rows, depth + 1)
            else:
                found.append(user)
        return list(dict.fromkeys(found))

    def made(self, node: int) -> int:
        """Elements of a node's result."""
        made: int = self.elements[self.types[self.first[node]]]
        return made

    def reduced_rows(self, node: int) -> bool:
        """Whether a node reduces the last dim, with rows that are short enough."""
        if self.role[node] != Role.REDUCTION or self.ptr[node] == self.ptr[node + 1]:
            return False
        types = self.graph.tables.types
        whole = types[self.types[self.operand[self.ptr[node]]]]
        result = types[self.types[self.first[node]]]
        kept = len(result.shape)
        if not kept or whole.shape[:-1] != result.shape or not result.elements:
            return False
        return bool(1 < whole.elements // result.elements <= MAX_ROW)

    def along(self, user: int, rows: tuple[int, int]) -> bool:
        """Whether a reader goes along rows."""
        if self.role[user] == Role.REDUCTION:
            whole = self.elements[self.types[self.operand[self.ptr[user]]]]
            mine = self.elements[self.types[self.first[user]]]
            return self.reduced_rows(user) and (mine, whole) == rows
        return self.role[user] == Role.ELEMENTWISE and self.made(user) in rows
