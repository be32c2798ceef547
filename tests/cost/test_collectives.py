"""Collectives: formulas by hand, placement by counting, protocols, shared uplinks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flint.cost.collectives import collective_cost, message_seconds
from flint.cost.hardware import Tier
from flint.cost.placement import hops, place, torus
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.mesh.groups import StridedGroups, along_axes, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from tests.cost.networks import H100, KINDS, levels, shape, two_tiers


def test_members_are_counted_by_node():
    mesh = Mesh((64, 8), ("data", "model"))
    assert shape(levels(along_axes(mesh, ("model",)), H100)) == [(8, 1)]
    [level] = levels(along_axes(mesh, ("data",)), H100)
    assert (level.parties, level.members, level.tier.name) == (64, 1, "InfiniBand NDR")
    assert shape(levels(everybody(512), H100)) == [(8, 1), (64, 8)]


def test_groups_that_lie_differently_have_different_profiles():
    """Groups of 4 in nodes of 8 lie inside; {6, 7, 8, 9} has two members in each of two nodes."""
    rows = np.array([[0, 1, 2, 3], [6, 7, 8, 9], [4, 5, 10, 11], [12, 13, 14, 15]])
    placement = place(from_table(16, rows), H100)
    found = [shape(placement.profiles[n]) for n in placement.number[[0, 6, 4, 12]].tolist()]
    assert found == [[(4, 1)], [(2, 1), (2, 2)], [(2, 1), (2, 2)], [(4, 1)]]


def test_formulas_on_one_level():
    """4 ranks, 1 us, 100 GB/s, 400 MB: the table of the module's text, by hand."""
    rows = {
        "ring": (3e-6 + 3e-3, 6e-6 + 6e-3),
        "halving-doubling": (2e-6 + 3e-3, 4e-6 + 6e-3),
        "direct": (1e-6 + 3e-3, 2e-6 + 6e-3),
        "tree": (None, 4e-6 + 8e-3),
        "in-network": (None, 2e-6 + 5e-3),
    }
    for name, (scatter, reduce) in rows.items():
        profile = levels(everybody(4), two_tiers(100e9, 1e9, (name,)))
        assert collective_cost("all_reduce", 400e6, profile).seconds == pytest.approx(reduce)
        if scatter is not None:
            assert collective_cost("all_gather", 400e6, profile).seconds == pytest.approx(scatter)


def test_hierarchical_and_flat_ring_by_hand():
    """8 ranks in two nodes of 4, 100 and 10 GB/s, 800 MB.

    Hierarchical all-gather: 3/4 of 800 MB at 100 GB/s, then 1/2 of 200 MB at 10 GB/s: 6 + 10 ms.
    Flat: 7/8 of 800 MB over 4 ports of 10 GB/s: 17.5 ms, which is slower than 7 ms inside.
    """
    profile = levels(everybody(8), two_tiers(100e9, 10e9))
    cost = collective_cost("all_gather", 800e6, profile)
    assert cost.seconds == pytest.approx(6e-3 + 3e-6 + 10e-3 + 10e-6)
    flat = collective_cost("all_gather", 800e6, profile, "flat ring")
    # 1 step between nodes, 2 x 3 steps inside them.
    assert flat.seconds == pytest.approx(17.5e-3 + 10e-6 + 6e-6)


def test_all_to_all_by_hand():
    """8 ranks send 80 MB each: 3/8 stays in the node (100 GB/s), 4/8 leaves it (10 GB/s)."""
    cost = collective_cost("all_to_all", 80e6, levels(everybody(8), two_tiers(100e9, 10e9)))
    assert cost.seconds == pytest.approx(10e-6 + 40e6 / 10e9)


