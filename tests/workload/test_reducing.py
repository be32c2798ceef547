"""``--reduce-ranks``: a few ranks that stand for all, and what cannot stand for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import flint
from flint.cli import main
from flint.converters.chakra.astra_sim.files import network_text
from flint.cost.systems import load_system, system_names
from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.mesh.groups import along_axes, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from flint.mesh.permutation import permutation
from flint.workload.reducing import reduce_ranks, stands_for
from tests.simulation.astra_sim_model import AG, AR, RS, Model
from tests.simulation.test_both_engines import collective, exchanged
from tests.simulation.test_simulate import pipeline

RING = Path(__file__).parents[1] / "data/stablehlo/ring_attention_8x8.mlirbc"
MESH = Mesh((16, 4), ("data", "model"))
#: Two groups of eight along data for each place on model.
HALVES = np.arange(64).reshape(2, 8, 4).transpose(0, 2, 1).reshape(8, 8)
KINDS = ("all_reduce", "all_gather", "reduce_scatter")


def fsdp_and_tp(mesh: Mesh = MESH):
    """Every kind of ring along each axis, and a reduction over both."""
    items = [collective(kind, along_axes(mesh, (axis,))) for kind in KINDS for axis in mesh.axes]
    return exchanged(*items, collective("all_reduce", along_axes(mesh, mesh.axes)), mesh=mesh)


def permute(mesh: Mesh, pairs) -> Communication:
    size = (1 << 20,)
    peers = permutation(mesh.size, np.array(pairs))
    return Communication("collective_permute", None, None, peers, size, size, ("bf16",))


def test_the_longest_axis_that_can_be_shortened_is(tmp_path):
    """The reduction over both axes passes "model" first, so that only "data" may be shorter."""
    reduced = reduce_ranks(fsdp_and_tp(), 16)
    assert reduced.axes == {"data": (16, 4)} and reduced.workload.mesh.shape == (4, 4)
    assert reduced.kept.tolist() == list(range(16))
    assert reduced.stands_for.tolist() == [rank % 16 for rank in range(64)]
    assert "16 ranks stand for 64 (4 of 16 along data)" in reduced.meaning
    reduced.workload.verify()


def test_the_whole_buffers_are_kept():
    """A gather of 32 MiB over 16 ranks: a shard of 2 MiB, of 8 MiB over the 4 that are kept."""
    reduced = reduce_ranks(fsdp_and_tp(), 16)
    for before, after in zip(
        fsdp_and_tp().graph.tables.communications,
        reduced.workload.graph.tables.communications,
        strict=True,
    ):
        assert max(before.bytes_in, before.bytes_out) == max(after.bytes_in, after.bytes_out)
        assert after.groups.size in (4, 16)
        if after.kind == "all_gather":
            assert after.bytes_in * after.groups.size == after.bytes_out


@pytest.mark.parametrize("name", system_names())
@pytest.mark.parametrize(("whole", "few"), [((64, 8), (2, 8)), ((512,), (4,)), ((8, 8), (8, 2))])
def test_rings_take_as_long_as_over_all_ranks(name, whole, few):
    """In ASTRA-sim's model, up to the nanoseconds that it adds to each message."""
    system = load_system(name)
    settings = {
        "preferred-dataset-splits": 1, "active-chunks-per-dimension": 1, "endpoint-delay": 1,
        "collective-optimization": "localBWAware", "local-mem-bw": 10**8,
    }  # fmt: skip
    for size in (1 << 16, 1 << 28):
        times = []
        for mesh in (whole, few):
            dims, real = network_dims(Mesh(mesh)), network_dims(Mesh(whole))
            network = json.loads(network_text(dims, system, real))
            straight = [topology == "FullyConnected" for topology in network["topology"]]
            how = ["direct" if one else "ring" for one in straight]
            kinds = {f"{kind}-implementation": how for kind in _NAMES}
            model = Model(settings | kinds, network)
            times.append(
                [
                    model.collective(
                        kind, size // dims.npus_count[dim] if kind == AG else size, mask
                    )
                    for dim in range(len(dims.npus_count))
                    for mask in [[at == dim for at in range(len(dims.npus_count))]]
                    for kind in (AR, AG, RS)
                ]
            )
        rounds = 2 * 512 * 2  # nanoseconds: each message is cut to whole ones, and delayed by one
        assert times[1] == pytest.approx(times[0], rel=1e-3, abs=rounds)


_NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def test_the_summary_and_the_manifest_state_what_it_represents(tmp_path, capsys):
    fsdp_and_tp().save(tmp_path / "out", reduce_ranks=16)
    document = json.loads((tmp_path / "out/workload.json").read_text())
    found = document["et"]["reduced"]
    assert (found["ranks"], found["kept"], found["mesh"]) == (64, 16, [4, 4])
    assert found["axes"] == {"data": [16, 4]} and not document["partial"]
    assert document["mesh"]["shape"] == [16, 4]
    assert flint.load(tmp_path / "out").mesh.size == 64


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (lambda m: permute(m, [[i, (i + 4) % 64] for i in range(64)]), "its ranks send each other"),
        (lambda m: collective("all_to_all", along_axes(m, ("data",))), "all_to_all runs along it"),
        (
            lambda m: collective("all_reduce", from_table(64, HALVES)),
            "groups of all_reduce are parts of it",
        ),
    ],
)
def test_what_is_not_a_ring_over_a_whole_axis_keeps_it(item, why):
    workload = exchanged(item(MESH), collective("all_reduce", along_axes(MESH, ("model",))),
                         mesh=MESH)  # fmt: skip
    assert reduce_ranks(workload, 32).axes == {"model": (4, 2)}
    with pytest.raises(UsageError, match=rf"at least 32 of 64 ranks .*\(data: {why}"):
        reduce_ranks(workload, 16)


def test_the_command_line_states_what_it_represents_and_what_keeps_an_axis(tmp_path, capsys):
    """Ring attention: its ring along context stays, the gradients' reductions along data do not."""
    command = ["convert", str(RING), "--mesh", "8,8", "--axes", "data,context", "-o"]
    for most, status in (("16", 0), ("4", 2)):
        out = tmp_path / most
        with pytest.raises(SystemExit) as stopped:
            main([*command, str(out), "--reduce-ranks", most])
        said = capsys.readouterr()
        assert stopped.value.code == status and out.exists() == (status == 0)
        if status:
            assert "at least 16 of 64 ranks" in said.err and "(context: its ranks send" in said.err
        else:
            assert "reduced: 16 ranks stand for 64 (2 of 8 along data)" in said.out


def test_stages_of_a_pipeline_all_stay():
    with pytest.raises(UsageError, match="stage: its ranks run different programs"):
        reduce_ranks(pipeline(3), 2)


def test_every_rank_has_one_that_represents_it():
    mesh = Mesh((6, 4), ("a", "b"))
    found = stands_for(mesh, (3, 2)).reshape(6, 4)
    assert found[0].tolist() == [0, 1, 0, 1] and found[4].tolist() == [2, 3, 2, 3]
    assert np.bincount(found.reshape(-1)).tolist() == [4] * 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduce_ranks": 1}, "--reduce-ranks 1: at least 2"),
        ({"reduce_ranks": 8, "ranks": "0-3"}, "leave --ranks out"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        fsdp_and_tp().save(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
