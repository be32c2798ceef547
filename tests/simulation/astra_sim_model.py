"""What ASTRA-sim's congestion-unaware simulator charges for communication, for its stand-in.

The idea: a message takes ``hops x latency + bytes / bandwidth``, cut to whole nanoseconds, and a
collective is rounds of messages, dim after dim, in as many chunks as the system file asks for.
After each message its receiver waits ``endpoint-delay``; one that it has to add up waits for three
passes over local memory besides.  Read in astra-sim/astra-sim (astra-sim/system/Sys.cc,
MemBus.cc, PacketBundle.cc, CommunicatorGroup.cc and native_collectives/collective_algorithm/
Ring.cc, AllToAll.cc) and astra-sim/astra-network-analytical (congestion_unaware), March 2026.

    model = Model(system, network)
    model.collective(AR, 1 << 14, (True,))      # nanoseconds, over all ranks of one dim
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flint.converters.chakra.schema import CollectiveKind

AR, AG = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
RS, A2A = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
_NAMES = {AR: "all-reduce", AG: "all-gather", RS: "reduce-scatter", A2A: "all-to-all"}
#: Nanoseconds between messages among the members of a listed group, whatever the system file says.
_LISTED = 10


class Model:
    """Prices of one system file and one network file."""

    def __init__(self, system: dict[str, Any], network: dict[str, Any]) -> None:
        self.system = system
        self.topology: list[str] = network["topology"]
        self.count: list[int] = network["npus_count"]
        self.bytes_per_ns = [rate * 2**30 / 1e9 for rate in network["bandwidth"]]
        self.latency: list[float] = network["latency"]

    def message(self, sender: int, receiver: int, size: int) -> int:
        """Nanoseconds; two ranks that differ in several dims pay for the first of them."""
        for dim, count in enumerate(self.count):
            here, there = sender % count, receiver % count
            if here != there:
                return self._over(dim, abs(here - there), size)
            sender, receiver = sender // count, receiver // count
        raise AssertionError("a message of a rank to itself")

    def collective(
        self, kind: CollectiveKind, size: int, dims: Sequence[bool], members: Sequence[int] = ()
    ) -> int:
        """Nanoseconds of a collective over whole dims, or among the listed members.

        Chunks go through the phases one behind the other: ``active-chunks-per-dimension`` of them
        are in a phase at a time, and none slows another down.
        """
        splits = int(self.system["preferred-dataset-splits"])
        at_once = int(self.system["active-chunks-per-dimension"])
        if not int(self.system["endpoint-delay"]):
            raise ValueError("common/event-queue/EventQueue.cpp:33: assertion")
        chunk = size // splits
        ranks = math.prod(self.count)
        if kind != AG and chunk < ranks:
            chunk, size = ranks, splits * ranks
        sizes = [chunk] * math.ceil(size / chunk)
        listed = 0 < len(members) < ranks
        mine = list(map(bool, dims)) if not members else [True] * len(self.count)
        phases = [(kind, -1)] if listed else self._phases(kind, mine)
        over = [0] * len(sizes)
        for phase, dim in phases:
            for number in range(len(sizes)):
                sizes[number], taken = self._phase(phase, dim, sizes[number], members)
                free = over[number - at_once] if number >= at_once else 0
                over[number] = max(over[number], free) + taken
        return max(over)

    def _phases(self, kind: CollectiveKind, mine: list[bool]) -> list[tuple[CollectiveKind, int]]:
        dims = [dim for dim, count in enumerate(self.count) if mine[dim] and count > 1]
        if kind == AR and self.system["collective-optimization"] == "localBWAware":
            *inner, outer = dims
            gathers = [(AG, dim) for dim in reversed(inner)]
            return [*((RS, dim) for dim in inner), (AR, outer), *gathers]
        return [(kind, dim) for dim in (reversed(dims) if kind == AG else dims)]

    def _phase(
        self, kind: CollectiveKind, dim: int, size: int, members: Sequence[int]
    ) -> tuple[int, int]:
        """Bytes that are left afterwards, and nanoseconds."""
        parties = self.count[dim] if dim >= 0 else len(members)
        message = size if kind == AG else size // parties
        rounds = 2 if kind == AR else 1
        left = {AG: size * parties, RS: message}.get(kind, size)
        added = 3 * int(message / self.system["local-mem-bw"])  # GB/s are bytes per nanosecond
        if dim < 0:
            in_line = parties * (parties - 1) // 2 if kind == A2A else rounds * (parties - 1)
            neighbours = zip(members, [*members[1:], members[0]], strict=True)
            each = [self.message(a, b, message) + _LISTED for a, b in neighbours]
            # Each member passes on what it has received: the slowest way around decides.
            ways = (
                [each[(at + step) % parties] for step in range(in_line)] for at in range(parties)
            )
            return left, _LISTED + max(map(sum, ways)) + self._adding(kind, parties - 1, added)
        delay = int(self.system["endpoint-delay"])
        how = self.system[f"{_NAMES[kind]}-implementation"][dim]
        if how == "direct":
            # To everybody at once, over the farthest way, and no message slows another down.
            far = parties // 2 if self.topology[dim] == "Ring" else 1
            taken = delay + rounds * (self._over(dim, far, message) + delay)
            return left, taken + self._adding(kind, 1, added)
        in_line = rounds * (parties - 1)
        if kind == A2A and how != "direct1":  # which sends one message at a time, each straight
            in_line = parties * (parties - 1) // 2
        taken = delay + in_line * (self._over(dim, 1, message) + delay)
        return left, taken + self._adding(kind, parties - 1, added)

    def _over(self, dim: int, apart: int, size: int) -> int:
        links = {"Switch": 2, "FullyConnected": 1}.get(self.topology[dim])
        hops = links or min(apart, self.count[dim] - apart)
        return int(hops * self.latency[dim] + size / self.bytes_per_ns[dim])

    def _adding(self, kind: CollectiveKind, times: int, added: int) -> int:
        return times * added if kind in (AR, RS) else 0