def test_a_torus_uses_all_its_rings():
    """A v5e pod of 16 x 16: a row has two links of 50 GB/s per chip, the pod four; 90% reached."""
    pod = load_system("tpu-v5e-pod")
    assert torus(pod.network[0], 256) == (16, 16)
    [row] = levels(StridedGroups(256, ((16, 1),)), pod)
    [whole] = levels(everybody(256), pod)
    [piece] = levels(StridedGroups(256, ((4, 1),)), pod)
    assert row.bandwidth == pytest.approx(90e9)
    assert whole.bandwidth == pytest.approx(180e9)
    assert piece.bandwidth == pytest.approx(45e9)  # four in a row of 16: the ends have one link
    # Both ways around: 8 hops of 1 us, 15/16 of the bytes.
    cost = collective_cost("all_gather", 1.6e9, (row,))
    assert cost.seconds == pytest.approx(8e-6 + 1.5e9 / 90e9)
    # An all-to-all on a ring of 16: 8 ranks send half of their buffers over 2 links.
    spread = collective_cost("all_to_all", 1.6e9, (row,))
    assert spread.seconds == pytest.approx(8e-6 + 8 * 0.8e9 / 2 / 45e9)
    # On an open row of 4, 2 ranks send half of theirs over the one link in the middle.
    open_row = collective_cost("all_to_all", 1.6e9, (piece,))
    assert open_row.seconds == pytest.approx(3e-6 + 2 * 0.8e9 / 45e9)


@pytest.mark.parametrize(
    ("name", "world", "dims"),
    [
        ("tpu-v5p-pod", 256, ((256, 1),)),  # 4 x 8 x 8
        ("tpu-v5p-pod", 192, ((192, 1),)),  # 4 x 6 x 8, of which 6 does not close
        ("tpu-v5e-pod", 128, ((128, 1),)),  # 8 x 16: one dim closes
        ("tpu-v5e-pod", 256, ((16, 16),)),  # columns
        ("tpu-v5e-pod", 256, ((4, 4),)),  # every fourth of a row, four groups interleaved
        ("tpu-v6e-pod", 6, ((6, 1),)),
        ("tpu-v6e-pod", 7, ((7, 1),)),  # an open row
    ],
)
def test_all_to_all_on_a_torus_loads_its_links_as_routes_do(name, world, dims):
    """Every pair's message is routed dim by dim, the shorter way around where a dim closes, and the
    bytes of each link are counted."""
    system = load_system(name)
    tier = system.network[0]
    shape = torus(tier, world)
    groups = StridedGroups(world, dims)
    load: dict[tuple[tuple[int, ...], int, int], float] = {}
    size = 1e9
    for row in groups.table().tolist():
        for source in row:
            for target in row:
                at = [int(x) for x in np.unravel_index(source, shape)]
                end = [int(x) for x in np.unravel_index(target, shape)]
                for dim, side in enumerate(shape):
                    closes = side > 2 and side % tier.closed == 0
                    ahead = (end[dim] - at[dim]) % side if closes else end[dim] - at[dim]
                    ways = [(ahead, 1.0)]
                    if closes and 2 * ahead == side:
                        ways = [(ahead, 0.5), (-ahead, 0.5)]  # both ways are as short
                    elif closes and 2 * ahead > side:
                        ways = [(ahead - side, 1.0)]
                    for hops_, part in ways:
                        here = list(at)
                        for _ in range(abs(hops_)):
                            step = 1 if hops_ > 0 else -1
                            link = (tuple(here), dim, step)
                            load[link] = load.get(link, 0.0) + part * size / len(row)
                            here[dim] = (here[dim] + step) % side
                    at[dim] = end[dim]
    [profile] = place(groups, system).profiles
    cost = collective_cost("all_to_all", size, profile)
    latency = collective_cost("all_to_all", 1e-9, profile).seconds
    assert cost.seconds - latency == pytest.approx(max(load.values()) / tier.rate, rel=1e-6)


def test_a_full_mesh_of_links_gives_a_pair_one_link():
    """MI300X: 448 GB/s in 7 links; two members share one of them, four have three each."""
    system = load_system("mi300x-8")
    [pair] = levels(StridedGroups(8, ((2, 1),)), system)
    [four] = levels(StridedGroups(8, ((4, 1),)), system)
    assert pair.bandwidth == pytest.approx(64e9 * 0.75)
    assert four.bandwidth == pytest.approx(3 * 64e9 * 0.75)
    assert message_seconds(48e9, system.network[0], 1) == pytest.approx(1 + 1e-6)


