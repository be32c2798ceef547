"""Collectives: how long a group takes, by algorithm and by where its members are.

The idea: a group is a hierarchy of levels (``flint.cost.placement``): n parties meet on a tier with
a bandwidth B per rank and a latency a per message.  With S bytes of the whole buffer (what an
all-gather ends with, what a reduce-scatter begins with), on one level:

    ring                (n - 1) a + (n - 1)/n S/B        reduce-scatter, all-gather
    halving-doubling    log2(n) a + (n - 1)/n S/B        the same bytes in fewer, longer messages
    direct                      a + (n - 1)/n S/B        everybody to everybody at once
    tree              2 log2(n) a + 2 S/B                all-reduce, half the bytes per tree
    in-network                2 a + (1 + 1/n) S/B        all-reduce in the switch

An all-reduce is a reduce-scatter and an all-gather (Thakur, Rabenseifner and Gropp, "Optimization
of collective communication operations in MPICH", 2005; two trees: Sanders, Speck and Traeff, 2009).
*Hierarchical*: each level works on what the level below has left, S divided by its ranks, one after
another; if nodes hold different numbers of members, the one with the fewest is the slowest, because
it has the fewest ports for the largest part: (N - m)/N S/(m B) with m of the N members. *Flat
ring*: one ring through all levels; its traffic crosses every level at once, on as many network
ports as a party has members of the group, so that bandwidths overlap and latencies add up.
All-to-all: data that stays within a level does not cross the next; on a ring of n with two
directions every link carries n/8 of what a rank sends, in the middle of an open row n/4 (half of
the ranks send half of their buffers across); in a torus the longest dim decides. *Protocols*:
libraries send small messages with lower latency but less of the bandwidth (NCCL's LL and LL128);
the cheapest protocol of a tier is taken, so that the reached share of the bandwidth grows with the
size. The cheapest algorithm that the tiers allow is taken unless one is named. All groups of a kind
communicate at the same time: they share ports, links of a torus and the uplinks of a tier (its
``oversubscription``).

    cost = collective_cost("all_reduce", 1 << 26, placement.profiles[0])
    cost.seconds, cost.algorithm
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from flint.cost.hardware import Tier
from flint.cost.placement import Profile, TierUse
from flint.cost.systems import ALGORITHMS
from flint.errors import FlintError, UsageError
from flint.graph.communication import Communication


class Cost(NamedTuple):
    """Seconds, and the algorithm that gives them."""

    seconds: float
    algorithm: str


def collective_seconds(
    item: Communication, profile: Profile, algorithm: str | None = None
) -> float:
    """Seconds of a collective on one group.

    Args:
        item: the communication; of a kind with groups.
        profile: where the group's members are.
        algorithm: used on every tier that allows it; the cheapest by default.

    Raises:
        UsageError: no such algorithm.
        FlintError: unknown kind of communication.
    """
    return collective_cost(item.kind, whole_bytes(item), profile, algorithm).seconds


def whole_bytes(item: Communication) -> int:
    """S: the larger of operand and result: the whole buffer for gathers, scatters and reductions.

    A collective takes as long on all members as on the one that moves most.
    """
    return max(item.bytes_in, item.bytes_out, item.largest_bytes)


def collective_cost(kind: str, size: float, profile: Profile, algorithm: str | None = None) -> Cost:
    """The cost of a collective on one group.

    Args:
        kind: StableHLO name.
        size: bytes of the whole buffer.
        profile: where the members are; empty for a group of one.
        algorithm: as for ``collective_seconds``.
    """
    check_algorithm(algorithm)
    if kind not in _KINDS:
        raise FlintError(f"communication {kind!r} has no cost")
    if not profile or size <= 0:
        return Cost(0.0, "none")
    return _cheapest([_KINDS[kind](size, way, algorithm) for way in _by_protocol(profile)])


@lru_cache(maxsize=1024)
def _by_protocol(profile: Profile) -> tuple[Profile, ...]:
    """The profile with each protocol of its tiers; a collective uses one protocol throughout."""
    most = max(len(level.tier.protocols) for level in profile)
    return tuple(
        tuple(replace(level, tier=level.tier.by_protocol(number)) for level in profile)
        for number in range(most + 1)
    )


def check_algorithm(algorithm: str | None) -> None:
    """Check that an algorithm exists.

    Raises:
        UsageError: it does not.
    """
    if algorithm is not None and algorithm not in (*ALGORITHMS, "hierarchical", "flat ring"):
        known = ", ".join((*ALGORITHMS, "hierarchical", "flat ring"))
        raise UsageError(f"unknown algorithm {algorithm!r}; choose from: {known}")


def message_seconds(size: float, tier: Tier, links: int) -> float:
    """Seconds of a message between two ranks, ``links`` links apart on a tier.

    A message takes one link at a time; if all ranks shift along a ring, every link carries as many
    messages as each message has hops.
    """
    share = tier.size - 1 if tier.topology == "FullyConnected" else 1
    ways = [tier.by_protocol(number) for number in range(len(tier.protocols) + 1)]
    return min(way.latency * links + size * links * share / way.rate for way in ways)


def _scatter(size: float, profile: Profile, algorithm: str | None) -> Cost:
    """Reduce-scatter, and all-gather, which costs the same."""
    hierarchical, used = 0.0, []
    for level in profile:
        cost = _cheapest_step(size, level, algorithm)
        hierarchical += cost.seconds
        used.append(cost.algorithm)
    found = [Cost(hierarchical, " + ".join(used))]
    if len(profile) > 1:
        found.append(Cost(_flat_ring(size, profile), "flat ring"))
    return _chosen(found, algorithm)


def _all_reduce(size: float, profile: Profile, algorithm: str | None) -> Cost:
    *inner, outer = profile
    below, used = 0.0, []
    for level in inner:
        cost = _cheapest_step(size, level, algorithm)
        below += 2 * cost.seconds
        used.append(cost.algorithm)
    top = _cheapest(
        [
            Cost(_whole(name, size, outer), name)
            for name in _allowed(outer, algorithm, (*_STEPS, "tree", "in-network"))
        ]
    )
    found = [Cost(below + top.seconds, " + ".join([*used, top.algorithm]))]
    if len(profile) > 1:
        found.append(Cost(2 * _flat_ring(size, profile), "flat ring"))
    return _chosen(found, algorithm)


def _all_to_all(size: float, profile: Profile, algorithm: str | None) -> Cost:
    del algorithm
    ranks = profile[-1].reached
    longest = latency = through = 0.0
    for level in reversed(profile):
        # Tiers have their own ports, or pass on what comes through the ports of the tier below.
        crossing = size * (level.reached - level.members) / ranks
        longest = max(longest, (crossing + through) / level.bandwidth)
        longest = max(longest, size * level.reached / ranks * level.cuts[1] / level.tier.rate)
        through = crossing + through if level.tier.ports == "below" else 0.0
        latency = max(latency, level.tier.latency * _farthest(level))
    return Cost(latency + longest, "direct")


def _broadcast(size: float, profile: Profile, algorithm: str | None) -> Cost:
    """Chunks follow one another down a tree, so the slowest tier is passed only once."""
    del algorithm
    latency = sum(level.tier.latency * math.ceil(math.log2(level.parties)) for level in profile)
    return Cost(latency + size * max(_port_seconds(profile)), "tree")


_KINDS: Final[dict[str, Callable[[float, Profile, str | None], Cost]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _scatter,
    "reduce_scatter": _scatter,
    "all_to_all": _all_to_all,
    "ragged_all_to_all": _all_to_all,
    "collective_broadcast": _broadcast,
}
_STEPS: Final = ("ring", "halving-doubling", "direct")


def _allowed(level: TierUse, named: str | None, known: tuple[str, ...]) -> list[str]:
    """Algorithms for a level: the named one if the tier has it, else all of the tier's."""
    names = [name for name in level.tier.algorithms if name in known]
    if level.parties & (level.parties - 1) and len(names) > 1:
        names = [name for name in names if name != "halving-doubling"]
    if named in names:
        return [named]
    return names or ["ring"]


