"""Mixtures whose sequences and heads are split: exchanges and products by hand, gradients by
processes."""

from __future__ import annotations

import collections
import functools
import json
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from flint.errors import FlintError  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.moe import TINY, training  # noqa: E402
from flint.models.torch.moe_sizes import tiny  # noqa: E402
from tests.models.torch.moe_tensor_processes import NAMES  # noqa: E402
from tests.support.children import HUNG  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-moe")

BF16, F32 = 2, 4
MODEL = TINY.model
WIDTH, LAYERS, EXPERTS = MODEL.width, MODEL.layers, MODEL.experts
#: Bytes of a rank's residual stream, of half of its sequence.
HALF = TINY.sequence // 2 * WIDTH * BF16


@functools.cache
def graphs(mesh, axes):
    """One for each program: ranks of "cp" compute other blocks of the scores."""
    workload = training(TINY, mesh, axes).capture()
    return [program.graph for program in workload.programs]


def exchanged(graph, ranks):
    """Kind and bytes that a rank gives, and how often, of exchanges among so many ranks."""
    found = collections.Counter()
    for node in graph:
        sent = node.communication
        if sent is not None and sent.groups.size == ranks:
            found[node.op, sum(sent.operand_bytes)] += 1
    return found


def products(graph):
    items = [item for node in graph for item in node.work.items]
    return sum(item.flops for item in items if item.unit == Unit.MATMUL)


@pytest.mark.thorough
def test_exchanges_of_tensor_parallelism():
    """Behind attention and in front of it a sum and a gather of the sequence in either pass, as at
    both ends of the model; the loss: its maximum, its sum and the target's score, in f32.  Norms
    and routers are whole on each rank: their gradients are sums over the ranks."""
    [graph] = graphs((4, 1, 2), ("dp", "ep", "tp"))
    found = exchanged(graph, 2)
    # Counts of rows for each expert, ahead of the tokens.
    assert found.pop(("all_to_all", EXPERTS.count * 8)) == LAYERS
    assert found == {
        ("all_gather", HALF): 2 * LAYERS + 2,
        ("reduce_scatter", 2 * HALF): 2 * LAYERS + 2,
        ("all_reduce", TINY.sequence * F32): 3 + 2 * LAYERS + 1,  # or norms: as many bytes
        ("all_reduce", EXPERTS.count * WIDTH * BF16): LAYERS,
        ("all_to_all", HALF * EXPERTS.chosen): 4 * LAYERS,
    }
    assert TINY.sequence * F32 == WIDTH * BF16


@pytest.mark.thorough
def test_experts_are_spread_over_the_ranks_of_both_axes():
    """A quarter of them on each of 2 x 2, and FSDP splits these over the ranks of "dp"."""
    [graph] = graphs((2, 2, 2), ("dp", "ep", "tp"))
    own = EXPERTS.count // 4 * 3 * WIDTH * EXPERTS.hidden
    found = [n for n in graph if n.op == "all_gather" and n.source.layer.endswith("experts")]
    assert [(sum(n.communication.result_bytes), n.communication.groups.size) for n in found] == [
        (own * BF16, 2)
    ] * 2 * LAYERS
    assert exchanged(graph, 4)["all_to_all", HALF * EXPERTS.chosen] == 4 * LAYERS


@pytest.mark.thorough
def test_exchanges_of_context_parallelism():
    """Keys and values of all positions, once in either pass, and their gradients back."""
    for graph in graphs((1, 2, 2), ("dp", "cp", "ep")):
        found = exchanged(graph, 2)
        both = TINY.sequence // 2 * 2 * MODEL.heads.keys * MODEL.heads.size * BF16
        assert found["all_gather", both] == 2 * LAYERS
        assert found["all_to_all", HALF * EXPERTS.chosen] == 4 * LAYERS
        kinds = collections.Counter(kind for kind, _ in found.elements())
        assert kinds["ragged_all_to_all"] == 2 * LAYERS


@pytest.mark.thorough
@pytest.mark.parametrize("axes", [("dp", "ep", "tp"), ("dp", "cp", "ep")])
def test_two_ranks_of_a_sequence_compute_half_each(axes):
    [whole] = graphs((2, 2), ("dp", "ep"))
    mesh = (2, 2, 2)
    assert {2 * products(graph) for graph in graphs(mesh, axes)} == {products(whole)}


@pytest.mark.parametrize(("name", "mesh", "axes", "words"), [
    ("mixtral-8x7b", (2, 2, 2), ("ep", "dp", "tp"), "in this order"),
    ("mixtral-8x7b", (1, 4, 4), ("dp", "ep", "tp"), "16 ranks"),
    ("deepseek-v2", (1, 2, 2), ("dp", "ep", "tp"), "latents and sinks"),
    ("gpt-oss-20b", (1, 2, 2), ("dp", "cp", "ep"), "windows, chunks and sinks"),
])  # fmt: skip
def test_what_is_not_split_is_refused(name, mesh, axes, words):
    with pytest.raises((FlintError, ValueError), match=words):
        training(replace(tiny(name), sequence=32), mesh, axes).capture()


@pytest.mark.thorough
def test_two_processes_have_the_gradients_of_one(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.torch.moe_tensor_processes", str(tmp_path)],
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "result.json").read_text())
    assert found.keys() == {*NAMES} and max(found.values()) < 1e-4
