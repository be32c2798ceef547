"""The writer's parts by themselves: durations, encoding, rank columns, network dims, systems."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flint.converters.chakra.astra_sim.comparison import as_astra_sim_links
from flint.converters.chakra.astra_sim.files import network_text, write_astra_sim_files
from flint.converters.chakra.comm_groups import GroupIds
from flint.converters.chakra.durations import whole_micros
from flint.converters.chakra.write.encode import put_varints, varint, varint_width
from flint.cost.collectives import collective_cost
from flint.cost.fitting import fit
from flint.cost.placement import place
from flint.cost.systems import load_system
from flint.execution.peers import Peer, combine
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import StridedGroups, along_axes, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from tests.converters.chakra.write.cases import chain
from tests.converters.chakra.write.naive_emission import binomial_tree
from tests.graph.unrolling.random_graphs import TYPE
from tests.support.roofline import node_seconds

times = st.lists(st.floats(0, 1e-4, allow_subnormal=False), min_size=1, max_size=50)


@given(times)
def test_rounding_carries_its_remainder(seconds):
    micros = whole_micros(np.array(seconds))
    assert abs(int(micros.sum()) - sum(seconds) * 1e6) <= 1
    assert (micros >= 0).all() and bool(micros.any()) == (max(seconds) > 0)


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 300), max_size=30))
def test_varints_in_bulk_equal_varints_one_by_one(values):
    column = np.array(values, np.int64)
    width = varint_width(column)
    out = np.zeros(int(width.sum()), np.uint8)
    put_varints(out, np.cumsum(width) - width, column, width)
    assert out.tobytes() == b"".join(varint(value) for value in values)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 10**12)), min_size=1))
def test_rows_are_distinguished_by_all_columns(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    code, first = combine(columns, len(rows))
    seen = list(dict.fromkeys(rows))
    assert code.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


@pytest.mark.parametrize("size", [2, 3, 5, 8, 13])
def test_a_broadcast_tree_reaches_everybody_once(size):
    groups = from_table(size + 1, np.random.default_rng(size).permutation(size + 1)[None, :size])
    members = groups.table()[0].tolist()
    ranks = np.array(members)
    children = {rank: [] for rank in members}
    for child in range(5):
        for rank, other in zip(members, Peer("child", groups, child).values(ranks), strict=True):
            if other >= 0:
                children[rank].append(int(other))
    tree = binomial_tree(size)
    assert children == {members[p]: [members[c] for c in tree[p]] for p in tree}
    parents = Peer("parent", groups).values(ranks)
    assert all(rank in children[int(p)] for rank, p in zip(members[1:], parents[1:], strict=True))
    assert parents[0] == -1


@pytest.mark.parametrize(
    ("shape", "npus_count"),
    [
        ((64, 8), (8, 64)),
        ((4, 1, 2), (2, 4)),
        ((2, 3, 4, 5, 6), (30, 4, 3, 2)),  # more than four: the inner ones merged
        ((1, 1), (1,)),
    ],
)
def test_network_dims_are_the_reversed_mesh(shape, npus_count):
    dims = network_dims(Mesh(shape))
    assert dims.npus_count == npus_count
    assert dims.mask(everybody(dims.world)) == tuple(n > 1 for n in npus_count)


def test_a_mask_is_for_whole_dims_in_any_order():
    mesh = Mesh((2, 3, 4), ("a", "b", "c"))
    dims = network_dims(mesh)
    assert dims.mask(along_axes(mesh, ("a", "c"))) == (True, False, True)
    assert dims.mask(along_axes(mesh, ("c", "a"))) == (True, False, True)
    assert dims.mask(along_axes(mesh, ("b", "c"))) == (True, True, False)
    assert dims.mask(StridedGroups(24, ((2, 1),))) is None
    assert dims.mask(StridedGroups(24, ((6, 2),))) is None


def test_group_ids_have_one_number_of_digits():
    mesh = Mesh((16, 4))
    halves = StridedGroups(64, ((2, 1),))
    dims = network_dims(mesh)
    ids = GroupIds(dims, [halves, StridedGroups(64, ((2, 2), (8, 4))), everybody(64)])
    ranks = np.arange(64)
    numbers = np.concatenate(
        [ids.numbers(g, ranks) for g in (halves, StridedGroups(64, ((2, 2), (8, 4))))]
    )
    assert {len(str(n)) for n in numbers.tolist()} == {2}
    assert len(np.unique(numbers)) == 32 + 4
    assert ids.members(halves, np.array([5])) == {str(int(numbers[5])): [4, 5]}


def test_configuration_has_one_entry_per_network_dim(tmp_path):
    dims = network_dims(Mesh((4, 16, 8)))
    system = load_system("dgx-h100")
    write_astra_sim_files(tmp_path, dims, system, {"1": [0, 3]})
    network = yaml.safe_load((tmp_path / "network.yml").read_text())
    assert network["npus_count"] == [8, 16, 4]
    # 78% of NVLink's 450e9 bytes/s within a node of 8, 90% of InfiniBand's 50e9 beyond, in GiB/s;
    # 3.4 and 14 us per message, which passes two links of a switch.
    assert network["bandwidth"] == [326.894, 41.9095, 41.9095]
    assert network["latency"] == [1700, 7000, 7000]
    content = json.loads((tmp_path / "system.json").read_text())
    lists = [value for key, value in content.items() if key.endswith("-implementation")]
    assert [len(value) for value in lists] == [3] * 4
    assert content["roofline-enabled"] == 0 and content["preferred-dataset-splits"] == 1
    assert json.loads((tmp_path / "comm_groups.json").read_text()) == {"1": [0, 3]}


def network_of(mesh: Mesh, name: str) -> list[tuple[float, float]]:
    """Bytes per second and seconds of each dim that the network file states."""
    content = json.loads(network_text(network_dims(mesh), load_system(name)))
    pairs = zip(content["bandwidth"], content["latency"], strict=True)
    return [(bandwidth * 2**30, latency * 1e-9) for bandwidth, latency in pairs]


def test_links_of_network_dims_by_hand():
    """A v5e row of 16: two directions of 90% of 50 GB/s, half a ring of 8 hops of 1 us in 15
    messages.  MI300X: 75% of 448 GB/s over 7 links.  Four of eight devices have as fast links.
    A node of 8 and 64 of them in one dim: a gather of S takes 7/8 S at 351 GB/s and 63/64 of S/8
    at 45 GB/s, and 7 messages of 3.4 us and 63 of 14 us, where the simulator has 511 of 2 hops.
    Uneven: 12 ranks take 6 devices of two nodes.
    """
    [row, column] = network_of(Mesh((16, 16)), "tpu-v5e-pod")
    assert row == column == pytest.approx((90e9, 8e-6 / 15), rel=1e-5)
    for mesh in (Mesh((8,)), Mesh((2, 4))):
        for link in network_of(mesh, "mi300x-8"):
            assert link == pytest.approx((48e9, 1e-6), rel=1e-5)
    [(bandwidth, latency)] = network_of(Mesh((512,)), "dgx-h100")
    assert 511 / 512 / bandwidth == pytest.approx(7 / 8 / 351e9 + 63 / 64 / 8 / 45e9, rel=1e-5)
    assert 511 * 2 * latency == pytest.approx(7 * 3.4e-6 + 63 * 14e-6, rel=1e-5)
    [(bandwidth, _)] = network_of(Mesh((12,)), "dgx-h100")
    assert 11 / 12 / bandwidth == pytest.approx(5 / 6 / 351e9 + 1 / 2 / 6 / 45e9, rel=1e-5)


@pytest.mark.parametrize("name", ["dgx-h100", "mi300x-8", "tpu-v5e-pod", "gb200-nvl72"])
@pytest.mark.parametrize("shape", [(8,), (64,), (8, 8), (4, 2, 8)])
def test_the_simulators_rings_take_as_long_as_the_embedded_engines(name, shape):
    """n - 1 messages of S/n one after another; at once where everybody has a link to everybody.

    So the embedded engine runs them, too, on such a tier ("direct").
    """
    mesh, size = Mesh(shape), 1 << 30
    dims = network_dims(mesh)
    system, _ = fit(as_astra_sim_links(load_system(name)), mesh.size)
    for n, stride, (bandwidth, latency) in zip(
        dims.npus_count, dims.strides, network_of(mesh, name), strict=True
    ):
        [profile] = place(StridedGroups(mesh.size, ((n, stride),)), system).profiles
        ours = collective_cost("all_gather", size, profile, "hierarchical").seconds
        topology = system.tier(n * stride).topology
        messages = 1 if topology == "FullyConnected" else n - 1
        hops = 2 if topology == "Switch" else 1
        theirs = messages * (hops * latency + size / n / bandwidth)
        assert theirs == pytest.approx(ours, rel=1e-4)


def test_the_roofline_is_the_slower_of_arithmetic_and_traffic():
    system = load_system("dgx-h100")
    # WORK: 4 f32 vector FLOPs and 32 bytes: 4 / 66.9e12 s < 32 / 3.35e12 s.
    expected = 32 / 3.35e12 + 0.9e-6
    assert node_seconds(chain(), system).tolist() == pytest.approx([expected, expected])


def test_units_work_side_by_side_each_at_its_peak_for_the_type():
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(TYPE))
    items = (
        WorkItem(Unit.MATMUL, "bf16", 2 * 1024**3, (1, 1024, 1024, 1024)),
        WorkItem(Unit.MATMUL, "f32", 1024**3),
        WorkItem(Unit.VECTOR, "f32", 1024**2),
        WorkItem(Unit.TRANSCENDENTAL, "f32", 1024**2),
    )
    builder.compute("dot+exp", Role.CONTRACTION, (value,), (TYPE,), Work(items, 2**20, 2**20))
    # H100: 989.4e12 bf16 and 494.7e12 tf32 tensor FLOP/s, 66.9e12 f32 FLOP/s, 4.18e12 functions/s;
    # 0.9 us launch.
    arithmetic = 2 * 1024**3 / 989.4e12 + 1024**3 / 494.7e12
    assert arithmetic > max(1024**2 / 66.9e12, 1024**2 / 4.18e12)
    assert arithmetic > 2**21 / 3.35e12
    found = node_seconds(builder.finish(()), load_system("dgx-h100"))
    assert found.tolist() == pytest.approx([arithmetic + 0.9e-6])
