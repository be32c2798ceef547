"""``--engine both``: the embedded engine and the stand-in on the same links, and differences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from flint.cli import main
from flint.converters.chakra.astra_sim import files
from flint.converters.chakra.astra_sim.comparison import Difference, as_astra_sim_links
from flint.converters.chakra.astra_sim.reasons import reason
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.mesh.groups import StridedGroups, along_axes
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from flint.mesh.permutation import permutation
from flint.workload.workload import Workload
from tests.converters.chakra.astra_sim.test_configuration import OLD
from tests.simulation.test_simulate import overlapped, product, workload_of

MESH = Mesh((4, 2), ("data", "model"))
TYPE = tensor_type((4096, 4096), "bf16")


def exchanged(*items: Communication, mesh: Mesh = MESH) -> Workload:
    """A product, the communications one after another, a product."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = product(builder, builder.input(tables.type(TYPE)))
    for item in items:
        (value,) = builder.communication(item, (value,), (TYPE,))
    last = product(builder, value)
    return workload_of(with_tables(builder.finish((last,)), tables.finish()), mesh=mesh)


def collective(kind: str, groups: StridedGroups, size: int = TYPE.bytes) -> Communication:
    operand = size // groups.size if kind == "all_gather" else size
    result = size // groups.size if kind == "reduce_scatter" else size
    return Communication(kind, "add", groups, None, (operand,), (result,), ("bf16",))


def both(capsys, binary, folder, *options):
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(folder), "--engine", "both", "--astra-sim", str(binary), *options])
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


def test_every_collective_and_the_step_agree(tmp_path, binary, capsys):
    items = [
        collective(kind, along_axes(MESH, axes))
        for kind in ("all_reduce", "all_gather", "reduce_scatter")
        for axes in (("data",), ("model",))
    ]
    exchanged(*items).save(tmp_path / "out")
    status, out, _ = both(capsys, binary, tmp_path / "out", "--json")
    document = json.loads(out)
    assert status == 0 and document["agrees"] and document["tolerance"] == 0.02
    assert abs(document["step"]["relative"]) < 0.005
    assert len(document["rows"]) == 6 and all(row["within"] for row in document["rows"])
    assert max(abs(row["relative"]) for row in document["rows"]) < 0.002
    status, text, _ = both(capsys, binary, tmp_path / "out")
    assert status == 0 and "all_gather over data" in text and "agree within 2%" in text


def test_the_configuration_of_before_does_not_agree(tmp_path, binary, capsys, monkeypatch):
    """An all-reduce of 16 KiB over 4 ranks of a node, 6 messages of 3.4 us, took 4 times that."""
    monkeypatch.setattr(files, "_COLLECTIVES", files._COLLECTIVES | OLD)
    exchanged(collective("all_reduce", along_axes(MESH, ("data",)), 1 << 14)).save(tmp_path / "out")
    status, out, _ = both(capsys, binary, tmp_path / "out", "--json")
    document = json.loads(out)
    [row] = document["rows"]
    assert status == 1 and not document["agrees"]
    assert row["embedded"] == pytest.approx(6 * 3.4e-6, rel=0.01)
    assert row["astra_sim"] == pytest.approx(4 * 6 * 3.4e-6, rel=0.02) and row["reason"] == ""
    status, text, _ = both(capsys, binary, tmp_path / "out")
    assert status == 1 and "above 2% without a reason: step, all_reduce over data" in text


def test_small_all_to_alls_are_named(tmp_path, binary, capsys):
    """7 messages with 3.4 us each follow one another; the embedded engine sends them at once."""
    mesh = Mesh((8,), ("expert",))
    item = collective("all_to_all", along_axes(mesh, ("expert",)), 1 << 14)
    exchanged(item, mesh=mesh).save(tmp_path / "out")
    status, out, _ = both(capsys, binary, tmp_path / "out", "--json")
    [row] = json.loads(out)["rows"]
    assert status == 0 and not row["within"]
    assert row["astra_sim"] == pytest.approx(7 * (3.4e-6 + 2048 / 351e9), rel=0.01)
    assert row["reason"].startswith("the messages of an all-to-all follow one another")


