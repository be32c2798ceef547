"""Tags: how a SEND is matched with its RECV.

The idea: the two sides of a message are instances of the same communication, or of a send and a
recv on the same channel.  Both count how often their exchange has happened; exchanges get disjoint
ranges of tags, so a tag is unique to one instance, and both sides compute the same number
independently.  Sides that do not agree (a send without a receive, another size) are an error here,
because consumers would hang without a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.execution.forms import bytes_of
from flint.execution.peers import Peer
from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind
from flint.graph.unrolling import Unrolled
from flint.mesh.permutation import Permutation

#: Consumers of traces take tags modulo this.
MAX_TAG: Final = 500_000_000

#: Kinds that become SEND and RECV.
TAGGED = frozenset({"collective_permute", "send", "recv", "collective_broadcast"})


class Side(NamedTuple):
    """The parts of a program that messages depend on.

    Attributes:
        communications: its table.
        kind, detail: columns of its unrolled instances.
        ranks: the ranks that run it.
    """

    communications: Sequence[Communication]
    kind: NDArray[np.int8]
    detail: Ints
    ranks: Ints


def side_of(unrolled: Unrolled, ranks: Ints) -> Side:
    """The messages' view of a program."""
    tables = unrolled.graphs[0].tables
    return Side(tables.communications, unrolled.kind, unrolled.detail, ranks)


