"""How much of a rank's links communications take, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flint.cost.collectives import collective_seconds
from flint.cost.link_loads import collective_loads, message_loads
from flint.cost.placement import place
from flint.cost.systems import load_system
from flint.graph.communication import Communication
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh

H100 = load_system("dgx-h100")
MESH = Mesh((4, 2, 4), ("between", "pair", "within"))  # four nodes of eight GPUs
SIZE = 1 << 30


def loads(kind: str, *axes: str) -> np.ndarray:
    """Parts of NVLink and of InfiniBand, of a collective with a whole buffer of ``SIZE`` bytes."""
    groups = along_axes(MESH, axes)
    item = Communication(kind, None, groups, None, (SIZE,), (SIZE,), ("bf16",))
    [profile] = place(groups, H100).profiles
    return collective_loads(item, profile, collective_seconds(item, profile), H100.network)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_a_large_collective_has_the_links_of_its_only_tier(kind):
    """Within a node only NVLink, with a rank in each node only the network; latencies of some
    microseconds are nothing beside the milliseconds of a GiB."""
    assert loads(kind, "within") == pytest.approx([1, 0], abs=0.02)
    assert loads(kind, "between") == pytest.approx([0, 1], abs=0.02)


def test_a_gather_over_nodes_takes_little_of_the_links_within():
    """Two ranks in each of four nodes: each sends half of the buffer to the other rank, and over
    the network 3/4 of its half. In the same time, NVLink could carry as many times more as it is
    faster."""
    inner, outer = (tier.rate for tier in H100.network)
    seconds = SIZE / 2 / inner + SIZE * 3 / 8 / outer
    expected = [SIZE / 2 / inner / seconds, SIZE * 3 / 8 / outer / seconds]
    assert loads("all_gather", "between", "pair") == pytest.approx(expected, abs=0.02)
    assert expected[0] < 0.2


def test_an_exchange_over_nodes_sends_three_quarters_to_other_nodes():
    """Of eight ranks two are in each of four nodes: 1/8 of a buffer goes to the neighbour, 6/8 to
    other nodes, at the same time."""
    inner, outer = (tier.rate for tier in H100.network)
    assert loads("all_to_all", "between", "pair") == pytest.approx([outer / inner / 6, 1], abs=0.02)


def test_a_message_takes_its_tier_for_its_bytes_and_not_for_its_latency():
    inner, outer = H100.network
    alone = message_loads(1 << 20, outer, 2 * (1 << 20) / outer.rate, H100.network)
    assert alone == pytest.approx([0, 0.5])
    assert message_loads(0, inner, 1e-6, H100.network) == pytest.approx([0, 0])


def test_what_passes_the_spine_came_through_the_ports_below():
    """The tiers of a superpod above the nodes have the nodes' ports."""
    network = load_system("dgx-h100-superpod").network
    above = [number for number, tier in enumerate(network) if tier.ports == "below"]
    spine = network[above[0]]
    taken = message_loads(1 << 30, spine, (1 << 30) / spine.rate, network)
    assert taken[above[0]] == pytest.approx(1)
    assert taken[above[0] - 1] == pytest.approx(spine.rate / network[above[0] - 1].rate)
