"""Published kinds of mixtures in PyTorch, tiny: exchanges, products, capacities."""

from __future__ import annotations

import collections
import functools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from flint.graph.graph import Phase  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.moe import TINY, training  # noqa: E402
from flint.models.torch.moe_model import kinds  # noqa: E402
from flint.models.torch.moe_sizes import tiny  # noqa: E402
from tests.models.torch.test_moe_torch import BF16, EXPERTS, MODEL  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-moe")


@functools.cache
def of_kind(name, **settings):
    """A tiny model of a published kind, checkpointed, on 1 x 2 ranks."""
    config = replace(tiny(name), checkpoint=True, **settings)
    return config, training(config, (1, 2)).capture()


def sparse_layers(config):
    return [
        f"layers.{number}.moe" for number, kind in enumerate(kinds(config.model)) if kind.sparse
    ]


KINDS = ["deepseek-v3", "deepseek-v2-lite", "qwen3-30b", "gpt-oss-20b", "llama4-maverick"]
every_kind = pytest.mark.parametrize("name", quick(KINDS, "deepseek-v2-lite"))


@pytest.mark.thorough
@every_kind
def test_a_checkpointed_mixture_exchanges_its_tokens_anew_before_the_backward_pass(name):
    config, found = of_kind(name)
    exchanges = [
        n for n in found.graph if n.op == "all_to_all" and n.operand_types[0].dtype == "bf16"
    ]
    rows = config.sequence * config.model.experts.chosen
    assert {n.communication.operand_bytes for n in exchanges} == {
        (rows * config.model.width * BF16,)
    }
    phases = collections.Counter((n.source.layer, n.source.phase) for n in exchanges)
    assert phases == {
        (layer, phase): 2
        for layer in sparse_layers(config)
        for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
    }


def attention_flops(config, kind):
    """Per sequence and pair of positions: scores and weighted values of every head."""
    model, length = config.model, config.sequence
    latent = model.form.latent if model.form is not None else None
    size = model.heads.size + (latent.rotated if latent else 0)
    values = latent.values if latent else model.heads.size
    return 2 * model.heads.queries * length * length * (size + values)


@every_kind
def test_products_of_the_forward_pass(name):
    """By the formulas of the architectures: every product of a token, attention's apart."""
    config, found = of_kind(name)
    model, experts, tokens = config.model, config.model.experts, config.sequence
    by_layer = collections.Counter()
    for node in found.graph:
        if node.source.phase == Phase.FORWARD and "attention" not in node.op:
            for item in node.work.items:
                if item.unit == Unit.MATMUL:
                    by_layer[node.source.layer.split(".")[0:2][-1]] += item.flops
    heads, latent = model.heads, model.form.latent if model.form else None
    if latent:
        size = heads.queries * (heads.size + latent.rotated)
        attention = model.width * latent.queries + (latent.queries or model.width) * size
        attention += model.width * (latent.keys + latent.rotated)
        attention += latent.keys * heads.queries * (heads.size + latent.values)
        attention += heads.queries * latent.values * model.width
    else:
        attention = 2 * model.width * heads.size * (heads.queries + heads.keys)
    for number, kind in enumerate(kinds(model)):
        elements = attention
        if kind.sparse:
            elements += experts.chosen * 3 * model.width * experts.hidden
            elements += model.width * experts.count + 3 * model.width * experts.shared
        else:
            elements += 3 * model.width * model.hidden
        assert by_layer[str(number)] == 2 * tokens * elements


@pytest.mark.thorough
@pytest.mark.parametrize("dispatch", ["dropped"])
def test_a_capacity_makes_all_exchanges_equal_and_reads_no_counts(dispatch):
    """Each rank has capacity places for every expert: 1.25 times an even share of its choices."""
    config = replace(TINY, dispatch=dispatch)
    found = training(config, (2, 4), routing=(9, 1, 1, 1, 1, 1, 1, 1)).capture()
    assert len(found.programs) == 1
    assert not [text for text in found.warnings if "routing" in text]
    places = -(-5 * TINY.sequence * EXPERTS.chosen // (4 * EXPERTS.count))
    exchanges = [n.communication for n in found.graph if n.op == "all_to_all"]
    assert len(exchanges) == 4 * MODEL.layers
    size = EXPERTS.count * places * MODEL.width * BF16
    assert {(*item.operand_bytes, *item.result_bytes) for item in exchanges} == {(size, size)}


@pytest.mark.thorough
def test_gradients_are_reduced_in_the_type_that_a_config_says():
    def reduced(dtype):
        config = replace(TINY, reduce_dtype=dtype)
        found = training(config, (2, 1)).capture().graph
        return sum(n.communication.operand_bytes[0] for n in found if n.op == "reduce_scatter")

    assert reduced(torch.float32) == 2 * reduced(torch.bfloat16) > 0


@pytest.mark.thorough
def test_a_fused_optimizer_is_one_kernel():
    def kernels(fused):
        found = training(replace(TINY, fused=fused), (1, 1)).capture().graph
        return {n.op for n in found if n.source.phase == Phase.OPTIMIZER}

    assert "aten._fused_adamw_.default" in kernels(True)
    assert "aten._foreach_lerp_.Scalar" in kernels(False)


@pytest.mark.thorough
def test_selective_checkpointing_of_a_mixture_whose_experts_are_split_by_themselves():
    """Of q, k, v, o and the router, the second and fourth run again; experts and exchanges, too
    (of counts, of rows there, and back), attention not.  FSDP of the experts marks its steps for
    profilers more often in the backward pass, where PyTorch counts ops."""
    config = replace(TINY, checkpoint="selective")
    graph = training(config, (1, 8)).capture().graph
    ops = collections.Counter(n.op for n in graph)
    layers = config.model.layers
    assert ops["aten.mm.default"] == 3 * (5 * layers + 1) + 2 * layers
    assert ops["aten._grouped_mm.default"] == (3 * 3 + 3) * layers
    assert ops["all_to_all"] == (3 + 3 + 2) * layers
    attention = [op for op in ops if "scaled_dot_product" in op and "backward" not in op]
    assert sum(ops[op] for op in attention) == layers
