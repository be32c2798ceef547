"""Fitting a mesh onto a system: how many ranks each node, rack or pod gets.

The idea: all nodes get the same number of ranks.  If a mesh is larger than a node but not a
multiple of it, a node gets the largest number of ranks that divides the mesh: 512 ranks take 64 of
the 72 devices of each NVLink domain.  A mesh that would leave most of every node empty does not
fit.

    fitted, notes = fit(load_system("gb200-nvl72"), 512)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flint.cost.hardware import System, Tier
from flint.errors import UsageError

#: Arrangements with links between places, each for a device or for a tier below: all of the
#: described links count, however many devices of each are used.
_OF_PLACES: Final = ("Ring", "FullyConnected")


def fit(system: System, world: int) -> tuple[System, list[str]]:
    """The system as ``world`` ranks use it, and notes on what they leave unused.

    Raises:
        UsageError: the ranks would fill less than half of every node.
    """
    tiers: list[Tier] = []
    notes: list[str] = []
    inner = described = 1  # size of the tier below: as used, and as described
    for tier in system.network:
        places = -(-tier.size // described)
        most = min(tier.size, places * inner) if tier.topology in _OF_PLACES else tier.size
        if tier.size == 0 or world <= most:
            used, share = most, 1.0
        else:
            used = max(n for n in range(inner, most + 1, inner) if world % n == 0)
            if 2 * used < tier.size:
                each = f", {inner} of every {described}," if inner < described else ""
                raise UsageError(
                    f"{world} ranks do not map to {system.name}: {tier.name} joins {tier.size} "
                    f"devices, and at most {used} of them{each} divide {world} ranks evenly; "
                    f"choose a mesh size that is a multiple of {tier.size} or of a slightly "
                    "smaller number"
                )
            if used < tier.size:
                notes.append(f"{used} of {tier.size} devices are used per {tier.name}")
            fewer = tier.topology == "FullyConnected" and inner < used < most
            share = (used // inner - 1) / (places - 1) if fewer else 1.0
        tiers.append(replace(tier, size=used, bandwidth=tier.bandwidth * share))
        inner, described = used, tier.size
    return replace(system, network=tuple(tiers)), notes
