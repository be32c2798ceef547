"""Windows of dense attention, in the functions of flash_attn that have a stand-in."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.frontends.torch.programs import flash_attention, flash_kernels  # noqa: E402
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


@pytest.mark.parametrize("form", [whole, alone, of_transformer_engine])
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
    step = flint.capture(mesh=(1,), axes=("dp",), setup=inputs)(form(window, causal))
    workload = step.capture()
    graph = workload.programs[0].graph
    work = (item for node in graph for item in node.work.items)
    products = sum(item.flops for item in work if item.unit is Unit.MATMUL)
    assert products == 7 * 2 * BATCH * HEADS * SIZE * pairs
    assert not any("bound" in text for text in workload.warnings)
