"""Who reads each node of a block, and which nodes all of their readers could compute again.

The idea: what is decided node by node (``flint.passes.inline``) rests on what a block's columns
say: roles, sizes, who reads what through views and constants, and which reductions go along rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import can_make_itself, loads, transparent_nodes

#: Elements of the longest row that is reduced and read again in one kernel.
MAX_ROW: Final = 1 << 16
#: Steps with one number for each row that are looked through.
DEPTH: Final = 8
#: Roles of what a chain of producers may hold, but for reductions of rows.
CHAIN: Final = (Role.ELEMENTWISE, Role.MOVEMENT)
_READERS: Final = (*CHAIN, Role.REDUCTION, Role.UPDATE)


class Readers:
    """The columns of one block as lists.

    Attributes:
        may: nodes that every reader could make again.
        users: readers of each node, through what is made again anyway.
    """

    def __init__(self, graph: WorkloadGraph) -> None:
        transparent = transparent_nodes(graph)
        self.graph = graph
        self.role = graph.role.tolist()
        self.ptr = graph.operand_ptr.tolist()
        self.operand = graph.operand.tolist()
        self.maker = graph.producer[graph.operand].tolist()
        self.elements: list[int] = [item.elements for item in graph.tables.types]
        self.types = graph.value_type.tolist()
        self.first = (graph.result_ptr[:-1] + graph.inputs).tolist()
        self.may: list[bool] = self._may(transparent).tolist()
        self.users = self._users(transparent)
        self.transparent = transparent.tolist()

    def _may(self, transparent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Nodes without an order edge that are needed by readers alone which can make them."""
        graph = self.graph
        reads = np.isin(graph.role, _READERS) & (graph.kind == NodeKind.COMPUTE)
        entries = [
            (consumer, maker)
            for consumer, maker in zip(graph.consumer.tolist(), self.maker, strict=True)
            if maker >= 0
        ]
        # What leads into a contraction: loads of its operands, in reverse order.
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
        # Through what is made again anyway the reader behind it must be able to as well.
        for node in np.flatnonzero(transparent)[::-1].tolist():
            if not may[node] and not good[node]:
                before = makers[graph.operand_ptr[node] : graph.operand_ptr[node + 1]]
                may[before[before >= 0]] = False
        found: NDArray[np.bool_] = may
        return found

    def _users(self, transparent: NDArray[np.bool_]) -> dict[int, list[int]]:
        """Readers of each node, through what is made again anyway."""
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
        """Readers of a node, and of what is computed of it for each row, one number."""
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
        """Whether a node sums up the last dim, and rows that are short enough."""
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
