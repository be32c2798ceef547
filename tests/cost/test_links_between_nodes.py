"""A torus or a full mesh above nodes: its links run from node to node; times and sizes by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flint.cost.collectives import collective_cost, message_seconds
from flint.cost.fitting import fit
from flint.cost.hardware import System, Tier
from flint.cost.placement import hops
from flint.errors import UsageError
from flint.mesh.groups import StridedGroups, everybody
from flint.mesh.permutation import permutation
from tests.cost.networks import H100, levels, nodes_on_a_torus


def test_a_ring_of_nodes_by_hand():
    """8 nodes of 4: the devices of one place in their nodes form a ring of 8, with two links each.

    One member per node gathers 7/8 of 800 MB over two links: 35 ms, 4 hops both ways around.
    All 32: 3/4 inside, 6 ms, and 7/8 of the 200 MB that are left across, 8.75 ms; on one flat ring
    31/32 of 800 MB over 4 x 2 links, 9.6875 ms, and 7 steps across, 8 x 3 inside.
    Everybody to everybody: 16 ranks send half of 800 MB each over the 2 x 4 links of the cut.
    """
    system = nodes_on_a_torus()
    [column] = levels(StridedGroups(32, ((8, 4),)), system)
    assert collective_cost("all_gather", 800e6, (column,)).seconds == pytest.approx(35e-3 + 40e-6)
    whole = levels(everybody(32), system)
    hierarchical = collective_cost("all_gather", 800e6, whole, "hierarchical")
    assert hierarchical.seconds == pytest.approx(6e-3 + 3e-6 + 8.75e-3 + 40e-6)
    flat = collective_cost("all_gather", 800e6, whole, "flat ring")
    assert flat.seconds == pytest.approx(9.6875e-3 + 70e-6 + 24e-6)
    spread = collective_cost("all_to_all", 800e6, whole)
    assert spread.seconds == pytest.approx(16 * 400e6 / 80e9 + 40e-6)


def test_a_full_mesh_of_nodes_by_hand():
    """8 nodes of 4; a device has 70 GB/s in 7 links, one to each device of its place.

    All 8 of a place gather 7/8 of 800 MB over all links, two of them half of it over one.
    """
    node = Tier("node", 4, "Switch", 100e9, 0.0)
    mesh = Tier("mesh", 32, "FullyConnected", 70e9, 0.0)
    outside = Tier("outside", 0, "Switch", 1e9, 0.0)
    system = replace(H100, network=(node, mesh, outside))
    [column] = levels(StridedGroups(32, ((8, 4),)), system)
    assert collective_cost("all_gather", 800e6, (column,)).seconds == pytest.approx(10e-3)
    [pair] = levels(StridedGroups(32, ((2, 4),)), system)
    assert collective_cost("all_gather", 800e6, (pair,)).seconds == pytest.approx(40e-3)
    _, [way] = hops(permutation(32, np.array([[0, 4]])), system)
    assert message_seconds(80e6, *way) == pytest.approx(8e-3)
    # 48 ranks take 6 of the 8 nodes of each mesh: 5 of the 7 links are used.
    used = fit(system, 48)[0].network[1]
    assert (used.size, used.bandwidth) == (24, pytest.approx(50e9))


def nodes_in_a_mesh(topology="FullyConnected", rings=1) -> System:
    """Switches of 8, 32 devices that is 4 nodes in full mesh or torus, and pods of 128."""
    tiers = (
        Tier("node", 8, "Switch", 100e9, 0.0),
        Tier("mesh", 32, topology, 60e9, 0.0, rings=rings),
        Tier("pods", 128, "FullyConnected", 30e9, 0.0),
        Tier("outside", 0, "Switch", 1e9, 0.0),
    )
    return replace(H100, network=tiers)


@pytest.mark.parametrize("world", [12, 16])
def test_a_device_of_a_full_mesh_has_a_link_to_each_node_however_full_nodes_are(world):
    """12 ranks lie on 2 of 4 nodes, 6 on each, 16 too, 8 on each.

    A device has 3 links of 20 GB/s, and two nodes are joined by one: 1/3 of 60 GB/s.  Two ranks of
    a place gather half of 800 MB over it in 20 ms; a message of 80 MB takes 4 ms.
    """
    system, _ = fit(nodes_in_a_mesh(), world)
    node = world // 2
    assert [tier.size for tier in system.network] == [node, 4 * node, 16 * node, 0]
    [pair] = levels(StridedGroups(world, ((2, node),)), system)
    assert (pair.tier.name, pair.lanes) == ("mesh", pytest.approx(1 / 3))
    assert collective_cost("all_gather", 800e6, (pair,)).seconds == pytest.approx(20e-3)
    _, [way] = hops(permutation(world, np.array([[0, node]])), system)
    assert message_seconds(80e6, *way) == pytest.approx(4e-3)


def test_links_of_a_full_mesh_in_use_are_counted_in_nodes_as_they_are_described():
    """36 ranks: 6 per node, 3 of the 4 nodes of each of 2 meshes: 2 of 3 links, 40 of 60 GB/s.

    The pods' tier joins 128 / 32 = 4 meshes, of 18 devices now; two of them share one link of 3.
    """
    system, notes = fit(nodes_in_a_mesh(), 36)
    assert [tier.size for tier in system.network] == [6, 18, 72, 0]
    assert system.network[1].bandwidth == pytest.approx(40e9)
    assert notes == ["6 of 8 devices are used per node", "18 of 32 devices are used per mesh"]
    [column] = levels(StridedGroups(18, ((3, 6),)), system)
    assert column.lanes == pytest.approx(1)
    [across] = levels(StridedGroups(36, ((2, 18),)), system)
    assert (across.tier.name, across.lanes) == ("pods", pytest.approx(1 / 3))


def test_a_full_mesh_of_which_one_node_is_used_joins_nothing_and_stays_as_described():
    """24 ranks take one of the two nodes of 8 in each mesh: no link of it is used, none is lost."""
    node, _, pods, outside = nodes_in_a_mesh().network
    mesh = Tier("mesh", 16, "FullyConnected", 60e9, 0.0)
    system, _ = fit(replace(H100, network=(node, mesh, pods, outside)), 24)
    assert (system.network[1].size, system.network[1].bandwidth) == (8, 60e9)


def test_nodes_that_are_partly_used_are_no_more_than_there_are():
    """84 ranks are 7 on each of 12 nodes, and 4 nodes are a mesh: 3 meshes of 28.

    132 ranks at 6 per node are 22 nodes; what shares them out, 2 nodes, fills no half of a mesh.
    """
    for system in (nodes_in_a_mesh(), nodes_in_a_mesh("Ring", 2)):
        fitted, notes = fit(system, 84)
        assert [tier.size for tier in fitted.network] == [7, 28, 112, 0]
        assert fitted.network[1].bandwidth == 60e9
        assert notes[1:] == ["28 of 32 devices are used per mesh"]
        with pytest.raises(UsageError, match=r"at most 12 of them, 6 of every 8, divide 132 ranks"):
            fit(system, 132)


def test_messages_between_nodes_of_a_torus_take_links_between_nodes():
    """Nodes of 4 on a torus of 4 x 4: ranks 0 and 17 are neighbours along the first dim."""
    pairs = np.array([[0, 17], [1, 2], [2, 42]])  # nodes 0 to 4, 0 to 0, 0 to 10 = (2, 2)
    number, ways = hops(permutation(64, pairs), nodes_on_a_torus(2))
    found = [(ways[n][0].size, ways[n][1]) for n in number[[0, 1, 2]]]
    assert found == [(0, 1), (4, 1), (0, 4)]