def test_messages_take_the_tier_that_joins_the_pair():
    ring = permutation(16, np.array([[i, (i + 1) % 16] for i in range(16)]))
    number, ways = hops(ring, H100)
    assert [ways[n][0].name for n in number[[0, 7, 15]]] == [
        "NVLink 4 and NVSwitch", "InfiniBand NDR", "InfiniBand NDR"
    ]  # fmt: skip
    around = permutation(256, np.array([[i, (i + 16) % 256] for i in range(256)]))
    number, ways = hops(around, load_system("tpu-v5e-pod"))
    assert [ways[n][1] for n in np.unique(number)] == [1]  # the torus closes every ring


def test_interleaved_pairs_of_columns_share_the_links_between_them():
    """64 chips of v5e, 8 x 8 and open; groups of 4 with stride 4 are 2 x 2, four columns apart.

    All 16 groups pass half a buffer over the 8 links in the middle: one buffer each.
    """
    [profile] = place(StridedGroups(64, ((4, 4),)), load_system("tpu-v5e-pod")).profiles
    cost = collective_cost("all_gather", 4.5e9, profile)
    assert cost.seconds == pytest.approx(4.5e9 / 45e9 + 5e-6)  # 1 hop and 4


@pytest.mark.parametrize(
    ("size", "quickest"),
    [(8e3, 0), (80e3, 0), (2e6, 1), (8e6, 1), (80e6, 2), (8e9, 2)],
)
def test_small_messages_take_the_quicker_protocol_and_large_ones_the_whole_bandwidth(
    size, quickest
):
    """A ring of 8: 7 messages of 1 us at half of 100 GB/s, of 3 us at 92%, or of 5 us at all of it:
    7 us + 7/8 S / 50 GB/s, 21 us + 7/8 S / 92 GB/s, 35 us + 7/8 S / 100 GB/s."""
    protocols = ((1e-6, 0.5), (3e-6, 0.92))
    tier = Tier("node", 0, "Switch", 100e9, 5e-6, protocols=protocols)
    profile = levels(everybody(8), replace(H100, network=(tier,)))
    ways = [7 * a + 7 / 8 * size / b for a, b in ((1e-6, 50e9), (3e-6, 92e9), (5e-6, 100e9))]
    found = collective_cost("all_gather", size, profile).seconds
    assert found == pytest.approx(min(ways))
    assert min(ways) == ways[quickest]
    # The same of a message: 1, 3 or 5 us.
    pair = [a + size / b for a, b in ((1e-6, 50e9), (3e-6, 92e9), (5e-6, 100e9))]
    assert message_seconds(size, tier, 1) == pytest.approx(min(pair))


def test_both_tiers_of_a_collective_run_with_one_protocol():
    """Two nodes of 2: quick (1 and 10 us, half of the bandwidth) or whole (2 and 20 us)."""
    near = Tier("node", 2, "Switch", 100e9, 2e-6, algorithms=("ring",), protocols=((1e-6, 0.5),))
    far = Tier("net", 0, "Switch", 10e9, 20e-6, algorithms=("ring",), protocols=((10e-6, 0.5),))
    profile = levels(everybody(4), replace(H100, network=(near, far)))
    for size in (1e4, 1e9):
        ways = [
            near_s + size / 2 / near_b + far_s + size / 4 / far_b
            for near_s, near_b, far_s, far_b in (
                (1e-6, 50e9, 10e-6, 5e9), (2e-6, 100e9, 20e-6, 10e9)
            )
        ]  # fmt: skip
        found = collective_cost("all_gather", size, profile, "hierarchical").seconds
        assert found == pytest.approx(min(ways))