def _cheapest_step(size: float, level: TierUse, named: str | None) -> Cost:
    return _cheapest(
        [Cost(_step(name, size, level), name) for name in _allowed(level, named, _STEPS)]
    )


def _step(name: str, size: float, level: TierUse) -> float:
    """One level's part of a reduce-scatter or an all-gather of ``size`` bytes."""
    latency = level.tier.latency
    bytes_seconds = size * max(
        level.share / level.members / level.bandwidth, level.cuts[0] / level.tier.rate
    )
    if name == "direct":
        return latency + bytes_seconds
    if name == "halving-doubling":
        return math.ceil(math.log2(level.parties)) * latency + bytes_seconds
    return ring_steps(level) * latency + bytes_seconds


def _whole(name: str, size: float, level: TierUse) -> float:
    """The outermost level's part of an all-reduce of ``size`` bytes."""
    n, latency = level.parties, level.tier.latency
    left = size / level.members / level.bandwidth
    if name == "tree":
        return 2 * math.ceil(math.log2(n)) * latency + 2 * left
    if name == "in-network":
        return 2 * latency + (1 + 1 / n) * left
    return 2 * _step(name, size, level)


def ring_steps(level: TierUse) -> int:
    """Messages one after another around the rings of a level; in both directions on a torus."""
    if level.reach:
        return sum(
            (parties // 2 if whole else parties - 1) * spacing
            for parties, spacing, whole in level.reach
        )
    return level.parties - 1


def _port_seconds(profile: Profile) -> list[float]:
    """Seconds per byte that passes through each tier; a party's members share its traffic.

    Either a slab of a torus or the rest of it has at most half of a group, and so receives at least
    half of what is gathered.
    """
    return [
        max(1 / (level.bandwidth * level.members), 2 * level.cuts[0] / level.tier.rate)
        for level in profile
    ]


def _flat_ring(size: float, profile: Profile) -> float:
    """One reduce-scatter or all-gather along a ring through all levels."""
    ranks = profile[-1].reached
    latency, above = 0.0, 1
    for level in reversed(profile):
        latency += above * (level.parties - 1) * level.tier.latency
        above *= level.parties
    ports = max(1 / (level.bandwidth * level.members) for level in profile)
    cut = max(level.cuts[0] / level.tier.rate for level in profile)
    return latency + size * max((ranks - 1) / ranks * ports, cut)


def _farthest(level: TierUse) -> int:
    if not level.reach:
        return 1
    return sum((n // 2 if whole else n - 1) * step for n, step, whole in level.reach)


def _cheapest(costs: list[Cost]) -> Cost:
    return min(costs, key=lambda cost: cost.seconds)


def _chosen(found: list[Cost], named: str | None) -> Cost:
    if named == "flat ring":
        return found[-1]
    return found[0] if named is not None else _cheapest(found)