class Tags:
    """Tags of all messages of a workload.

    Attributes:
        count: how many tags are in use.
    """

    def __init__(self, sides: Sequence[Side]) -> None:
        self._numbers: dict[object, int] = {}
        self._exchanges = [self._exchange_numbers(side) for side in sides]
        longest = np.zeros(len(self._numbers), np.int64)
        for side, exchange in zip(sides, self._exchanges, strict=True):
            for receives in (False, True):
                counted = exchange[_instances(side, receives)]
                counts = np.bincount(counted[counted >= 0], minlength=len(longest))
                longest = np.maximum(longest, counts)
        self._base = np.cumsum(longest) - longest
        self.count = int(longest.sum())
        if self.count > MAX_TAG:
            raise FlintError(
                f"the workload has {self.count} messages per rank, but the largest tag is "
                f"{MAX_TAG}: convert with a smaller trip count or a coarser granularity"
            )
        self._check(sides)

    def of(self, side: Side, program: int) -> Ints:
        """The tag of each instance of a program, -1 if it is not a message."""
        tags = np.full(len(side.detail), -1, np.int64)
        exchange = self._exchanges[program]
        for receives in (False, True):
            instances = _instances(side, receives)
            number = exchange[instances]
            instances, number = instances[number >= 0], number[number >= 0]
            tags[_places(side, receives)] = self._base[number] + _ordinals(number)
        return tags

    def _exchange_numbers(self, side: Side) -> Ints:
        """Exchange of each communication (-1: none); one more entry for detail -1."""
        seen: dict[tuple[str, int, int], int] = {}
        numbers = np.full(len(side.communications) + 1, -1, np.int64)
        for index, item in enumerate(side.communications):
            if item.kind not in TAGGED or bytes_of(item) == 0:
                continue
            # Tables over a million ranks are compared once per object, not once per op.
            quick = (item.kind, item.channel, id(item.permutation or item.groups))
            if quick not in seen:
                key = _exchange_key(item)
                seen[quick] = self._numbers.setdefault(key, len(self._numbers))
            numbers[index] = seen[quick]
        return numbers

    def _check(self, sides: Sequence[Side]) -> None:
        """Check that every message that a program sends is received by one, with the same size."""
        needed = [
            (program, index, item)
            for program, side in enumerate(sides)
            for index, item in enumerate(side.communications)
            if item.kind in ("send", "recv", "collective_permute") and bytes_of(item)
        ]
        if not needed or (
            len(sides) == 1 and all(i.kind == "collective_permute" for *_, i in needed)
        ):
            return
        world = needed[0][2].permutation
        assert world is not None
        owner = np.full(world.world, -1, np.int64)
        for program, side in enumerate(sides):
            owner[side.ranks] = program
        done: set[tuple[int, int, int]] = set()
        for program, index, item in needed:
            assert item.permutation is not None
            exchange = int(self._exchanges[program][index])
            ways = {"send": (False,), "recv": (True,)}.get(item.kind, (False, True))
            for receives in ways:
                for other in self._others(owner, sides[program].ranks, item.permutation, receives):
                    step = (exchange, *((other[0], program) if receives else (program, other[0])))
                    if step not in done:
                        done.add(step)
                        self._match(sides, exchange, item, *step[1:], other[1], receives)

    @staticmethod
    def _others(
        owner: Ints, ranks: Ints, permutation: Permutation, receives: bool
    ) -> list[tuple[int, tuple[int, int]]]:
        """Programs on the other side, each with one pair (rank, peer)."""
        peer = Peer("source" if receives else "target", permutation).values(ranks)
        talking = np.flatnonzero((peer >= 0) & (peer != ranks))
        programs, first = np.unique(owner[peer[talking]], return_index=True)
        pairs = [(int(ranks[talking[i]]), int(peer[talking[i]])) for i in first.tolist()]
        return list(zip(programs.tolist(), pairs, strict=True))

    def _match(
        self,
        sides: Sequence[Side],
        exchange: int,
        item: Communication,
        sender: int,
        receiver: int,
        pair: tuple[int, int],
        receives: bool,
    ) -> None:
        verb = "receives from" if receives else "sends to"
        what = f"{item.kind} (channel {item.channel}): rank {pair[0]} {verb} rank {pair[1]}"
        if -1 in (sender, receiver):
            raise FlintError(f"{what}, which runs no program")
        sent = self._sizes(sides[sender], sender, exchange, False)
        by_op = item.kind != "collective_permute"
        received = self._sizes(sides[receiver], receiver, exchange, by_op)
        if len(sent) != len(received):
            raise FlintError(
                f"{what}: {len(sent)} messages are sent, but {len(received)} are expected"
            )
        differ = np.flatnonzero(sent != received)
        if len(differ):
            at = int(differ[0])
            raise FlintError(
                f"{what}: message {at} has {int(sent[at])} bytes, but {int(received[at])} are "
                "expected"
            )

    def _sizes(self, side: Side, program: int, exchange: int, receives: bool) -> Ints:
        """Bytes of the messages of an exchange in order."""
        instances = _instances(side, receives)
        mine = instances[self._exchanges[program][instances] == exchange]
        sizes = np.array([bytes_of(item) for item in side.communications] or [0], np.int64)
        found: Ints = sizes[mine]
        return found


def _exchange_key(item: Communication) -> object:
    if item.kind in ("send", "recv"):
        return ("exchange", item.channel or item.permutation)
    if item.kind == "collective_broadcast":
        return ("broadcast", item.groups)
    return ("permute", item.permutation)


def _mask(side: Side, receives: bool) -> NDArray[np.bool_]:
    # A permute or broadcast is one instance that both sends and receives: one tag, counted once
    # among the sends; a recv op counts by itself.
    wanted = [
        item.kind in TAGGED and bytes_of(item) > 0 and (item.kind == "recv") == receives
        for item in side.communications
    ]
    return np.array([*wanted, False], np.bool_)


def _places(side: Side, receives: bool) -> Ints:
    return np.flatnonzero(
        (side.kind == NodeKind.COMMUNICATION) & _mask(side, receives)[side.detail]
    )


def _instances(side: Side, receives: bool) -> Ints:
    found: Ints = side.detail[_places(side, receives)]
    return found


def _ordinals(numbers: Ints) -> Ints:
    """How often each number has occurred before each position."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.concatenate([starts, [len(numbers)]]))
    within = np.arange(len(numbers)) - np.repeat(starts, lengths)
    result = np.empty(len(numbers), np.int64)
    result[order] = within
    return result
