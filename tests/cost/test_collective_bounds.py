"""Bounds that a collective's cost keeps whatever its group, network, algorithm and size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.cost.collectives import collective_cost
from flint.cost.fitting import fit
from flint.cost.placement import place, torus
from flint.cost.systems import load_system
from flint.mesh.groups import StridedGroups, along_axes, canonical, everybody, from_table
from flint.mesh.mesh import Mesh
from tests.cost.networks import H100, KINDS, levels, nodes_on_a_torus, two_tiers

groups_of = st.sampled_from(
    [
        everybody(64),
        StridedGroups(64, ((8, 1),)),
        StridedGroups(64, ((8, 8),)),
        StridedGroups(64, ((2, 32), (4, 2))),
        StridedGroups(64, ((16, 4),)),
    ]
)
systems_of = st.sampled_from(["dgx-h100", "mi300x-8", "tpu-v5e-pod", "tpu-v4-pod", "gb200-nvl72"])


@given(groups_of, systems_of, st.sampled_from(KINDS), st.integers(1, 1 << 34))
def test_never_below_the_busiest_links_bytes(groups, name, kind, size):
    """Whatever the algorithm, what must cross a cut of the group passes through its ports.

    A block of m of the N members takes in at least what it does not have: (N - m)/N of the buffer
    of a gather, scatter or reduction, all of a broadcast, m times that of an all-to-all, in which
    every rank sends a buffer.  It has the ports of m devices on the outermost tier.
    """
    profile = levels(groups, load_system(name))
    seconds = collective_cost(kind, size, profile).seconds
    outer = profile[-1]
    total = int(np.prod([level.parties for level in profile]))
    block = total // outer.parties
    links = 2 * outer.tier.rings if outer.tier.topology == "Ring" else 1
    ports = outer.tier.bandwidth * links * block
    needed = {"collective_broadcast": size, "all_to_all": size * block * (total - block) / total}
    assert seconds >= needed.get(kind, size * (total - block) / total) / ports * 0.999999


@given(
    groups_of, systems_of, st.sampled_from(KINDS), st.integers(1, 1 << 34), st.floats(1.0, 100.0),
    st.sampled_from([None, "ring", "tree", "flat ring"]),
)  # fmt: skip
def test_more_bandwidth_is_never_slower(groups, name, kind, size, factor, algorithm):
    system = load_system(name)
    faster = replace(
        system,
        network=tuple(replace(t, bandwidth=t.bandwidth * factor) for t in system.network),
    )
    before = collective_cost(kind, size, levels(groups, system), algorithm)
    after = collective_cost(kind, size, levels(groups, faster), algorithm)
    assert after.seconds <= before.seconds * 1.000001


@given(groups_of, systems_of, st.sampled_from(KINDS), st.integers(1, 1 << 30))
def test_more_bytes_are_never_faster(groups, name, kind, size):
    profile = levels(groups, load_system(name))
    assert (
        collective_cost(kind, size, profile).seconds
        <= collective_cost(kind, 2 * size, profile).seconds
    )


@st.composite
def placed_groups(draw):
    """A system, and a partition of the ranks that fill it, in groups of any shape."""
    name = draw(st.sampled_from(["dgx-h100", "dgx-h100-superpod", "gb200-nvl72", "dgx-b200"]))
    world = draw(st.sampled_from([8, 12, 24, 48, 72, 96, 144, 512]))
    system, _ = fit(load_system(name), world)
    size = draw(st.sampled_from([n for n in range(2, world + 1) if world % n == 0]))
    ranks = np.arange(world)
    how = draw(st.sampled_from(["consecutive", "strided", "shuffled"]))
    if how == "shuffled":
        ranks = np.random.default_rng(draw(st.integers(0, 99))).permutation(world)
    table = ranks.reshape(size, -1).T if how == "strided" else ranks.reshape(-1, size)
    return system, np.sort(table, axis=1)


@given(placed_groups(), st.sampled_from(KINDS), st.integers(1 << 10, 1 << 34))
def test_groups_of_any_shape_are_never_below_what_a_nodes_ports_must_take_in(case, kind, size):
    """Groups that lie unevenly too: 8 members in one node and 4 in another, say.

    Into every block of a tier, through the ports of its devices, come the parts that its members
    do not have: with i of N members inside, (N - i)/N of a buffer that is gathered, scattered or
    reduced, i times that of an all-to-all, and all of a broadcast from elsewhere.
    """
    system, table = case
    placement = place(from_table(int(table.max()) + 1, table), system)
    seconds = max(
        collective_cost(kind, size, placement.profiles[n]).seconds
        for n in np.unique(placement.number).tolist()
    )
    inner = 1
    for tier in system.network:
        for block in range(0, table.size, inner):
            here = (table >= block) & (table < block + inner)
            inside, total = here.sum(axis=1), table.shape[1]
            crosses = (inside > 0) & (inside < total)
            into = size * (total - inside) / total
            if kind == "all_to_all":
                into = into * inside
            elif kind == "collective_broadcast":
                into = np.where(here[:, 0], 0, size)
            assert seconds >= into[crosses].sum() / (inner * tier.rate) * 0.999999
        inner = tier.size or inner


@st.composite
def groups_on_a_torus(draw):
    name = draw(st.sampled_from(["tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod", "nodes"]))
    world = draw(st.sampled_from([6, 8, 12, 16, 48, 64, 96, 128, 192, 256][name == "nodes" :]))
    size = draw(st.sampled_from([n for n in range(2, world + 1) if world % n == 0]))
    stride = draw(
        st.sampled_from([s for s in range(1, world // size + 1) if world % (s * size) == 0])
    )
    system = nodes_on_a_torus(2) if name == "nodes" else load_system(name)
    return system, StridedGroups(world, canonical([(size, stride)]))


@given(groups_on_a_torus(), st.sampled_from(KINDS), st.integers(1 << 20, 1 << 34))
def test_groups_on_a_torus_are_never_below_what_passes_its_cuts(case, kind, size):
    """Also groups whose members do not lie along the torus' dims.

    Into each slab of planes come the parts that its members do not have (see above), over its two
    faces, or one where it lies at the end of a dim that does not close.
    """
    system, groups = case
    at = [tier.topology for tier in system.network].index("Ring")
    tier, inner = system.network[at], system.network[at - 1].size if at else 1
    shape = torus(tier, groups.world, inner)
    table = groups.table()
    placement = place(groups, system)
    seconds = max(
        collective_cost(kind, size, placement.profiles[n]).seconds
        for n in np.unique(placement.number).tolist()
    )
    places = np.stack(np.unravel_index(table // inner, shape))
    total = table.shape[1]
    for dim, side in enumerate(shape):
        closed = side > 2 and side % tier.closed == 0
        for low in range(side):
            for high in range(low + 1, side + (low > 0)):
                faces = 2 if closed else (low > 0) + (high < side)
                here = (places[dim] >= low) & (places[dim] < high)
                inside = here.sum(axis=1)
                into = size * (total - inside) / total
                if kind == "all_to_all":
                    into = into * inside
                elif kind == "collective_broadcast":
                    into = np.where(here[:, 0], 0, size)
                passing = into[(inside > 0) & (inside < total)].sum()
                links = faces * (groups.world // side)
                assert not passing or seconds >= passing / (links * tier.rate) * 0.999999


@given(
    st.integers(1, 3), st.integers(1, 3), st.sampled_from(KINDS), st.integers(1, 1 << 34),
    st.floats(1.0, 8.0),
)  # fmt: skip
def test_all_groups_together_never_pass_more_than_an_uplink_carries(a, b, kind, size, factor):
    """8 nodes of 4 in 2^a x 2^b parts: what all groups together must bring into one node takes at
    least that long on the node's uplink, of 4 devices' bandwidth over the oversubscription."""
    mesh = Mesh((2**a, 2**b, 32 >> a >> b), ("x", "y", "z")) if a + b <= 5 else Mesh((32,), ("x",))
    near, far = two_tiers(300e9, 50e9).network
    system = replace(H100, network=(near, replace(far, oversubscription=factor)))
    for axes in ((mesh.axes[0],), mesh.axes[:2]):
        groups = along_axes(mesh, axes)
        seconds = collective_cost(kind, size, levels(groups, system)).seconds
        into = 0.0
        for members in groups.table():
            # The last node: a broadcast's source, the lowest rank, lies elsewhere.
            inside, total = int((members >= 28).sum()), len(members)
            outside = (total - inside) / total
            if inside and outside:
                needed = {"collective_broadcast": size, "all_to_all": size * inside * outside}
                into += needed.get(kind, size * outside)
        assert seconds >= into / (4 * 50e9 / factor) * 0.999999
