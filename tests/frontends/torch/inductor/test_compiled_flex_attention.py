"""FlexAttention that is compiled: Inductor's templates, with the work of the visited blocks."""

from __future__ import annotations

import functools
import json

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.frontends.torch.in_child import record_in_child

#: What Inductor generated on a GPU for the backward pass of ``masked`` (a published program, for a
#: GPU of capability 12.0): kernels in their order, with the shapes of their tensors.
BATCH, HEADS, LENGTH, SIZE, OTHER, BLOCK = 1, 32, 2048, 96, 64, 128
ROWS = LENGTH // BLOCK
Q, V, EACH = (BATCH, HEADS, LENGTH, SIZE), (BATCH, HEADS, LENGTH, OTHER), (BATCH, HEADS, LENGTH)
NUMBERS, INDICES = (1, 1, ROWS), (1, 1, ROWS, ROWS)
CAPTURED = [(LENGTH,), (LENGTH + BLOCK,)]
GENERATED = [
    ("triton_per_fused_flex_attention_backward_0", [V, V, EACH]),
    (
        "triton_tem_fused_flex_attention_backward_1",
        [Q, Q, V, EACH, EACH, V, Q, V, *[NUMBERS, INDICES] * 4, *CAPTURED, Q],
    ),
]
#: Multiply and add, of every query with every key, per element of a head.
PAIRS = 2 * BATCH * HEADS * LENGTH * LENGTH


def causal(batch, head, query, key):
    return query >= key


def blocks(mask, length=LENGTH):
    return create_block_mask(mask, None, None, length, length, device="cuda", BLOCK_SIZE=BLOCK)


