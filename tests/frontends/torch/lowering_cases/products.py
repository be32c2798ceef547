"""Products and attention."""

from __future__ import annotations

from tests.frontends.torch.lowering_cases.inputs import aten, half, normal


def flash(q, k, v, causal=True):
    return aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, causal)


def flash_backward(grad, q, k, v, causal=True):
    out, lse = flash(q, k, v, causal)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        grad, q, k, v, out, lse, 0.0, causal
    )


CASES = {
    # name: (function, tensors)
    "mm": (aten.mm.default, [normal(3, 4), normal(4, 5)]),
    "mm bf16": (aten.mm.default, [half(3, 4), half(4, 5)]),
    "mm of a transpose": (lambda x, y: aten.mm.default(x, y.t()), [normal(3, 4), normal(5, 4)]),
    "bmm": (aten.bmm.default, [normal(2, 3, 4), normal(2, 4, 5)]),
    "addmm": (
        lambda b, x, y: aten.addmm.default(b, x, y, beta=2, alpha=3),
        [normal(5), normal(3, 4), normal(4, 5)],
    ),
    "baddbmm": (aten.baddbmm.default, [normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)]),
    "addbmm": (
        lambda b, x, y: aten.addbmm.default(b, x, y, beta=2, alpha=3),
        [normal(3, 5), normal(2, 3, 4), normal(2, 4, 5)],
    ),
    "trilinear": (
        lambda x, w, y: aten._trilinear.default(x, w, y, [1, 3], [0], [1, 2], [2, 3]),
        [normal(2, 4), normal(3, 4, 5), normal(2, 5)],
    ),
    "mv": (aten.mv.default, [normal(3, 4), normal(4)]),
    "dot": (aten.dot.default, [normal(4), normal(4)]),
    "flash attention": (flash, [normal(2, 3, 8, 4) for _ in range(3)]),
    "flash attention without mask": (
        lambda *qkv: flash(*qkv, causal=False), [normal(2, 3, 8, 4) for _ in range(3)],
    ),
    "flash attention bf16": (flash, [half(2, 3, 8, 4) for _ in range(3)]),
    "flash attention backward": (flash_backward, [normal(2, 3, 8, 4) for _ in range(4)]),
    "addmv": (
        lambda b, x, v: aten.addmv.default(b, x, v, beta=0.5, alpha=2),
        [normal(3), normal(3, 4), normal(4)],
    ),
    "vdot": (aten.vdot.default, [normal(4), normal(4)]),
}  # fmt: skip
