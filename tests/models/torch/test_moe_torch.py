"""Mixtral with expert parallelism: published size, exchanges by hand, balanced routing.

Longer than 300 lines because all its tests look at the same two captures, which are made once.
"""

from __future__ import annotations

import collections
import functools
import json
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from flint.converters.chakra import et_def_pb2  # noqa: E402
from flint.converters.chakra.check.checker import check  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from flint.graph.graph import Phase  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.moe import TINY, train_tiny, train_tiny_pipeline, training  # noqa: E402
from flint.models.torch.moe_dispatch import regrouped  # noqa: E402
from flint.models.torch.moe_model import Model  # noqa: E402
from flint.models.torch.moe_parallel import evenly_placed  # noqa: E402
from flint.models.torch.moe_sizes import SIZES  # noqa: E402
from tests.converters.chakra.check.traces import records_of  # noqa: E402
from tests.models.published_mixtures import PUBLISHED  # noqa: E402
from tests.models.torch.moe_processes import NAMES, WAYS  # noqa: E402
from tests.support.children import HUNG  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-moe")

BF16, F32, I64 = 2, 4, 8
MODEL, EXPERTS = TINY.model, TINY.model.experts


class OneRank:
    """A group of which a model asks its size only."""

    def size(self):
        return 1


@pytest.mark.parametrize("name", SIZES)
def test_parameters_are_as_many_as_published(name):
    """DeepSeek-V3's release counts the correction of the router's choice, which is a buffer."""
    with torch.device("meta"):
        model = Model(SIZES[name], OneRank())
    found = dict(model.named_parameters())
    found |= {key: item for key, item in model.named_buffers() if key.endswith("correction")}
    by_hand, published = PUBLISHED[name]
    assert sum(item.numel() for item in found.values()) == by_hand == published


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
    rows = TINY.sequences * TINY.sequence * EXPERTS.chosen
    assert {n.communication.operand_bytes for n in found} == {(rows * MODEL.width * BF16,)}
    assert {n.communication.result_bytes for n in found} == {(rows * MODEL.width * BF16,)}
    phases = collections.Counter((n.source.layer, n.source.phase) for n in found)
    assert phases == {
        (f"layers.{layer}.moe", phase): 2
        for layer in range(MODEL.layers)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    }


@pytest.mark.thorough
def test_a_token_goes_once_to_each_rank_that_has_one_of_its_experts():
    """In turn: a token's two experts, 2i and 2i + 1 modulo 8, are those of one of four ranks."""
    sent = training(replace(TINY, dispatch="once", forced=True), (2, 4)).capture().graph
    found = [n.communication for n in sent if n.op == "all_to_all"]
    tokens = TINY.sequences * TINY.sequence
    rows = [item.operand_bytes for item in found if "bf16" in item.dtypes]
    assert rows == [(tokens * MODEL.width * BF16,)] * 4 * MODEL.layers
    beside = [item.operand_bytes for item in found if "f32" in item.dtypes]
    assert beside == [(tokens * 2 * EXPERTS.chosen * F32,)] * 2 * MODEL.layers


@pytest.mark.parametrize("mesh", quick([(2, 4), (1, 8)], (2, 4)))
def test_counts_go_ahead_of_the_tokens_once_per_layer(mesh):
    counts = [n for n in communications("all_to_all", mesh) if "i64" in n.communication.dtypes]
    assert [n.source.layer for n in counts] == [f"layers.{i}.moe" for i in range(MODEL.layers)]
    assert {n.communication.operand_bytes for n in counts} == {(EXPERTS.count * I64,)}
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
    return EXPERTS.count // mesh[1] * 3 * MODEL.width * EXPERTS.hidden * size


@pytest.mark.parametrize("mesh", quick([(2, 4), (4, 8)], (2, 4)))
def test_experts_are_gathered_over_dp_only(mesh):
    """Per layer once in either pass, in bfloat16, and their gradients reduced once in float32."""
    for kind, size, per_layer in (("all_gather", BF16, 2), ("reduce_scatter", F32, 1)):
        found = [n for n in communications(kind, mesh) if n.source.layer.endswith(".moe.experts")]
        assert len(found) == per_layer * MODEL.layers
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
    width, heads = MODEL.width, MODEL.heads
    attention = 2 * width * heads.size * (heads.queries + heads.keys)
    block = attention + 2 * width + width * EXPERTS.count
    ends = 2 * MODEL.vocabulary * width + width
    # The whole model's own parameters stay gathered between the passes, as FSDP's root does.
    assert sorted(gathered) == sorted([block * BF16] * 2 * MODEL.layers + [ends * BF16])


