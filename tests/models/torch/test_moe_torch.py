"""Mixtral with expert parallelism: published size, exchanges by hand, balanced routing."""

from __future__ import annotations

import collections
import functools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flint.converters.chakra import et_def_pb2  # noqa: E402
from flint.converters.chakra.check.checker import check  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from flint.graph.graph import Phase  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.moe import (  # noqa: E402
    MIXTRAL_8X7B,
    TINY,
    Mixtral,
    evenly_placed,
    regrouped,
    train_tiny,
    training,
)
from tests.converters.chakra.check.traces import records_of  # noqa: E402
from tests.support.children import HUNG  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-moe")

BF16, F32, I64 = 2, 4, 8


class OneRank:
    """A group of which a model asks its size only."""

    def size(self):
        return 1


def test_parameters_are_as_many_as_published():
    # mistralai/Mixtral-8x7B-v0.1: model.safetensors.index.json, total_size / 2 bytes.
    with torch.device("meta"):
        model = Mixtral(MIXTRAL_8X7B, OneRank())
    assert sum(parameter.numel() for parameter in model.parameters()) == 46_702_792_704


@functools.cache
def workload(mesh=(2, 4)):
    return train_tiny.at(mesh=mesh).capture()


def communications(kind, mesh=(2, 4)):
    return [n for n in workload(mesh).graph if n.op == kind]


def tokens_sent(mesh):
    return [n for n in communications("all_to_all", mesh) if "bf16" in n.communication.dtypes]


@pytest.mark.parametrize("mesh", quick([(2, 4), (1, 8), (4, 8)], (2, 4)))
def test_one_program_for_all_ranks(mesh):
    assert len(workload(mesh).programs) == 1


@pytest.mark.parametrize("mesh", quick([(2, 4), (1, 8), (4, 8)], (2, 4)))
def test_tokens_go_to_their_experts_and_back_in_either_pass(mesh):
    """Each of a rank's tokens is one row of ``width`` for each of its ``chosen`` experts.

    Balanced, a rank sends as many rows as it gets: so all four exchanges of a layer are equal.
    """
    found = tokens_sent(mesh)
    rows = TINY.sequences * TINY.sequence * TINY.chosen
    assert {n.communication.operand_bytes for n in found} == {(rows * TINY.width * BF16,)}
    assert {n.communication.result_bytes for n in found} == {(rows * TINY.width * BF16,)}
    phases = collections.Counter((n.source.layer, n.source.phase) for n in found)
    assert phases == {
        (f"layers.{layer}.moe", phase): 2
        for layer in range(TINY.layers)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    }


@pytest.mark.parametrize("mesh", quick([(2, 4), (1, 8)], (2, 4)))
def test_counts_go_ahead_of_the_tokens_once_per_layer(mesh):
    counts = [n for n in communications("all_to_all", mesh) if "i64" in n.communication.dtypes]
    assert [n.source.layer for n in counts] == [f"layers.{i}.moe" for i in range(TINY.layers)]
    assert {n.communication.operand_bytes for n in counts} == {(TINY.experts * I64,)}
    assert {n.source.phase for n in counts} == {Phase.FORWARD}


@pytest.mark.parametrize("mesh", quick([(2, 4), (4, 8)], (2, 4)))
def test_exchanges_are_among_the_ranks_that_share_the_experts(mesh):
    data, expert = mesh
    for node in communications("all_to_all", mesh):
        assert node.communication.groups.table().tolist() == [
            list(range(i * expert, (i + 1) * expert)) for i in range(data)
        ]


def expert_bytes(mesh, size):
    """Of a rank's experts of a layer, whole: gate, up and down."""
    return TINY.experts // mesh[1] * 3 * TINY.width * TINY.hidden * size


