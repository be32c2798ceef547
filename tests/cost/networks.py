"""Networks and groups that tests of collectives' costs share."""

from __future__ import annotations

from dataclasses import replace

from flint.cost.hardware import System, Tier
from flint.cost.placement import place
from flint.cost.systems import load_system

H100 = load_system("dgx-h100")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_broadcast")


def two_tiers(near: float, far: float, algorithms=("ring",)) -> System:
    """Nodes of 4 with ``near`` bytes/s and 1 us, ``far`` bytes/s and 10 us between them."""
    tiers = (
        Tier("node", 4, "Switch", near, 1e-6, algorithms=algorithms),
        Tier("net", 0, "Switch", far, 10e-6, algorithms=algorithms),
    )
    return replace(H100, network=tiers)


def nodes_on_a_torus(rings: int = 1) -> System:
    """Nodes of 4 with 100 GB/s inside; each device has two links of 10 GB/s in each dim."""
    node = Tier("links", 4, "Switch", 100e9, 1e-6)
    # The tiers' names are the user's: they have no meaning.
    torus_ = Tier("links", 0, "Ring", 10e9, 10e-6, rings=rings)
    return replace(H100, network=(node, torus_))


def levels(groups, system):
    placement = place(groups, system)
    assert len(placement.profiles) == 1
    return placement.profiles[0]


def shape(profile):
    return [(level.parties, level.members) for level in profile]
