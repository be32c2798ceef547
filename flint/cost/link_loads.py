"""Link loads: how much of a rank's links a communication takes while it runs alone.

The idea: a communication sends a number of bytes through a rank's ports on each tier, whatever the
algorithm: a reduce-scatter or an all-gather what the other parties lack, an all-reduce twice that,
an all-to-all what leaves the party.  Compared with what the ports could send in the time that it
takes, this is the part that others cannot have.  An exchange within nodes and one between nodes
that has one rank in each node take nothing from each other.

    loads = collective_loads(item, profile, seconds, system.network)     # a float per tier
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flint.cost.collectives import whole_bytes
from flint.cost.hardware import Tier
from flint.cost.placement import Profile, TierUse
from flint.cost.roofline import Seconds
from flint.graph.communication import Communication

_EXCHANGES = ("all_to_all", "ragged_all_to_all")


def collective_loads(
    item: Communication, profile: Profile, seconds: float, network: Sequence[Tier]
) -> Seconds:
    """The part of each tier's links that a collective takes.

    Args:
        item: the collective.
        profile: where the group's members are.
        seconds: how long it takes alone.
        network: all tiers, innermost first.

    Returns:
        Parts from 0 to 1, shape [tiers].
    """
    times = np.zeros(len(network))
    size = whole_bytes(item)
    for use in profile:
        tier = _number(use.tier, network)
        part, cut = _parts(item.kind, use, profile[-1].reached)
        times[tier] += size * max(part / use.bandwidth, cut / use.tier.rate)
        while network[tier].ports == "below" and tier:
            tier -= 1  # what passes this tier came through the ports of the one below
            times[tier] += size * part / network[tier].rate
    return _of_capacity(times, seconds)


def message_loads(size: float, tier: Tier, seconds: float, network: Sequence[Tier]) -> Seconds:
    """The part of each tier's links that a message of ``size`` bytes between two ranks takes.

    Args:
        size: bytes.
        tier: the tier on which the ranks meet.
        seconds: how long it takes alone.
        network: all tiers, innermost first.

    Returns:
        Parts from 0 to 1, shape [tiers].
    """
    times = np.zeros(len(network))
    number = _number(tier, network)
    # Along a ring, or in a full mesh, it has its links for all the time that it takes.
    times[number] = size / tier.rate if tier.topology == "Switch" else seconds
    while network[number].ports == "below" and number:
        number -= 1
        times[number] = size / network[number].rate
    return _of_capacity(times, seconds)


def _parts(kind: str, use: TierUse, ranks: int) -> tuple[float, float]:
    """What a rank sends on one level, and what each link of a torus' busiest cut carries, as parts
    of the whole buffer.
    """
    if kind in _EXCHANGES:
        return (use.reached - use.members) / ranks, use.reached / ranks * use.cuts[1]
    if kind == "collective_broadcast":
        return 1 / use.members, 2 * use.cuts[0]
    times = 2 if kind == "all_reduce" else 1
    return times * use.share / use.members, times * use.cuts[0]


def _of_capacity(times: Seconds, seconds: float) -> Seconds:
    parts: Seconds = np.minimum(times / seconds, 1.0) if seconds > 0 else np.zeros(len(times))
    return parts


def _number(tier: Tier, network: Sequence[Tier]) -> int:
    """Its place; a path of a full mesh changes a tier's size, and nothing else."""
    return [other.name for other in network].index(tier.name)
