"""Windows of dense attention, in the functions of flash_attn that have a stand-in."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.frontends.torch.programs import (  # noqa: E402
    flash_attention,
    flash_attention3,
    flash_kernels,
)
from flint.frontends.torch.programs.transformer_engine import attention as fused  # noqa: E402
from flint.graph.work import Unit  # noqa: E402

BATCH, LENGTH, HEADS, SIZE = 2, 32, 4, 16


def inputs(mesh):
    sizes = (BATCH, LENGTH, HEADS, SIZE), (BATCH, LENGTH, 2, SIZE), (BATCH, LENGTH, 2, SIZE)
    made = [torch.ones(*n, device=mesh.device_type, dtype=torch.bfloat16) for n in sizes]
    return [item.requires_grad_() for item in made]


def whole(window, causal):
    def step(*parts):
        flash_attention.flash_attn_func(*parts, causal=causal, window_size=window).sum().backward()

    return step


def whole3(window, causal):
    """FlashAttention 3's arguments, after the tensors: the scale, then the mask."""

    def step(*parts):
        attend = flash_attention3.flash_attn_func
        out, level = attend(*parts, None, causal, window_size=window, return_attn_probs=True)
        assert level.shape == (BATCH, HEADS, out.shape[1])
        out.sum().backward()

    return step


def alone3(window, causal):
    def step(q, k, v):
        parts = [item.detach() for item in (q, k, v)]
        options = dict(zip(("window_size_left", "window_size_right"), window, strict=True))
        out, level, *_ = flash_attention3._flash_attn_forward(*parts, causal=causal, **options)
        buffers = dict(zip(("dq", "dk", "dv"), map(torch.empty_like, parts), strict=True))
        flash_attention3._flash_attn_backward(
            out, *parts, out, level, **buffers, is_causal=causal, **options
        )

    return step


def alone(window, causal):
    """Both passes by themselves, as ring attention calls them."""

    def step(q, k, v):
        options = {"window_size_left": window[0], "window_size_right": window[1]}
        q, k, v = (item.detach() for item in (q, k, v))
        out, level, _, seed = flash_kernels._flash_attn_forward(
            q, k, v, 0.0, None, causal, **options
        )
        buffers = [torch.empty_like(item) for item in (q, k, v)]
        flash_kernels._flash_attn_backward(
            out, q, k, v, out, level, *buffers, 0.0, None, causal, **options, rng_state=seed
        )

    return step


def of_transformer_engine(window, causal):
    """The same memory with the length in front, as Megatron has it."""

    def step(q, k, v):
        named = (("q", q), ("k", k), ("v", v))
        given = {
            "qkv_layout": "sbhd_sbhd_sbhd", "window_size": window, "attn_scale": None,
            "attn_mask_type": "causal" if causal else "no_mask", "dropout": 0.0, "attn_bias": None,
            **{name: item.detach().transpose(0, 1) for name, item in named},
        }  # fmt: skip
        out, kept = fused.fused_attn_fwd(given)
        assert out.shape == (LENGTH, BATCH, HEADS, SIZE)
        lengths = {"max_seqlen_q": LENGTH, "max_seqlen_kv": LENGTH}
        fused.fused_attn_bwd(given | lengths | {"d_o": out, "o": out, "aux_ctx_tensors": kept})

    return step


@pytest.mark.parametrize("form", [whole, whole3, alone, alone3, of_transformer_engine])
@pytest.mark.parametrize(
    ("window", "causal", "pairs"),
    [
        # The first 7 queries see 1 to 7 keys, the others 8.
        ((7, -1), True, 28 + 25 * 8),
        # All see 7 before and 3 behind, which the first 7 and the last 3 have in part.
        ((7, 3), False, 32 * 11 - 28 - 6),
    ],
)
def test_positions_outside_of_a_window_do_not_count(form, window, causal, pairs):
    """Two products forward, five backward, of the pairs that see each other."""
    assert captured(form(window, causal), inputs) == 7 * 2 * BATCH * HEADS * SIZE * pairs


@pytest.mark.parametrize("form", [whole, alone, alone3])
def test_a_causal_mask_ends_at_the_last_key(form):
    """Of 8 queries and 32 keys the first query sees 25, the last one 32."""

    def fewer(mesh):
        q, k, v = inputs(mesh)
        return q.detach()[:, -8:].requires_grad_(), k, v

    pairs = sum(range(25, 33))
    assert captured(form((-1, -1), True), fewer) == 7 * 2 * BATCH * HEADS * SIZE * pairs


def captured(step, setup):
    """FLOPs of the matrix products of a step."""
    workload = flint.capture(mesh=(1,), axes=("dp",), setup=setup)(step).capture()
    graph = workload.programs[0].graph
    work = (item for node in graph for item in node.work.items)
    assert not any("bound" in text for text in workload.warnings)
    return sum(item.flops for item in work if item.unit is Unit.MATMUL)
