"""One order of communication for all ranks.

The idea: the members of a collective meet in one place, and a message is received after it was
sent. Put together, the ranks' nodes are one graph; in any of its orders no rank waits for what
another one issues later.  The order taken follows the ids, as far as the edges allow.

    in_common_order(sides)      # the same nodes, those of every rank in another order
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.workloads.exchanged import Exchanged
from flint.converters.chakra.workloads.issued import Issued, in_order, receiving_early
from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.graph.ready_order import ready_order


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """What a rank runs.

    Attributes:
        rank: the rank.
        trace: its trace.
        nodes: the nodes of it that run.
        exchanged: their communications.
    """

    rank: int
    trace: Trace
    nodes: Issued
    exchanged: Exchanged


def in_common_order(sides: Sequence[Side]) -> list[Side]:
    """The ranks, with their nodes in an order that fits that of all others.

    Raises:
        FlintError: ranks wait for each other in a circle.
    """
    meetings = _Meetings()
    vertex: list[Ints] = []
    count = 0
    for side in sides:
        own = np.arange(len(side.nodes.rows)) + count
        count += len(own)
        vertex.append(meetings.joined(side, own))
    messages = meetings.messages()
    before = np.concatenate([number[side.nodes.before] for side, number in _pairs(sides, vertex)])
    after = np.concatenate([number[side.nodes.after] for side, number in _pairs(sides, vertex)])
    keys = np.full(count, np.inf)
    for number in vertex:
        np.minimum.at(keys, number, np.arange(len(number)))
    edges = np.concatenate([np.stack([before, after]), messages], axis=1)
    order = np.array(ready_order(keys.tolist(), edges[0], edges[1]), np.int64)
    place = np.full(count, -1, np.int64)
    place[order] = np.arange(len(order))
    return [_ordered(side, place[number]) for side, number in _pairs(sides, vertex)]


def _pairs(sides: Sequence[Side], vertex: Sequence[Ints]) -> list[tuple[Side, Ints]]:
    return list(zip(sides, vertex, strict=True))


def _ordered(side: Side, place: Ints) -> Side:
    """A rank's nodes in the order of their places."""
    if (place < 0).any():
        row = int(side.nodes.rows[int(np.argmax(place < 0))])
        raise FlintError(
            f"{side.trace.path}: node {side.trace.id[row]} of rank {side.rank} never runs: ranks "
            "wait for each other's communications in a circle; flint check lists it"
        )
    order = np.argsort(place, kind="stable")
    if (order[1:] > order[:-1]).all():
        return side
    return replace(side, nodes=receiving_early(in_order(side.nodes, order), side.trace))


#: What communications of several ranks have in common, and the how-manieth it is.
_Instance = tuple[tuple[object, ...], int]


class _Meetings:
    """Gives the members of each collective one number, and pairs messages."""

    def __init__(self) -> None:
        self._met: dict[_Instance, int] = {}
        self._ends: dict[_Instance, list[int]] = {}

    def joined(self, side: Side, own: Ints) -> Ints:
        """The vertex of each of a rank's nodes: its own number, or that of its meeting."""
        found = own.copy()
        number = side.exchanged.number[side.nodes.rows]
        keys = [_key(item, side.rank) for item in side.exchanged.table]
        seen: Counter[tuple[object, ...]] = Counter()
        for at in np.flatnonzero(number >= 0).tolist():
            item, key = side.exchanged.table[number[at]], keys[number[at]]
            instance = (key, seen[key])
            seen[key] += 1
            if item.point_to_point:
                self._ends.setdefault(instance, []).append(int(own[at]))
            else:
                found[at] = self._met.setdefault(instance, int(own[at]))
        return found

    def messages(self) -> Ints:
        """From each sending node to the receiving one, shape [2, messages]."""
        pairs = [
            (sent, received)
            for (key, number), (sent, *_) in self._ends.items()
            if key[0] == "send"
            for received in self._ends.get((("recv", *key[1:]), number), ())
        ]
        return np.array(pairs, np.int64).reshape(-1, 2).T


def _key(item: Communication, rank: int) -> tuple[object, ...]:
    """Equal for communications of two ranks that can be the same one."""
    size = item.bytes_out if item.kind == "recv" else item.bytes_in
    if item.permutation is not None:
        ends = item.permutation.target if item.kind == "send" else item.permutation.source
        other = int(ends[rank])
        pair = (rank, other) if item.kind == "send" else (other, rank)
        return (item.kind, pair, item.channel)
    assert item.groups is not None
    group = int(item.groups.number(np.array([rank]))[0])
    uneven = item.kind in ("all_gather", "all_to_all")
    return (item.kind, item.groups, group, 0 if uneven else size)
