"""Llama 3 in PyTorch: published sizes, and one rank's kernels and exchanges, derived by hand.

Letters: L layers, D width, V tokens of the vocabulary, S positions, N parameters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from flint.graph.graph import Phase  # noqa: E402
from flint.models.torch.llama3 import (  # noqa: E402
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    TINY,
    Heads,
    train_8b,
    training,
)
from flint.models.torch.llama3_model import Config, Llama  # noqa: E402
from tests.models.torch.one_rank import (  # noqa: E402
    attentions,
    exchanges,
    graph_of,
    matrix_products,
)
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-llama3")

L, D, V, S = LLAMA3_8B.layers, LLAMA3_8B.width, LLAMA3_8B.vocabulary, LLAMA3_8B.sequence
N = 8_030_261_248
#: Bytes of an element of a parameter as it is gathered, and of a gradient as it is reduced.
BF16, F32 = 2, 4
#: Tensors: seven weights and two norms per block; embedding, last norm, head.
TENSORS = 9 * L + 3

PLAIN = training(LLAMA3_8B, mesh=(1,), axes=("tp",))
FSDP = training(LLAMA3_8B, mesh=(8,), axes=("dp",))
HSDP = training(LLAMA3_8B, mesh=(2, 4), axes=("dp_replicate", "dp"))
TP = training(LLAMA3_8B, mesh=(8,), axes=("tp",))


@pytest.mark.parametrize(
    ("config", "published"),
    [
        # Sum of the tensors' sizes in the released checkpoints (model.safetensors.index.json).
        (LLAMA3_8B, 8_030_261_248),
        (LLAMA3_70B, 70_553_706_496),
        (LLAMA3_405B, 405_853_388_800),
    ],
)
def test_parameters_are_as_many_as_published(config, published):
    with torch.device("meta"):
        assert sum(item.numel() for item in Llama(config).parameters()) == published


@pytest.mark.parametrize(
    "capture", quick([PLAIN, FSDP, HSDP, TP]), ids=["plain", "FSDP", "HSDP", "TP8"]
)
def test_gemms_and_attention_kernels_of_8b(capture):
    """Seven linear layers per block (q, k, v, o, gate, up, down) and the head, each one product in
    the forward pass and two in the backward pass (for the weight and for the input; every input
    depends on parameters): 3 (7 L + 1) = 675.  Attention: one kernel per layer and pass.
    """
    graph = graph_of(capture)
    assert matrix_products(graph) == 3 * (7 * L + 1) == 675
    assert attentions(graph) == (L, L)


@pytest.mark.thorough
def test_a_plain_step_exchanges_nothing():
    assert exchanges(PLAIN) == {}


def sharded(ranks):
    """Exchanges of FSDP2 over ``ranks`` ranks with groups: embedding, each block, norm and head.

    Forward, every group is gathered: L + 2.  Backward, again, but for norm and head, which are kept
    since the backward pass begins with them: L + 1.  Every group's gradients are reduced and
    scattered once: L + 2.  Weights are gathered in bfloat16; gradients are reduced in float32.
    All dims that are split are multiples of the ranks: nothing is padded.
    """
    gathered = BF16 * (2 * N - (D + V * D))
    return {
        "all_gather": (2 * L + 3, gathered // ranks, gathered),
        "reduce_scatter": (L + 2, F32 * N, F32 * N // ranks),
    }


@pytest.mark.thorough
def test_exchanges_of_8b_under_fsdp():
    """67 all-gathers, 34 reduce-scatters; the norms of all gradients' shards, squared and summed
    over the ranks as one float32 vector, are one all-reduce."""
    assert (2 * L + 3, L + 2) == (67, 34)
    norms = F32 * TENSORS
    assert exchanges(FSDP) == {
        ("all_gather", ("dp",)): sharded(8)["all_gather"],
        ("reduce_scatter", ("dp",)): sharded(8)["reduce_scatter"],
        ("all_reduce", ("dp",)): (1, norms, norms),
    }


@pytest.mark.thorough
def test_exchanges_of_8b_under_hsdp():
    """As FSDP's over the four ranks of a replica; then the two replicas' shards of each group's
    gradients are summed: L + 2 all-reduces of N / 4 float32 together."""
    norms, shards = F32 * TENSORS, F32 * N // 4
    assert exchanges(HSDP) == {
        ("all_gather", ("dp",)): sharded(4)["all_gather"],
        ("reduce_scatter", ("dp",)): sharded(4)["reduce_scatter"],
        ("all_reduce", ("dp_replicate",)): (L + 2, shards, shards),
        ("all_reduce", ("dp",)): (1, norms, norms),
    }


@pytest.mark.thorough
def test_exchanges_of_8b_under_tensor_parallelism():
    """Between the blocks' halves the sequence is split: the residual stream's (S / 8, D) bfloat16
    is gathered before attention and feed-forward network and reduced and scattered after them; the
    backward pass mirrors both: 4 L of each.  The embedding scatters forward and gathers backward,
    the head the other way round: one more of each.

    All-reduces: cross entropy of split scores takes the rows' maxima, sums of exponentials and the
    targets' scores (S float32 each).  The 2 L + 1 norms' weights are whole on every rank but see a
    part of the sequence, so that their gradients are partial sums, which DTensor reduces wherever
    an op is not linear in them: for the gradients' norm, for Adam's first moment, and for either
    factor of its second (D bfloat16 each time).  The norms of what is split are one vector.
    """
    whole = S * D * BF16
    count = 4 * L + 2
    assert count == 130
    reduced = 3 * S * F32 + 4 * (2 * L + 1) * D * BF16 + TENSORS * BF16
    assert exchanges(TP) == {
        ("all_gather", ("tp",)): (count, count * whole // 8, count * whole),
        ("reduce_scatter", ("tp",)): (count, count * whole, count * whole // 8),
        ("all_reduce", ("tp",)): (3 + 4 * (2 * L + 1) + 1, reduced, reduced),
    }


@pytest.mark.thorough
def test_parameters_and_optimizer_states_of_8b_on_one_of_512_ranks():
    """64 x 8: all weights are split over 512 ranks, norms over the 64 of ``dp`` only.  Rank 0's
    part of the vocabulary: 128,256 / 8 = 16,032 rows, of which it holds ceil(16,032 / 64) = 251."""
    capture = train_8b.at((64, 8))
    graph = graph_of(capture)
    norms = (2 * L + 1) * D // 64
    blocks = L * (2 * D * D + 2 * D * 1024 + 3 * D * LLAMA3_8B.hidden) // 512
    held = norms + blocks + 2 * 251 * D
    given = [graph.type_of(value) for value in range(graph.inputs)]
    floats = sum(math.prod(item.shape) for item in given if item.dtype == "f32")
    tables = S * LLAMA3_8B.heads.size
    assert floats == 3 * held + tables  # the parameters, both moments; rotary's cosines and sines


@pytest.mark.thorough
@pytest.mark.parametrize("checkpoint", quick([False, True], True))
def test_checkpointing_computes_the_blocks_again(checkpoint):
    """The blocks' products and attention run once more in the backward pass, but for the last
    product, ``down``: the backward pass needs its operands, not its result."""
    config = replace(TINY, checkpoint=checkpoint)
    graph = graph_of(training(config, mesh=(2,), axes=("dp",)))
    again = 6 * TINY.layers if checkpoint else 0
    assert matrix_products(graph) == 3 * (7 * TINY.layers + 1) + again
    assert attentions(graph) == ((2 if checkpoint else 1) * TINY.layers, TINY.layers)


@pytest.mark.thorough
def test_selective_checkpointing_keeps_attention_and_every_other_product():
    """Of q, k, v, o, gate, up and down, the second, fourth and sixth run again."""
    config = replace(TINY, checkpoint="selective")
    graph = graph_of(training(config, mesh=(2,), axes=("dp",)))
    assert matrix_products(graph) == 3 * (7 * TINY.layers + 1) + 3 * TINY.layers
    assert attentions(graph) == (TINY.layers, TINY.layers)


@pytest.mark.thorough
def test_every_second_block_is_checkpointed():
    config = replace(TINY, checkpoint=2)
    graph = graph_of(training(config, mesh=(2,), axes=("dp",)))
    assert matrix_products(graph) == 3 * (7 * TINY.layers + 1) + 6 * TINY.layers // 2
    assert attentions(graph) == (TINY.layers + TINY.layers // 2, TINY.layers)


@pytest.mark.parametrize(("layers", "width", "published"), [
    # NumParams of MPT 1B, 7B and 70B at 2048 positions: llm-foundry, scripts/train/benchmarking.
    (24, 2048, 1_315_950_592),
    (32, 4096, 6_658_859_008),
    (80, 8192, 64_862_437_376),
])  # fmt: skip
def test_gpts_parameters_are_as_many_as_published_without_the_head(layers, width, published):
    """MPT's head is its embedding, ours a separate matrix."""
    config = Config(
        layers=layers, width=width, heads=Heads(queries=16, keys=16, size=width // 16),
        hidden=4 * width, vocabulary=50368, sequence=2048, style="gpt",
    )  # fmt: skip
    with torch.device("meta"):
        count = sum(item.numel() for item in Llama(config).parameters())
    assert count - config.vocabulary * width == published


GPT = replace(TINY, heads=replace(TINY.heads, keys=8), style="gpt")


@pytest.mark.thorough
def test_gemms_and_attention_kernels_of_gpt():
    """Six linear layers per block (q, k, v, o, up, down), and the head."""
    graph = graph_of(training(GPT, mesh=(2,), axes=("dp",)))
    assert matrix_products(graph) == 3 * (6 * TINY.layers + 1)
    assert attentions(graph) == (TINY.layers, TINY.layers)


@pytest.mark.thorough
def test_gradients_are_reduced_in_the_type_that_is_asked_for():
    axis = ("dp",)
    wide, narrow = (
        exchanges(training(replace(TINY, reduce_dtype=dtype), mesh=(2,), axes=axis))
        for dtype in (torch.float32, torch.bfloat16)
    )
    count, given, taken = wide["reduce_scatter", axis]
    assert narrow["reduce_scatter", axis] == (count, given // 2, taken // 2)
    assert narrow["all_gather", axis] == wide["all_gather", axis]


@pytest.mark.thorough
@pytest.mark.parametrize("keep", [False, True])
def test_accumulation_goes_forward_and_backward_as_often(keep):
    """Three batches: three times the products.  FSDP gathers and reduces for each of them: three
    times a single batch's 2 L + 3 and L + 2 exchanges; where what is gathered is kept, L + 2 of
    either, of all parameters once."""
    config = replace(TINY, accumulation=3, keep=keep)
    capture = training(config, mesh=(2,), axes=("dp",))
    layers = TINY.layers
    assert matrix_products(graph_of(capture)) == 3 * 3 * (7 * layers + 1)
    found = exchanges(capture)
    counts = (layers + 2, layers + 2) if keep else (3 * (2 * layers + 3), 3 * (layers + 2))
    assert (found["all_gather", ("dp",)][0], found["reduce_scatter", ("dp",)][0]) == counts


def test_learned_positions_are_not_split():
    from flint.errors import FlintError

    with pytest.raises(FlintError, match='learned positions are not split over the axis "tp"'):
        training(GPT, mesh=(2,), axes=("tp",)).capture()


@pytest.mark.parametrize(("mesh", "words"), [
    ({"mesh": (8,), "axes": ("tp",)}, "4 key heads"),
    ({"mesh": (2,), "axes": ("model",)}, "dp_replicate, dp, cp, tp"),
    ({"mesh": (2, 2), "axes": ("dp_replicate", "tp")}, "replicates FSDP's groups"),
    ({"mesh": (8,), "axes": ("pp",)}, "8 pipeline stages for 4 layers"),
])  # fmt: skip
def test_a_mesh_that_does_not_fit_is_refused(mesh, words):
    from flint.errors import FlintError

    with pytest.raises(FlintError, match=words):
        training(TINY, **mesh).capture()


@pytest.mark.thorough
def test_parameters_that_are_kept_in_bf16_and_updated_by_one_kernel():
    """Of two ranks each has half of all parameters, in bfloat16, and two moments of each; a step
    count per tensor in float32.  No kernel of ``foreach`` is left."""
    config = replace(TINY, kept_dtype=torch.bfloat16, fused=True)
    program = training(config, mesh=(2,), axes=("dp",)).capture().programs[0]
    half = sum(item.numel() for item in Llama(TINY).parameters()) // 2
    found = {"parameter": 0, "optimizer state": 0}
    for item in program.inputs:
        if item.role in found:
            found[item.role] += item.type.bytes
    assert found["parameter"] == BF16 * half
    tensors = 9 * TINY.layers + 3
    assert found["optimizer state"] == 2 * BF16 * half + F32 * tensors
    ops = {node.op for node in program.graph if node.source.phase == Phase.OPTIMIZER}
    assert "aten._fused_adamw_.default" in ops
    assert not [op for op in ops if "_foreach_addc" in op]
