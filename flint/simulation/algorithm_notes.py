"""Why a named algorithm changes nothing for some collectives.

The idea: each collective is priced with the named algorithm and without.  If both prices are the
same, there is a reason: the kind runs in only one way, the tier does not offer the algorithm, the
group is within one tier, or the algorithm is the cheapest anyway.

    algorithm_notes(graphs, prices, "in-network")
    # ["in-network changes nothing for all-gather: only all-reduces run in switches"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flint.cost.collectives import collective_cost, whole_bytes
from flint.cost.placement import Profile
from flint.cost.prices import Prices
from flint.graph.graph import WorkloadGraph

_ONE_WAY = {
    "all_to_all": "it always runs as direct exchanges",
    "ragged_all_to_all": "it always runs as direct exchanges",
    "collective_broadcast": "it always runs as a tree",
}
#: Algorithms that only all-reduces use.
_OF_ALL_REDUCE = {
    "tree": "only all-reduces run on trees",
    "in-network": "only all-reduces run in switches",
}


def algorithm_notes(
    graphs: Sequence[WorkloadGraph], prices: Prices, algorithm: str | None
) -> list[str]:
    """One line for each reason why an algorithm does not change collectives.

    Args:
        graphs: the programs' graphs.
        prices: prices on the system.
        algorithm: as named by the user; without one there are no lines.
    """
    if algorithm is None:
        return []
    unchanged: dict[str, set[str]] = defaultdict(set)
    elsewhere: set[str] = set()
    for graph in graphs:
        for item in graph.tables.communications:
            if item.groups is None:
                continue
            for profile in prices.placement(item.groups).profiles:
                size = whole_bytes(item)
                named = collective_cost(item.kind, size, profile, algorithm)
                free = collective_cost(item.kind, size, profile)
                if profile and named.seconds == free.seconds:
                    reason = _reason(item.kind, profile, algorithm, named.algorithm)
                    unchanged[reason].add(item.kind.replace("_", "-"))
                if any(algorithm in level.tier.algorithms for level in profile):
                    elsewhere.update(_without(profile, algorithm))
    partly = [
        f"{algorithm} does not run on {tier}; the fastest algorithm that does is used there"
        for tier in sorted(elsewhere)
    ]
    return partly + [
        f"{algorithm} changes nothing for {', '.join(sorted(kinds))}: {reason}"
        for reason, kinds in sorted(unchanged.items())
    ]


def _without(profile: Profile, algorithm: str) -> list[str]:
    """The tiers of a group on which an algorithm does not run."""
    names = [level.tier.name for level in profile if algorithm not in level.tier.algorithms]
    return list(dict.fromkeys(names))


def _reason(kind: str, profile: Profile, algorithm: str, used: str) -> str:
    """Why the named algorithm costs the same as the default."""
    if kind in _ONE_WAY:
        return _ONE_WAY[kind]
    if algorithm in _OF_ALL_REDUCE and kind != "all_reduce":
        return _OF_ALL_REDUCE[algorithm]
    if algorithm in ("hierarchical", "flat ring"):
        if len(profile) == 1:
            return f"the group is within one tier, {profile[0].tier.name}"
        return "it is already the fastest"
    if algorithm in used.split(" + "):
        return "it is already the fastest"
    without = _without(profile, algorithm)
    if without:
        return f"it does not run on {', '.join(without)}"
    if algorithm in _OF_ALL_REDUCE:
        return f"it is for the outermost tier of a group, {profile[-1].tier.name}"
    return f"it does not run on {profile[-1].parties} parties"
