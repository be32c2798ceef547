"""Exchanges as communications of a workload graph.

Communications(world).of(Exchange("all_reduce", (0, 1), (4096,), "f32"))
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flint.graph.communication import Communication
from flint.mesh.groups import Groups, StridedGroups, TableGroups, canonical, everybody
from flint.mesh.permutation import Permutation, permutation
from flint.post_execution.exchanges import Exchange
from flint.post_execution.roots import root_first

_REDUCES = ("all_reduce", "reduce_scatter")


class Communications:
    """Exchanges as communications of a workload graph: equal ones are one object, as are their
    groups.

    One object is stored once in a program's table, and analysed once.
    """

    def __init__(self, world: int, groups: Mapping[tuple[int, ...], Groups] | None = None) -> None:
        """For a run.

        Args:
            world: number of ranks.
            groups: the partitions of these groups, where they are known.
        """
        self.world = world
        self._known: dict[Exchange, Communication] = {}
        self._groups: dict[tuple[int, ...], Groups] = dict(groups or {})
        self._pairs: dict[tuple[int, ...], Permutation] = {}

    def of(self, item: Exchange) -> Communication:
        """The communication of an exchange."""
        found = self._known.get(item)
        if found is None:
            found = self._known[item] = self._message(item) if item.message else self._shared(item)
        return found

    def _shared(self, item: Exchange) -> Communication:
        groups = self._groups.get(item.group)
        if groups is None:
            groups = self._groups[item.group] = groups_of(item.group, self.world)
        if item.root >= 0:
            groups = root_first(groups, item.group.index(item.root))
        got = item.parts
        if item.kind == "all_gather":
            got = tuple(size * len(item.group) for size in item.parts)
        elif item.kind == "reduce_scatter":
            got = tuple(size // len(item.group) for size in item.parts)
        reduction = "add" if item.kind in _REDUCES else None
        dtypes = (item.dtype,) * len(item.parts)
        return Communication(item.kind, reduction, groups, None, item.parts, got, dtypes)

    def _message(self, item: Exchange) -> Communication:
        pair = self._pairs.get(item.group)
        if pair is None:
            pair = self._pairs[item.group] = permutation(self.world, np.array([item.group]))
        sent, got = ((), item.parts) if item.kind == "recv" else (item.parts, ())
        dtypes = (item.dtype,) * len(item.parts)
        return Communication(item.kind, None, None, pair, sent, got, dtypes)


def groups_of(group: tuple[int, ...], world: int) -> Groups:
    """The partition with this group as a row, if its ranks are evenly spaced; else the group alone.

    The other rows name ranks that never meet there, which does no harm.
    """
    size = len(group)
    if size == world:
        return everybody(world)
    stride = group[1] - group[0] if size > 1 else 1
    even = group == tuple(range(group[0], group[0] + size * stride, stride))
    if even and world % (size * stride) == 0:
        groups = StridedGroups(world, canonical([(size, stride)]))
        if int(groups.base(np.array([group[0]]))[0]) == group[0]:
            return groups
    return TableGroups(world, np.array([group], np.int64))