@pytest.mark.parametrize("mesh", quick([(2, 4), (4, 8)], (2, 4)))
def test_experts_are_gathered_over_dp_only(mesh):
    """Per layer once in either pass, in bfloat16, and their gradients reduced once in float32."""
    for kind, size, per_layer in (("all_gather", BF16, 2), ("reduce_scatter", F32, 1)):
        found = [n for n in communications(kind, mesh) if n.source.layer.endswith(".moe.experts")]
        assert len(found) == per_layer * TINY.layers
        for node in found:
            sent = node.communication
            whole = sent.result_bytes if kind == "all_gather" else sent.operand_bytes
            assert sum(whole) == expert_bytes(mesh, size)
            assert sent.groups.size == mesh[0]


def test_everything_else_is_split_over_all_ranks():
    """The block's attention, norms and router; embedding, norm and head with the whole model."""
    gathered = [
        sum(n.communication.result_bytes)
        for n in communications("all_gather")
        if n.communication.groups.size == 8
    ]
    width, heads = TINY.width, TINY.heads
    attention = 2 * width * heads.size * (heads.queries + heads.keys)
    block = attention + 2 * width + width * TINY.experts
    ends = 2 * TINY.vocabulary * width + width
    # The whole model's own parameters stay gathered between the passes, as FSDP's root does.
    assert sorted(gathered) == sorted([block * BF16] * 2 * TINY.layers + [ends * BF16])


@pytest.mark.thorough
def test_grouped_products_of_the_experts():
    """Three per layer, and in the backward pass two for each: all rows, whichever expert."""
    products = [n for n in workload().graph if n.op == "aten._grouped_mm.default"]
    phases = collections.Counter(n.source.phase for n in products)
    assert phases == {Phase.FORWARD: 3 * TINY.layers, Phase.BACKWARD: 6 * TINY.layers}
    rows = TINY.sequences * TINY.sequence * TINY.chosen
    flops = {i.flops for n in products for i in n.work.items if i.unit == Unit.MATMUL}
    assert flops == {2 * rows * TINY.width * TINY.hidden}


@pytest.mark.thorough
def test_the_routing_model_is_told_with_every_use():
    choices = TINY.sequences * TINY.sequence * TINY.chosen
    told = {text: count for text, count in workload().warnings.items() if "routing" in text}
    ((text, count),) = told.items()
    assert f"balanced routing: {choices} choices among {TINY.experts} experts" in text
    assert "moe.py" in text
    # What this rank sends and what arrives: as many numbers as there are experts, per layer.
    assert count == 2 * TINY.experts * TINY.layers


@pytest.mark.thorough
def test_loads_that_every_rank_shares_alike():
    """Each rank's first expert gets three times as much as its second: the same rows per rank."""
    uneven = training(TINY, (2, 4), routing=(3, 1) * 4).capture()
    assert len(uneven.programs) == 1
    assert any("loads 3:1:3:1:3:1:3:1 routing" in text for text in uneven.warnings)
    sent = [n.communication.operand_bytes for n in uneven.graph if n.op == "all_to_all"]
    assert sent == [n.communication.operand_bytes for n in communications("all_to_all")]


@functools.cache
def overloaded():
    """Rank 0 has the expert with nine sixteenths of the load, and one with a sixteenth."""
    return training(TINY, (1, 4), routing=(9, 1, 1, 1, 1, 1, 1, 1)).capture()


#: Bytes that every rank sends out, and that rank 0 and the others get: ten and two sixteenths of
#: all four ranks' rows.
SENT = TINY.sequences * TINY.sequence * TINY.chosen * TINY.width * BF16
LOADED, IDLE = 4 * SENT * 10 // 16, 4 * SENT * 2 // 16


@pytest.mark.thorough
def test_an_uneven_exchange_keeps_each_ranks_bytes_and_has_the_largest_on_all_ranks():
    loads = {}
    for program in overloaded().programs:
        found = [n.communication for n in program.graph if n.op == "ragged_all_to_all"]
        assert {item.largest_bytes for item in found} == {LOADED}
        for rank in program.ranks.array().tolist():
            loads[rank] = collections.Counter((item.bytes_in, item.bytes_out) for item in found)
    there_and_back = 2 * TINY.layers  # in either pass
    assert loads == {
        rank: {(SENT, got): there_and_back, (got, SENT): there_and_back}
        for rank, got in enumerate((LOADED, IDLE, IDLE, IDLE))
    }
    assert any("move different amounts" in text for text in overloaded().warnings)