def tensors(*shapes):
    make = functools.partial(torch.empty, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    return [make(shape) for shape in shapes]


def masked(mesh):
    """Eight sequences of two blocks each; keys are counted from a block before the first."""
    first = torch.arange(8, dtype=torch.int32, device="cuda").repeat_interleave(2 * BLOCK)
    second = torch.cat([first[:BLOCK], first])

    def same(batch, head, query, key):
        return first[query] == second[key + BLOCK]

    return torch.compile(flex_attention), *tensors(Q, Q, V), {"block_mask": blocks(same)}


def train(function, query, key, value, options):
    function(query, key, value, **options).sum().backward()


def found(setup, step=train):
    return record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm")


def kernels(recording):
    """Names of Inductor's kernels, their tensors' shapes and what they state."""
    for op in recording.ops:
        space, name, *_ = op.name.split(".")
        if space == "inductor_kernel":
            read, written, work = op.args
            shapes = [item.shape for item in (*read, *written)]
            yield name, shapes, json.loads(work)


def products(recording):
    return [work["products"] for _, _, work in kernels(recording) if "products" in work]


@pytest.mark.thorough
def test_its_kernels_are_those_that_a_gpu_was_given():
    recording = found(masked)
    (name, _, forward), *backward = kernels(recording)
    assert name == "triton_tem_fused_flex_attention_0"
    assert [name for name, *_ in backward] == [name for name, _ in GENERATED]
    for (_, shapes, _), (name, expected) in zip(backward, GENERATED, strict=True):
        assert sorted(shapes) == sorted(expected), name
    # Each of the 16 rows of blocks visits 2 of 16.  Forward scores and weighted values; backward
    # the scores again, and the gradients of query and key, and of value and weights.
    assert forward["products"] == PAIRS * (SIZE + OTHER) // 8
    assert backward[1][2]["products"] == PAIRS * (3 * SIZE + 2 * OTHER) // 8
    assert not recording.warnings and forward["dtype"] == "bfloat16"
    # Output and log-sum-exp, not the largest scores, for which there is memory as well.
    output = BATCH * HEADS * LENGTH * (2 * OTHER + 4)
    assert sum(forward["written"]) == output


def by_compiled_mask(mesh):
    """The block mask is compiled, and queries share keys."""
    compiled = torch.compile(create_block_mask)
    mask = compiled(causal, None, None, 512, 512, device="cuda", BLOCK_SIZE=BLOCK)
    heads = tensors((2, 8, 512, 64), (2, 2, 512, 64), (2, 2, 512, 64))
    options = {"block_mask": mask, "enable_gqa": True, "return_lse": True}
    return torch.compile(flex_attention), *heads, options


def with_sums(function, query, key, value, options):
    output, sums = function(query, key, value, **options)
    (output * sums[..., None]).sum().backward()


@pytest.mark.thorough
def test_queries_share_keys_under_a_mask_that_is_compiled():
    recording = found(by_compiled_mask, with_sums)
    # Of 4 x 4 blocks a causal mask leaves those on the diagonal and below: 4 + 3 + 2 + 1.
    part = 2 * 2 * 8 * 512 * 512 * 64 * 10 // 16
    assert products(recording) == [2 * part, 5 * part]
    assert not any("eager" in text for text in recording.warnings)


def one_query(mesh):
    """A query that attends to the first 1,001 of 4,096 keys: 8 of 32 blocks."""
    mask = create_block_mask(
        lambda batch, head, query, key: key <= query + 1000, None, None, 1, 4096, device="cuda"
    )
    heads = tensors((2, 8, 1, 64), (2, 2, 4096, 64), (2, 2, 4096, 64))
    return torch.compile(flex_attention), *heads, {"block_mask": mask, "enable_gqa": True}


def infer(function, query, key, value, options):
    with torch.no_grad():
        function(query, key, value, **options)


@pytest.mark.thorough
def test_a_single_query_is_split_over_keys():
    recording = found(one_query, infer)
    names = [name for name, *_ in kernels(recording)]
    # PyTorch's kernel for short queries, and the sums over its parts.
    assert [name.split("_")[1] for name in names] == ["tem", "red", "red"]
    assert products(recording) == [2 * 2 * 2 * 8 * 4096 * 64 * 8 // 32]


class Model(torch.nn.Module):
    """Its mask is made within it, from tokens; positions change its scores."""

    def __init__(self):
        super().__init__()
        self.projection = torch.nn.Linear(64, 3 * 64, bias=False)
        self.slopes = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, tokens):
        documents = (tokens == 0).cumsum(0)

        def same(batch, head, query, key):
            return (query >= key) & (documents[query] == documents[key])

        def sloped(score, batch, head, query, key):
            return score + self.slopes[head] * (query - key)

        heads = self.projection(x).view(1, 512, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind()
        return flex_attention(*heads, score_mod=sloped, block_mask=blocks(same, 512))


def model(mesh):
    with torch.device("cuda"):
        return torch.compile(Model()), torch.empty(1, 512, 64), torch.zeros(512, dtype=torch.long)


def train_model(model, x, tokens):
    model(x, tokens).sum().backward()


@pytest.mark.thorough
def test_a_compiled_model_makes_its_mask_and_attends_without_eager_code():
    """Each token begins a document, so that it sees itself: the 4 blocks of 16 on the diagonal."""
    recording = found(model, train_model)
    visited = 2 * 4 * 512 * 512 * 16 * 4 // 16
    assert products(recording) == [2 * visited, 5 * visited]
    names = [op.name for op in recording.ops]
    assert not any("flex" in name and name.startswith("flint.") for name in names)
    assert not any("as if nothing was masked" in text for text in recording.warnings)
    assert not any("score_mod" in text for text in recording.warnings)


def softly_capped(mesh):
    mask = blocks(lambda batch, head, query, key: query >= key, 512)

    def capped(score, batch, head, query, key):
        return 30 * torch.tanh(score / 30)

    return torch.compile(flex_attention), *tensors(*[(2, 8, 512, 64)] * 3), {
        "block_mask": mask, "score_mod": capped,
    }  # fmt: skip


@pytest.mark.thorough
def test_what_changes_a_score_is_computed_for_the_visited_blocks():
    """Forward a division, a tanh and a product.  Backward the same again; for the gradient, which
    is grad * 30 * (1 - tanh * tanh) / 30, division and tanh again, five operations, and three
    conversions, since Inductor computes them in float32.
    """
    recording = found(softly_capped)
    visited = 2 * 8 * 512 * 512 * 10 // 16
    forward, _, backward = (work for *_, work in kernels(recording))
    assert (forward["flops"], forward["transcendentals"]) == (2 * visited, visited)
    gradient = 1 + 5 + 3
    assert (backward["flops"], backward["transcendentals"]) == (
        (2 + gradient) * visited, 2 * visited,
    )  # fmt: skip