@pytest.mark.thorough
def test_grouped_products_of_the_experts():
    """Three per layer, and in the backward pass two for each: all rows, whichever expert."""
    products = [n for n in workload().graph if n.op == "aten._grouped_mm.default"]
    phases = collections.Counter(n.source.phase for n in products)
    assert phases == {Phase.FORWARD: 3 * MODEL.layers, Phase.BACKWARD: 6 * MODEL.layers}
    rows = TINY.sequences * TINY.sequence * EXPERTS.chosen
    flops = {i.flops for n in products for i in n.work.items if i.unit == Unit.MATMUL}
    assert flops == {2 * rows * MODEL.width * EXPERTS.hidden}


@pytest.mark.thorough
def test_the_routing_model_is_reported_with_every_use():
    choices = TINY.sequences * TINY.sequence * EXPERTS.chosen
    told = {text: count for text, count in workload().warnings.items() if "routing" in text}
    ((text, count),) = told.items()
    assert f"balanced routing: {choices} choices among {EXPERTS.count} experts" in text
    assert "moe_dispatch.py" in text
    # What this rank sends and what arrives: as many numbers as there are experts, per layer.
    assert count == 2 * EXPERTS.count * MODEL.layers


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
SENT = TINY.sequences * TINY.sequence * EXPERTS.chosen * MODEL.width * BF16
LOADED, IDLE = 4 * SENT * 10 // 16, 4 * SENT * 2 // 16


@pytest.mark.thorough
def test_an_uneven_exchange_keeps_each_ranks_bytes_and_has_the_largest_on_all_ranks():
    loads = {}
    for program in overloaded().programs:
        found = [n.communication for n in program.graph if n.op == "ragged_all_to_all"]
        assert {item.largest_bytes for item in found} == {LOADED}
        for rank in program.ranks.array().tolist():
            loads[rank] = collections.Counter((item.bytes_in, item.bytes_out) for item in found)
    there_and_back = 2 * MODEL.layers  # in either pass
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
def test_an_uneven_exchange_has_one_size_in_the_traces_and_each_ranks_own_as_well(tmp_path):
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
    """Members of an exchange meet by its size; another size on one of them waits forever."""
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
    sizes = [
        len(training(replace(TINY, model=replace(MODEL, layers=n)), (2, 4)).capture().graph)
        for n in (1, 2, 3)
    ]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


@pytest.mark.thorough
def test_experts_one_after_another_compute_as_much_as_grouped_products():
    found = training(replace(TINY, products="loop"), (2, 4)).capture()

    def flops(workload):
        nodes = [n for n in workload.graph if n.source.layer.endswith(".experts")]
        return sum(i.flops for n in nodes for i in n.work.items if i.unit == Unit.MATMUL)

    assert flops(found) == flops(workload())


@pytest.mark.thorough
def test_stages_of_a_pipeline_have_their_own_exchanges():
    found = train_tiny_pipeline.capture()
    found.verify()
    for program in found.programs:
        ranks = program.ranks.array().tolist()
        for node in program.graph:
            if node.op == "all_to_all":
                rows = node.communication.groups.table().tolist()
                assert all(rank // 4 == row[0] // 4 for row in rows for rank in row)
                assert any(set(row) & set(ranks) for row in rows)
    exchanges = [
        sum(n.op == "all_to_all" and n.operand_types[0].dtype == "bf16" for n in program.graph)
        for program in found.programs
    ]
    # Two layers a stage, four microbatches, there and back in either pass.
    assert exchanges == [2 * 4 * 4] * 2


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moe")
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.torch.moe_processes", str(folder)],
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_compute_what_the_papers_formulas_say(name, way, processes):
    """The loss of each, and the slope of their sum along one direction in all parameters."""
    found = processes[f"{name} {way}"]
    assert found["loss"] < 1e-5
    assert found["slope"] < 1e-3


@pytest.mark.thorough
def test_their_loads_are_uneven(processes):
    """So that what is compared is uneven exchanges."""
    first, second = processes["loads"]
    assert first != second
    assert len(set(first)) > 1 < len(set(second))


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