def test_a_node_with_few_members_takes_in_what_it_lacks_through_few_ports():
    """12 of 24 ranks, 8 in one node and 4 in the next: the 4 lack 2/3 of 1.2 GB, each 200 MB."""
    system = replace(
        H100,
        network=(
            Tier("node", 8, "Switch", 100e9, 1e-6),
            Tier("net", 0, "Switch", 10e9, 10e-6),
        ),
    )
    profile = levels(StridedGroups(24, ((12, 1),)), system)
    assert shape(profile) == [(8, 1), (2, 4)]
    # In the node of 8 first: 7/8 of 1.2 GB at 100 GB/s in 7 steps.
    cost = collective_cost("all_gather", 1.2e9, profile, "hierarchical")
    assert cost.seconds == pytest.approx(7e-6 + 10.5e-3 + 10e-6 + 200e6 / 10e9)
    # A flat ring of 12 hands on 11/12 over 4 ports: cheaper here.
    flat = collective_cost("all_gather", 1.2e9, profile)
    assert flat.seconds == pytest.approx(10e-6 + 2 * 7e-6 + 1.1e9 / 40e9)
    # Each of the 4 sends 8/12 of its 120 MB to the other node.
    spread = collective_cost("all_to_all", 120e6, profile)
    assert spread.seconds == pytest.approx(10e-6 + 80e6 / 10e9)


def test_the_upper_levels_of_a_fat_tree_pass_the_ports_of_the_lower_one():
    """4 ranks in two pairs: each sends a quarter to its neighbour and half beyond, all through one
    port of 10 GB/s, or through one of each tier."""
    below = Tier("leaf", 2, "Switch", 10e9, 0.0)
    for ports, parts in (("own", 0.5), ("below", 0.75)):
        network = (below, Tier("spine", 0, "Switch", 10e9, 0.0, ports=ports))
        profile = levels(everybody(4), replace(H100, network=network))
        cost = collective_cost("all_to_all", 1e9, profile)
        assert cost.seconds == pytest.approx(parts * 1e9 / 10e9)


def test_an_unknown_algorithm_lists_those_there_are():
    with pytest.raises(UsageError, match="unknown algorithm 'star'; choose from: ring, tree"):
        collective_cost("all_reduce", 1, levels(everybody(8), H100), "star")


def test_a_group_of_one_costs_nothing():
    placement = place(StridedGroups(8, ()), H100)
    assert collective_cost("all_reduce", 100, placement.profiles[0]).seconds == 0


@pytest.mark.parametrize("kind", KINDS)
def test_uplinks_that_are_shared_leave_each_device_its_part(kind):
    """Nodes of 4 whose uplink carries half of what their devices send: as if each had half."""
    mesh = Mesh((4, 4), ("data", "model"))
    plain, half = two_tiers(300e9, 50e9), two_tiers(300e9, 25e9)
    near, far = plain.network
    shared = replace(plain, network=(near, replace(far, oversubscription=2.0)))
    for groups in (along_axes(mesh, ("data",)), everybody(16)):
        cost = collective_cost(kind, 1 << 26, levels(groups, shared))
        assert cost == collective_cost(kind, 1 << 26, levels(groups, half))
    inside = along_axes(mesh, ("model",))
    assert collective_cost(kind, 1 << 26, levels(inside, shared)) == collective_cost(
        kind, 1 << 26, levels(inside, plain)
    )
    assert message_seconds(1e6, shared.network[1], 1) == message_seconds(1e6, half.network[1], 1)


def test_a_relabelled_mesh_costs_the_same():
    """The same groups of ranks, whatever their axes are called and in whatever order they stand."""
    system = two_tiers(300e9, 50e9)
    one = Mesh((4, 8), ("data", "model"))
    other = Mesh((2, 2, 8), ("p", "q", "r"))
    for kind in KINDS:
        assert (
            collective_cost(kind, 1 << 24, levels(along_axes(one, ("data",)), system)).seconds
            == collective_cost(kind, 1 << 24, levels(along_axes(other, ("q", "p")), system)).seconds
        )