def attributes_of(path):
    """The attributes of each node of a trace, as consumers read them."""
    _, *records = records_of(path)
    for record in records:
        found = et_def_pb2.Node.FromString(record).attr
        yield {item.name: getattr(item, item.WhichOneof("value")) for item in found}


@pytest.mark.thorough
def test_an_uneven_exchange_has_one_size_in_the_traces_and_each_ranks_own_beside_it(tmp_path):
    overloaded().save(tmp_path / "out", annotate=True)
    assert not check(tmp_path / "out").findings
    for rank, got in enumerate((LOADED, IDLE, IDLE, IDLE)):
        [path] = (tmp_path / "out" / "et").glob(f"*.{rank}.et")
        nodes = [node for node in attributes_of(path) if node.get("op") == "ragged_all_to_all"]
        assert {node["comm_size"] for node in nodes} == {LOADED}
        own = {(int(node["bytes_in"]), int(node["bytes_out"])) for node in nodes}
        assert own == {(SENT, got), (got, SENT)}


@pytest.mark.thorough
def test_uneven_exchanges_are_simulated_to_the_end():
    """Members of an exchange meet by its size; another size on one of them waits for ever."""
    assert len(overloaded().simulate("dgx-h100").programs) == 2


@pytest.mark.thorough
def test_no_order_of_runs_is_needed_when_a_rank_has_one_expert():
    assert not [n for n in workload((1, 8)).graph if n.op == "aten.cat.default" and moe(n)]
    assert [n for n in workload((2, 4)).graph if n.op == "aten.cat.default" and moe(n)]


def moe(node):
    return node.source.layer.endswith(".moe") and node.source.phase == Phase.FORWARD


def test_experts_that_do_not_divide_among_ranks_are_refused():
    with pytest.raises(FlintError, match="8 experts do not divide among 3 ranks"):
        train_tiny.at(mesh=(2, 3)).capture()


@pytest.mark.thorough
def test_more_layers_add_as_much_each():
    sizes = [len(training(replace(TINY, layers=n), (2, 4)).capture().graph) for n in (1, 2, 3)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moe")
    script = Path(__file__).with_name("moe_processes.py")
    run = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("gradient", ["tokens", "router", "gate", "up", "down"])
def test_two_processes_give_the_gradients_of_every_expert_on_every_token(gradient, processes):
    assert all(distances[gradient] < 1e-5 for distances, _ in processes)


@pytest.mark.thorough
def test_they_would_not_if_tokens_came_back_to_others(processes):
    assert all(distances["other rank's tokens"] > 0.1 for distances, _ in processes)


@pytest.mark.thorough
def test_their_splits_are_uneven_and_an_expert_may_get_nothing(processes):
    """So that the comparison is one of uneven exchanges: choices per expert, by rank."""
    first, second = (loads for _, loads in processes)
    assert first != second
    assert 0 in first + second
    assert len({sum(first[:3]), sum(first[3:]), sum(second[:3]), sum(second[3:])}) > 2


def test_regrouping_is_its_own_inverse():
    sizes = [[2, 0, 1], [3, 1, 2]]
    rows = torch.arange(9)
    turned = regrouped(rows, sizes)
    assert turned.tolist() == [0, 1, 3, 4, 5, 6, 2, 7, 8]
    assert regrouped(turned, [list(part) for part in zip(*sizes, strict=True)]).equal(rows)


@pytest.mark.parametrize(
    ("shape", "ranks", "dim"), [((32000, 4096), 64, 0), ((8, 4096), 64, 1), ((7, 9), 64, 0)]
)
def test_parameters_are_split_evenly_where_they_can(shape, ranks, dim):
    assert evenly_placed(ranks, torch.nn.Parameter(torch.empty(shape))).dim == dim