def test_large_all_to_alls_agree(tmp_path, binary, capsys):
    """4 GiB over 8 ranks: 7/8 of it leaves at 351 GB/s, 10.7 ms; six latencies more are 20 us."""
    mesh = Mesh((8,), ("expert",))
    item = collective("all_to_all", along_axes(mesh, ("expert",)), 1 << 32)
    exchanged(item, mesh=mesh).save(tmp_path / "out")
    _, out, _ = both(capsys, binary, tmp_path / "out", "--json")
    [row] = json.loads(out)["rows"]
    assert row["within"] and row["embedded"] == pytest.approx(7 / 8 * 2**32 / 351e9, rel=0.01)


def test_a_permute_over_two_dims_is_named(tmp_path, binary, capsys):
    """Mesh (2, 8) has two nodes: all 16 ranks in a ring cross both dims twice."""
    mesh = Mesh((2, 8), ("data", "model"))
    ring = permutation(16, np.array([[i, (i + 1) % 16] for i in range(16)]))
    size = (TYPE.bytes,)
    item = Communication("collective_permute", None, None, ring, size, size, ("bf16",))
    exchanged(item, mesh=mesh).save(tmp_path / "out")
    status, out, _ = both(capsys, binary, tmp_path / "out", "--json")
    [row] = json.loads(out)["rows"]
    assert status == 0 and row["relative"] < -0.8
    assert row["reason"] == "a message across several network dims pays only for the first of them"


def test_a_reason_holds_in_its_direction_only():
    """A listed group goes by way of its neighbours, which is never faster."""
    mesh = Mesh((8,), ("expert",))
    item = collective("all_to_all", along_axes(mesh, ("expert",)))
    links = as_astra_sim_links(load_system("dgx-h100"))
    assert reason(item, network_dims(mesh), links, aware=False, slower=True)
    assert not reason(item, network_dims(mesh), links, aware=False, slower=False)


@pytest.mark.parametrize(("axis", "named"), [(16, True), (8, False)])
def test_messages_on_an_axis_longer_than_a_node_pay_for_its_mean_link(axis, named):
    """Two nodes of 8 H100 in one dim: messages inside are slower there, between them faster."""
    mesh = Mesh((axis,), ("x",))
    peers = permutation(axis, np.array([[i, i ^ 1] for i in range(axis)]))
    item = Communication("collective_permute", None, None, peers, (1 << 20,), (1 << 20,), ("ui8",))
    links = as_astra_sim_links(load_system("dgx-h100"))
    for slower in (True, False):
        found = reason(item, network_dims(mesh), links, aware=False, slower=slower)
        assert found.startswith("a network dim has one kind of link") is named


def test_traces_that_do_not_fit_are_written_for_it(tmp_path, binary, capsys):
    exchanged(collective("all_gather", along_axes(MESH, ("data",)))).save(tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    status, out, _ = both(
        capsys, binary, tmp_path / "out", "--json", "--system", "gb200-nvl72", "--pass",
        "scale:factor=2",
    )  # fmt: skip
    document = json.loads(out)
    assert status == 0 and document["system"] == "gb200-nvl72"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("options", [("--timeline", "x.json"), ("--algorithm", "ring")])
def test_options_of_one_engine_are_refused(tmp_path, binary, capsys, options):
    overlapped(MESH, "data").save(tmp_path / "out")
    status, _, error = both(capsys, binary, tmp_path / "out", *options)
    assert status == 2 and "is for --engine embedded, not for both" in error


def test_the_tolerance_is_two_percent_of_the_longer():
    for near, far in ((0.981, 1.0), (1.0, 0.981)):
        assert Difference("step", 1, 0, near, far).within
    assert not Difference("step", 1, 0, 0.979, 1.0).within
