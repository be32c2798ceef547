"""Fitting a mesh onto a system: how many ranks each node, rack or pod gets.

The idea: ranks are dealt out evenly.  Where a mesh is larger than a node but no multiple of it, a
node gets the most ranks that share the mesh out: 512 ranks take 64 of the 72 devices of each
NVLink domain.  A mesh that would leave most of every node empty does not fit.

    fitted, notes = fit(load_system("gb200-nvl72"), 512)
"""

from __future__ import annotations

from dataclasses import replace

from flint.cost.systems import System, Tier
from flint.errors import UsageError


def fit(system: System, world: int) -> tuple[System, list[str]]:
    """The system as ``world`` ranks use it, and what of it they leave unused.

    Raises:
        UsageError: ranks that would fill less than half of every node.
    """
    tiers: list[Tier] = []
    notes: list[str] = []
    inner = 1
    for tier in system.network:
        if tier.size == 0 or world <= tier.size:
            tiers.append(tier)
            continue
        used = max(n for n in range(inner, tier.size + 1, inner) if world % n == 0)
        if 2 * used < tier.size:
            raise UsageError(
                f"{world} ranks do not map on {system.name}: {tier.name} joins {tier.size} "
                f"devices, and the most that share {world} ranks out evenly are {used}; choose a "
                f"mesh size that is a multiple of {tier.size} or of a number close below"
            )
        if used < tier.size:
            notes.append(f"{used} of {tier.size} devices are used per {tier.name}")
            full = tier.topology == "FullyConnected" and tier.size >= 2 * inner
            share = (used // inner - 1) / (tier.size // inner - 1) if full else 1.0
            tier = replace(tier, size=used, bandwidth=tier.bandwidth * share)
        tiers.append(tier)
        inner = tier.size
    return replace(system, network=tuple(tiers)), notes
