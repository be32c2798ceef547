"""Chains: which of a rank's communications are issued one after another.

The idea: a rank issues all its communications in one order, as on a single stream, or has a
separate order for each communicator, as in NCCL, where every process group has a stream. The writer
of execution traces and the simulator use the same chains, so that an edge means the same in both.

    chains(graph.tables.communications, CommunicationOrder.COMMUNICATOR)     # [0, 1, 0, 2]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.mesh.groups import Groups, StridedGroups, TableGroups


class CommunicationOrder(StrEnum):
    """Which communications of a rank keep their order."""

    RANK = "rank"
    COMMUNICATOR = "communicator"


def as_communication_order(text: str) -> CommunicationOrder:
    """The order of this name.

    Raises:
        UsageError: no such order.
    """
    try:
        return CommunicationOrder(text)
    except ValueError:
        known = ", ".join(CommunicationOrder)
        raise UsageError(f"unknown communication order {text!r}; choose from {known}") from None


def chains(communications: Sequence[Communication], order: CommunicationOrder) -> Ints | None:
    """The chain that each communication is in, from 0, shape [communications]; None: all in one.

    Messages and permutations share one chain. Groups of the same ranks are one communicator,
    because consumers of execution traces see only the ranks.

    Args:
        communications: a program's table.
        order: which of them keep their order.
    """
    if order == CommunicationOrder.RANK:
        return None
    number = _numbers(list(dict.fromkeys(item.groups for item in communications)))
    return np.array([number[item.groups] for item in communications], np.int64)


def _numbers(groups: Sequence[Groups | None]) -> dict[Groups | None, int]:
    """A number for each of them; the same number if any rank's group is the same."""
    found: dict[Groups | None, int] = {}
    sets: dict[Groups, set[bytes]] = {
        item: _sets(item) for item in groups if isinstance(item, TableGroups)
    }
    for item in groups:
        same = {found[other] for other in found if _meet(item, other, sets)}
        number = min(same, default=len(found))
        found = {other: number if old in same else old for other, old in found.items()}
        found[item] = number
    numbers = {old: new for new, old in enumerate(dict.fromkeys(found.values()))}
    return {item: numbers[old] for item, old in found.items()}


def _meet(one: Groups | None, other: Groups | None, sets: Mapping[Groups, set[bytes]]) -> bool:
    """Whether any rank has the same partners, in any order, in both."""
    if one is None or other is None or one.world != other.world:
        return one is other
    if isinstance(one, TableGroups) and isinstance(other, TableGroups):
        return not sets[one].isdisjoint(sets[other])
    if isinstance(one, TableGroups):
        one, other = other, one
    assert isinstance(one, StridedGroups)
    if isinstance(other, TableGroups):
        return _has_row_of(other, one)
    # Offsets are 0 at the lowest member, so equal sets have equal offsets.
    return one.size == other.size > 1 and np.array_equal(
        np.sort(one.offsets()), np.sort(other.offsets())
    )


def _has_row_of(table: TableGroups, strided: StridedGroups) -> bool:
    rows = np.sort(table.table(), axis=1)  # the padding is in front
    rows = rows[(rows >= 0).sum(axis=1) == strided.size][:, rows.shape[1] - strided.size :]
    if strided.size < 2 or not len(rows):
        return False
    members = strided.base(rows[:, 0])[:, None] + np.sort(strided.offsets())
    return bool((rows == members).all(axis=1).any())


def _sets(table: TableGroups) -> set[bytes]:
    rows = np.sort(table.table(), axis=1)
    several = rows[(rows >= 0).sum(axis=1) > 1]
    return {row[row >= 0].tobytes() for row in several}
