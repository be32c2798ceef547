"""Every lowering against PyTorch's eager kernel: one call on random inputs, executed by XLA."""

from __future__ import annotations

import math

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.frontends.torch.recording import Input, Op, Recording, View
from flint.stablehlo.bindings import parse
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.work import Unit
from tests.torch.executing import execute
from tests.torch.real_recording import dtype_name, record

aten = torch.ops.aten
SEEDED = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=SEEDED).to(dtype)


def positive(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) + 0.1).to(dtype)


def shallow(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) * 1.8 - 0.9).to(dtype)


def steep(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) + 1.1).to(dtype)


def index(high, *shape):
    return torch.randint(0, high, shape, generator=SEEDED)


def mask(*shape):
    return torch.rand(shape, generator=SEEDED) > 0.5


def half(*shape):
    return normal(*shape, dtype=torch.bfloat16)


def flash(q, k, v, causal=True):
    return aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, causal)


def flash_backward(grad, q, k, v, causal=True):
    out, lse = flash(q, k, v, causal)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        grad, q, k, v, out, lse, 0.0, causal
    )


def convolved(*options):
    return lambda *tensors: aten.convolution.default(*tensors, *options)


def convolved_back(*options):
    def run(grad, x, w):
        return aten.convolution_backward.default(grad, x, w, [w.shape[0]], *options, [True] * 3)

    return run


def batch_norm(train):
    def run(x, w, b, mean, variance):
        out = aten.native_batch_norm.default(x, w, b, mean, variance, train, 0.1, 1e-5)
        return [*(part for part in out if part.numel()), mean, variance]

    return run


def batch_norm_backward(train):
    def run(grad, x, w, b, mean, variance):
        _, save, inverse = aten.native_batch_norm.default(x, w, b, mean, variance, train, 0.1, 1e-5)
        return aten.native_batch_norm_backward.default(
            grad, x, w, mean, variance, save, inverse, train, 1e-5, [True] * 3
        )

    return run


def max_pool(x):
    return aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])


def max_pool_backward(grad, x):
    _, places = max_pool(x)
    return aten.max_pool2d_with_indices_backward.default(
        grad, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places
    )


def layer_norm_backward(grad, x, w, b):
    _, mean, rstd = aten.native_layer_norm.default(x, [6], w, b, 1e-5)
    return aten.native_layer_norm_backward.default(grad, x, [6], mean, rstd, w, b, [True] * 3)


def group_norm_backward(grad, x, w, b):
    _, mean, rstd = aten.native_group_norm.default(x, w, b, 2, 6, 20, 3, 1e-5)
    return aten.native_group_norm_backward.default(grad, x, mean, rstd, w, 2, 6, 20, 3, [True] * 3)


def nll(reduction):
    def run(x, target, w=None):
        out, total = aten.nll_loss_forward.default(x, target, w, reduction, 2)
        grad = torch.ones_like(out)
        back = aten.nll_loss_backward.default(grad, x, target, w, reduction, 2, total)
        return [out, back]

    return run


def nll2d(x, target, reduction):
    out, total = aten.nll_loss2d_forward.default(x, target, None, reduction, -100)
    grad = torch.ones_like(out)
    return [
        out, aten.nll_loss2d_backward.default(grad, x, target, None, reduction, -100, total)
    ]  # fmt: skip


def fused_adamw(p, g, m, v, step):
    aten._fused_adamw_.default(
        [p], [g], [m], [v], [], [step], lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    return [p, m, v]


def fused_sgd(p, g, m):
    aten._fused_sgd_.default(
        [p], [g], [m], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True,
        maximize=False, is_first_step=False,
    )  # fmt: skip
    return [p, m]


def foreach(op, *rest, **kwargs):
    """A foreach op on lists made of every other tensor and those between."""

    def run(*tensors):
        first, second = list(tensors[::2]), list(tensors[1::2])
        arguments = [second if item is LIST else item for item in rest]
        return list(op(first, *arguments, **kwargs) or first)

    return run


LIST = object()
PAIRS = [normal(3, 4), normal(3, 4), normal(5), normal(5)]
POSITIVE_PAIRS = [item.abs() + 0.5 for item in PAIRS]

UNARY = {
    "abs": normal, "cos": normal, "erf": normal, "exp": normal, "expm1": normal,
    "floor": normal, "ceil": normal, "round": normal, "log": positive, "log1p": positive,
    "log2": positive, "neg": normal, "reciprocal": positive, "relu": normal, "rsqrt": positive,
    "sigmoid": normal, "sign": normal, "silu": normal, "sin": normal, "sqrt": positive,
    "tan": normal, "tanh": normal, "trunc": normal, "gelu": normal, "softplus": normal,
    "leaky_relu": normal, "acos": shallow,
    "acosh": steep, "asin": shallow, "asinh": normal, "atan": normal, "atanh": shallow,
    "cosh": normal, "sinh": normal, "log10": positive, "exp2": normal, "elu": normal,
    "hardsigmoid": normal, "hardswish": normal, "mish": normal, "isnan": normal,
    "isinf": normal, "logical_not": normal,
}  # fmt: skip
BINARY = (
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default",
    "eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor",
    "atan2.default", "pow.Tensor_Tensor", "remainder.Tensor", "fmod.Tensor",
    "logical_and.default", "logical_or.default", "logical_xor.default",
)  # fmt: skip


def named(text):
    base, overload = text.split(".")
    return getattr(getattr(aten, base), overload)


CASES = {
    # name: (function, tensors)
    **{
        f"{name} {kind}": (
            getattr(aten, name).default,
            [make(3, 5, dtype=getattr(torch, kind))],
        )
        for name, make in UNARY.items()
        for kind in ("float32", "bfloat16")
        if not (kind == "bfloat16" and name in ("tan", "isinf", "atanh"))
    },
    **{name: (named(name), [positive(3, 5), positive(5)]) for name in BINARY},
    "add of bf16 and f32": (aten.add.Tensor, [half(3, 4), normal(3, 4)]),
    "add of bf16 and a 0-d f32": (aten.add.Tensor, [half(3, 4), normal()]),
    "add with alpha": (lambda x, y: aten.add.Tensor(x, y, alpha=3), [normal(3), normal(3)]),
    "add of ints and a float": (lambda x: aten.add.Tensor(x, 1.5), [index(9, 4)]),
    "sub with alpha": (lambda x, y: aten.sub.Tensor(x, y, alpha=2), [normal(3), normal(3)]),
    "rsub": (lambda x: aten.rsub.Scalar(x, 2.0), [normal(3)]),
    "div of ints": (aten.div.Tensor, [index(9, 4), index(9, 4) + 1]),
    "div floor": (
        lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="floor"),
        [index(19, 6) - 9, torch.tensor([2, 3, -2, 4, -5, 6])],
    ),
    "div trunc": (
        lambda x, y: aten.div.Tensor_mode(x, y, rounding_mode="trunc"),
        [normal(6) * 5, normal(6)],
    ),
    "floor_divide": (aten.floor_divide.default, [index(19, 6) - 9, torch.tensor([2] * 6)]),
    "remainder of negative ints": (
        aten.remainder.Tensor, [index(19, 6) - 9, torch.tensor([2, 3, -2, 4, -5, 6])],
    ),
    "lt of ints and a float": (lambda x: aten.lt.Scalar(x, 1.5), [index(4, 6)]),
    "eq of bf16 and a float": (lambda x: aten.eq.Scalar(x, 0.1), [half(6)]),
    **{
        f"pow {power}": (lambda x, power=power: aten.pow.Tensor_Scalar(x, power), [positive(6)])
        for power in (0, 0.5, 1, 2, 3, -0.5, -1, -2, 2.5)
    },
    "pow of a scalar": (lambda x: aten.pow.Scalar(2.0, x), [normal(6)]),
    "lerp near": (lambda x, y: aten.lerp.Scalar(x, y, 0.1), [normal(6), normal(6)]),
    "lerp far": (lambda x, y: aten.lerp.Scalar(x, y, 0.9), [normal(6), normal(6)]),
    "lerp tensor": (aten.lerp.Tensor, [normal(6), normal(6), positive(6)]),
    "addcmul": (
        lambda x, y, z: aten.addcmul.default(x, y, z, value=0.3), [normal(6) for _ in range(3)],
    ),
    "addcdiv": (
        lambda x, y, z: aten.addcdiv.default(x, y, z, value=0.3),
        [normal(6), normal(6), positive(6)],
    ),
    "bitwise_and": (aten.bitwise_and.Tensor, [index(99, 6), index(99, 6)]),
    "bitwise_or": (aten.bitwise_or.Tensor, [mask(6), mask(6)]),
    "bitwise_not": (aten.bitwise_not.default, [mask(6)]),
    "shift": (lambda x: aten.__rshift__.Scalar(x, 2), [index(99, 6)]),
    "where": (aten.where.self, [mask(3, 4), normal(4), normal(3, 1)]),
    "masked_fill": (lambda x, m: aten.masked_fill.Scalar(x, m, -math.inf), [normal(3, 4), mask(4)]),
    "clamp": (lambda x: aten.clamp.default(x, -0.5, 0.5), [normal(6)]),
    "clamp_min": (lambda x: aten.clamp_min.default(x, 0.1), [normal(6)]),
    "clamp tensor": (aten.clamp.Tensor, [normal(6), -positive(6), positive(6)]),
    "hardtanh": (lambda x: aten.hardtanh.default(x, -0.2, 0.3), [normal(6)]),
    "_to_copy": (lambda x: aten._to_copy.default(x, dtype=torch.bfloat16), [normal(6)]),
    "_to_copy of a float to bool": (
        lambda x: aten._to_copy.default(x, dtype=torch.bool), [torch.tensor([0.0, 0.5, 2.0])],
    ),
    "copy_": (lambda x, y: aten.copy_.default(x, y), [normal(3, 4), half(4)]),
    "complex mul": (
        aten.mul.Tensor, [normal(4, dtype=torch.complex64), normal(4, dtype=torch.complex64)],
    ),
    "sgn of complex numbers": (aten.sgn.default, [normal(4, dtype=torch.complex64)]),
    "sgn": (aten.sgn.default, [normal(4)]),
    "angle": (aten.angle.default, [torch.polar(positive(4), normal(4))]),
    "abs of complex numbers": (aten.abs.default, [torch.polar(positive(4), normal(4))]),
    "polar": (aten.polar.default, [positive(4), normal(4)]),
    **{
        name: (function, tensors)
        for name, function, tensors in [
            ("silu_backward", aten.silu_backward.default, [normal(6), normal(6)]),
            ("log_sigmoid_forward", aten.log_sigmoid_forward.default, [normal(6)]),
            ("log_sigmoid_backward",
             lambda g, x: aten.log_sigmoid_backward.default(g, x, torch.exp(-x.abs())),
             [normal(6), normal(6)]),
            ("silu_backward bf16", aten.silu_backward.default, [half(6), half(6)]),
            ("sigmoid_backward", aten.sigmoid_backward.default, [normal(6), positive(6)]),
            ("tanh_backward", aten.tanh_backward.default, [normal(6), positive(6)]),
            ("gelu_backward", aten.gelu_backward.default, [normal(6), normal(6)]),
        ]
    },
    "gelu tanh": (lambda x: aten.gelu.default(x, approximate="tanh"), [normal(6)]),
    "gelu_backward tanh": (
        lambda g, x: aten.gelu_backward.default(g, x, approximate="tanh"), [normal(6), normal(6)],
    ),
    "threshold_backward": (
        lambda g, x: aten.threshold_backward.default(g, x, 0), [normal(6), normal(6)],
    ),
    # Products.
    "mm": (aten.mm.default, [normal(3, 4), normal(4, 5)]),
    "mm bf16": (aten.mm.default, [half(3, 4), half(4, 5)]),
    "mm of a transpose": (lambda x, y: aten.mm.default(x, y.t()), [normal(3, 4), normal(5, 4)]),
    "bmm": (aten.bmm.default, [normal(2, 3, 4), normal(2, 4, 5)]),
    "addmm": (
        lambda b, x, y: aten.addmm.default(b, x, y, beta=2, alpha=3),
        [normal(5), normal(3, 4), normal(4, 5)],
    ),
    "baddbmm": (aten.baddbmm.default, [normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)]),
    "mv": (aten.mv.default, [normal(3, 4), normal(4)]),
    "dot": (aten.dot.default, [normal(4), normal(4)]),
    # Reductions.
    "sum": (aten.sum.default, [normal(3, 4)]),
    "sum of bools": (aten.sum.default, [mask(3, 4)]),
    "sum along": (lambda x: aten.sum.dim_IntList(x, [0, -1], True), [normal(3, 4, 5)]),
    "mean": (aten.mean.default, [normal(3, 4)]),
    "mean along bf16": (lambda x: aten.mean.dim(x, [-1], True), [half(3, 64)]),
    "prod": (lambda x: aten.prod.dim_int(x, 1), [normal(3, 4)]),
    "amax": (lambda x: aten.amax.default(x, [-1], True), [normal(3, 4)]),
    "amin": (lambda x: aten.amin.default(x, [0]), [normal(3, 4)]),
    "max": (aten.max.default, [normal(3, 4)]),
    "max along": (lambda x: aten.max.dim(x, 1), [normal(3, 4)]),
    "max other": (aten.max.other, [normal(3, 4), normal(4)]),
    "min of ints": (lambda x: aten.min.dim(x, 0, True), [index(9, 3, 4)]),
    "argmax": (lambda x: aten.argmax.default(x, -1), [normal(3, 4)]),
    "argmin of all": (aten.argmin.default, [normal(3, 4)]),
    "any": (aten.any.default, [mask(3, 4)]),
    "all along": (lambda x: aten.all.dim(x, 1), [mask(3, 4)]),
    **{
        f"norm {order}": (
            lambda x, order=order: aten.linalg_vector_norm.default(x, order, [1], True),
            [normal(3, 4)],
        )
        for order in (0, 1, 2, 3.0, math.inf, -math.inf)
    },
    "var": (lambda x: aten.var.correction(x, [1], correction=1), [normal(3, 4)]),
    "std of all": (lambda x: aten.std.correction(x, None, correction=0), [normal(3, 4)]),
    "var_mean": (lambda x: aten.var_mean.correction(x, [0], correction=0), [normal(3, 4)]),
    "logsumexp": (lambda x: aten.logsumexp.default(x, [1]), [normal(3, 4)]),
    "cumsum": (lambda x: aten.cumsum.default(x, 1), [normal(3, 7)]),
    "cumsum of ints": (lambda x: aten.cumsum.default(x, 0), [index(9, 7)]),
    "cumprod": (lambda x: aten.cumprod.default(x, 0), [normal(7)]),
    # Normalisations.
    "_softmax": (lambda x: aten._softmax.default(x, -1, False), [normal(3, 4)]),
    "_softmax bf16": (lambda x: aten._softmax.default(x, 0, False), [half(3, 4)]),
    "_softmax_backward_data": (
        lambda g, y: aten._softmax_backward_data.default(g, y, 1, torch.float32),
        [normal(3, 4), positive(3, 4)],
    ),
    "_log_softmax": (lambda x: aten._log_softmax.default(x, 1, False), [normal(3, 4)]),
    "_log_softmax_backward_data": (
        lambda g, y: aten._log_softmax_backward_data.default(g, y, 1, torch.float32),
        [normal(3, 4), -positive(3, 4)],
    ),
    "_safe_softmax": (
        lambda x: aten._safe_softmax.default(x, -1),
        [torch.tensor([[1.0, 2.0], [-math.inf, -math.inf]])],
    ),
    "_fused_rms_norm": (
        lambda x, w: aten._fused_rms_norm.default(x, [6], w, 1e-5), [normal(3, 6), normal(6)],
    ),
    "_fused_rms_norm without eps": (
        lambda x, w: aten._fused_rms_norm.default(x, [6], w, None), [normal(3, 6), normal(6)],
    ),
    "native_layer_norm": (
        lambda x, w, b: aten.native_layer_norm.default(x, [6], w, b, 1e-5),
        [normal(2, 3, 6), normal(6), normal(6)],
    ),
    "native_layer_norm_backward": (
        layer_norm_backward, [normal(2, 3, 6), normal(2, 3, 6), normal(6), normal(6)],
    ),
    **{
        f"native_batch_norm train={train}": (
            batch_norm(train),
            [normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
        )
        for train in (True, False)
    },
    **{
        f"native_batch_norm_backward train={train}": (
            batch_norm_backward(train),
            [normal(4, 3, 5, 5), normal(4, 3, 5, 5), normal(3), normal(3), normal(3), positive(3)],
        )
        for train in (True, False)
    },
    "native_group_norm": (
        lambda x, w, b: aten.native_group_norm.default(x, w, b, 2, 6, 20, 3, 1e-5),
        [normal(2, 6, 4, 5), normal(6), normal(6)],
    ),
    "native_group_norm_backward": (
        group_norm_backward, [normal(2, 6, 4, 5), normal(2, 6, 4, 5), normal(6), normal(6)],
    ),
    "upsample_nearest2d": (
        lambda x: aten.upsample_nearest2d.default(x, [8, 15]), [normal(2, 3, 4, 5)],
    ),
    "upsample_nearest2d_backward": (
        lambda g: aten.upsample_nearest2d_backward.default(g, [8, 15], [2, 3, 4, 5]),
        [normal(2, 3, 8, 15)],
    ),
    "leaky_relu_backward": (
        lambda g, x: aten.leaky_relu_backward.default(g, x, 0.1, False), [normal(6), normal(6)],
    ),
    "hardtanh_backward": (
        lambda g, x: aten.hardtanh_backward.default(g, x, -0.5, 0.5), [normal(6), normal(6)],
    ),
    "softplus_backward": (
        lambda g, x: aten.softplus_backward.default(g, x, 2, 1), [normal(6), normal(6)],
    ),
    "elu with scales": (lambda x: aten.elu.default(x, 1.5, 2.0, 0.5), [normal(6)]),
    # Attention.
    "flash attention": (flash, [normal(2, 3, 8, 4) for _ in range(3)]),
    "flash attention without mask": (
        lambda *qkv: flash(*qkv, causal=False), [normal(2, 3, 8, 4) for _ in range(3)],
    ),
    "flash attention bf16": (flash, [half(2, 3, 8, 4) for _ in range(3)]),
    "flash attention backward": (flash_backward, [normal(2, 3, 8, 4) for _ in range(4)]),
    # Convolutions and pooling.
    **{
        f"convolution {label}": (
            convolved(*options), [normal(2, 4, 9, 8), normal(*kernel), normal(bias)],
        )
        for label, options, kernel, bias in [
            ("plain", ([1, 1], [0, 0], [1, 1], False, [0, 0], 1), (6, 4, 3, 3), 6),
            ("strided", ([2, 3], [1, 2], [1, 1], False, [0, 0], 1), (6, 4, 3, 3), 6),
            ("dilated", ([1, 2], [2, 1], [2, 2], False, [0, 0], 1), (6, 4, 3, 2), 6),
            ("grouped", ([2, 2], [1, 1], [1, 1], False, [0, 0], 2), (6, 2, 3, 3), 6),
            ("transposed", ([2, 2], [1, 0], [1, 1], True, [1, 0], 2), (4, 3, 3, 3), 6),
        ]
    },
    "convolution 1d": (
        convolved([2], [1], [1], False, [0], 1), [normal(2, 4, 9), normal(6, 4, 3), normal(6)],
    ),
    **{
        f"convolution_backward {label}": (
            convolved_back(*options),
            [normal(*aten.convolution.default(x, w, None, *options).shape), x, w],
        )
        for label, options, x, w in [
            ("plain", ([1, 1], [0, 0], [1, 1], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 3)),
            ("strided", ([2, 3], [1, 2], [1, 1], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 3)),
            ("dilated", ([1, 2], [2, 1], [2, 2], False, [0, 0], 1), normal(2, 4, 9, 8),
             normal(6, 4, 3, 2)),
            ("grouped", ([2, 2], [1, 1], [1, 1], False, [0, 0], 2), normal(2, 4, 9, 8),
             normal(6, 2, 3, 3)),
        ]
    },
    "max_pool": (max_pool, [normal(2, 3, 9, 8)]),
    "max_pool backward": (max_pool_backward, [normal(2, 3, 5, 4), normal(2, 3, 9, 8)]),
    "avg_pool": (
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1]), [normal(2, 3, 9, 8)],
    ),
    "avg_pool without padding in the count": (
        lambda x: aten.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], True, False),
        [normal(2, 3, 9, 8)],
    ),
    "avg_pool backward": (
        lambda g, x: aten.avg_pool2d_backward.default(
            g, x, [3, 3], [2, 2], [1, 1], False, False, None
        ),
        [normal(2, 3, 5, 4), normal(2, 3, 9, 8)],
    ),
    "adaptive_avg_pool": (
        lambda x: aten._adaptive_avg_pool2d.default(x, [3, 2]), [normal(2, 3, 9, 8)],
    ),
    "adaptive_avg_pool backward": (
        aten._adaptive_avg_pool2d_backward.default, [normal(2, 3, 3, 2), normal(2, 3, 9, 8)],
    ),
    # Losses.
    **{
        f"nll_loss reduction={reduction}": (nll(reduction), [normal(5, 4), index(4, 5)])
        for reduction in (0, 1, 2)
    },
    "nll_loss with weights": (nll(1), [normal(5, 4), index(4, 5), positive(4)]),
    **{
        f"nll_loss2d reduction={reduction}": (
            lambda x, t, reduction=reduction: nll2d(x, t, reduction),
            [normal(2, 4, 3, 5), index(4, 2, 3, 5)],
        )
        for reduction in (0, 1, 2)
    },
    "mse_loss": (aten.mse_loss.default, [normal(3, 4), normal(3, 4)]),
    "mse_loss_backward": (
        lambda g, x, y: aten.mse_loss_backward.default(g, x, y, 1),
        [normal(), normal(3, 4), normal(3, 4)],
    ),
    "bce with logits": (
        aten.binary_cross_entropy_with_logits.default, [normal(3, 4), positive(3, 4)],
    ),
    # Places.
    "embedding": (aten.embedding.default, [normal(7, 4), index(7, 2, 3)]),
    "embedding_dense_backward": (
        lambda g, i: aten.embedding_dense_backward.default(g, i, 7, 2, False),
        [normal(2, 3, 4), index(7, 2, 3)],
    ),
    "index_select": (
        lambda x, i: aten.index_select.default(x, 1, i), [normal(3, 5, 2), index(5, 4)],
    ),
    "index_add": (
        lambda x, i, y: aten.index_add.default(x, 1, i, y, alpha=2),
        [normal(3, 5), index(5, 4), normal(3, 4)],
    ),
    "index_copy": (
        lambda x, y: aten.index_copy.default(x, 0, torch.tensor([2, 0]), y),
        [normal(3, 5), normal(2, 5)],
    ),
    "gather": (lambda x, i: aten.gather.default(x, 1, i), [normal(3, 5), index(5, 2, 4)]),
    "scatter src": (
        lambda x, y: aten.scatter.src(x, 1, torch.tensor([[0, 2], [1, 3]]), y),
        [normal(3, 5), normal(3, 4)],
    ),
    "scatter value": (
        lambda x: aten.scatter.value(x, 1, torch.tensor([[0], [1]]), 3.0), [normal(3, 5)],
    ),
    "scatter_add": (
        lambda x, i, y: aten.scatter_add.default(x, 0, i, y),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "scatter_reduce": (
        lambda x, i, y: aten.scatter_reduce.two(x, 0, i, y, "amax"),
        [normal(3, 5), index(3, 4, 5), normal(4, 5)],
    ),
    "index one": (lambda x, i: aten.index.Tensor(x, [i]), [normal(5, 3), index(5, 2, 2) - 5]),
    "index middle": (
        lambda x, i: aten.index.Tensor(x, [None, i]), [normal(2, 5, 3), index(5, 4)],
    ),
    "index two neighbours": (
        lambda x, i, j: aten.index.Tensor(x, [None, i, j]),
        [normal(2, 5, 3, 2), index(5, 4, 1), index(3, 2)],
    ),
    "index two apart": (
        lambda x, i, j: aten.index.Tensor(x, [i, None, j]),
        [normal(2, 5, 3), index(2, 4), index(3, 4)],
    ),
    "index_put": (
        lambda x, y: aten.index_put.default(x, [torch.tensor([2, 0])], y),
        [normal(3, 5), normal(5)],
    ),
    "index_put accumulate": (
        lambda x, i, y: aten.index_put.default(x, [None, i], y, True),
        [normal(3, 5), index(5, 7), normal(3, 7)],
    ),
    "index_put by a mask": (
        lambda x, m: aten.index_put.default(x, [m], torch.tensor(2.0)), [normal(3, 5), mask(3, 5)],
    ),
    # Sorting.
    "sort": (lambda x: aten.sort.default(x, 0, True), [normal(6, 3)]),
    "sort stable": (lambda x: aten.sort.stable(x, stable=True), [index(3, 9)]),
    "argsort": (aten.argsort.default, [normal(6)]),
    "topk": (lambda x: aten.topk.default(x, 2), [normal(4, 6)]),
    "topk bf16": (lambda x: aten.topk.default(x, 2)[0], [half(4, 6)]),
    "topk of ints": (lambda x: aten.topk.default(x, 2)[0], [index(99, 4, 6)]),
    "topk smallest": (lambda x: aten.topk.default(x, 2, 0, False), [normal(6, 2)]),
    "bincount": (lambda x: aten.bincount.default(x, None, 7), [index(7, 20)]),
    "histc": (lambda x: aten.histc.default(x, 4, 0, 4), [index(4, 20).float()]),
    "searchsorted": (
        aten.searchsorted.Tensor, [torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 2.0, 5.0])],
    ),
    # Movement.
    "cat": (lambda x, y: aten.cat.default([x, y], 1), [normal(3, 2), half(3, 4)]),
    "stack": (lambda x, y: aten.stack.default([x, y], 1), [normal(3, 2), normal(3, 2)]),
    "constant_pad_nd": (
        lambda x: aten.constant_pad_nd.default(x, [1, -1, 2, 0], 3.0), [normal(3, 4)],
    ),
    "slice_backward": (
        lambda g: aten.slice_backward.default(g, [3, 9], 1, 1, 8, 3), [normal(3, 3)],
    ),
    "select_backward": (lambda g: aten.select_backward.default(g, [3, 4], 1, -2), [normal(3)]),
    "slice_scatter": (
        lambda x, y: aten.slice_scatter.default(x, y, 1, 1, 3), [normal(3, 4), normal(3, 2)],
    ),
    "select_scatter": (
        lambda x, y: aten.select_scatter.default(x, y, 0, 1), [normal(3, 4), normal(4)],
    ),
    "flip": (lambda x: aten.flip.default(x, [1]), [normal(3, 4)]),
    "roll": (lambda x: aten.roll.default(x, [1, -2], [0, 1]), [normal(3, 4)]),
    "repeat": (lambda x: aten.repeat.default(x, [2, 1, 3]), [normal(2, 4)]),
    "repeat_interleave": (
        aten.repeat_interleave.Tensor, [torch.tensor([0, 2, 0, 3, 1, 0])],
    ),
    "split_with_sizes_copy": (
        lambda x: aten.split_with_sizes_copy.default(x, [1, 3], 1), [normal(3, 4)],
    ),
    "_chunk_cat": (
        lambda x, y: aten._chunk_cat.default([x, y], 0, 2), [normal(5, 3), normal(2, 2)],
    ),
    "tril": (lambda x: aten.tril.default(x, 1), [normal(4, 5)]),
    "triu": (aten.triu.default, [normal(2, 4, 5)]),
    # Creation.
    "zeros": (lambda: aten.zeros.default([2, 3]), []),
    "full": (lambda: aten.full.default([2], 3.5), []),
    "full_like": (lambda x: aten.full_like.default(x, 2), [index(3, 2)]),
    "fill_": (lambda x: aten.fill_.Scalar(x, 2.0), [normal(3)]),
    "arange": (lambda: aten.arange.start_step(2, 11, 3), []),
    "arange of floats": (lambda: aten.arange.default(5, dtype=torch.float32), []),
    "linspace": (lambda: aten.linspace.default(0.0, 1.0, 5), []),
    "eye": (lambda: aten.eye.m(3, 4), []),
    "scalar_tensor": (lambda: aten.scalar_tensor.default(2.5), []),
    # Lists.
    "_foreach_add": (foreach(aten._foreach_add.List, LIST, alpha=2), PAIRS),
    "_foreach_add_ scalar": (foreach(aten._foreach_add_.Scalar, 2.0), PAIRS),
    "_foreach_mul_ scalar list": (foreach(aten._foreach_mul_.ScalarList, [2.0, 3.0]), PAIRS),
    "_foreach_mul tensor": (lambda x, y, s: aten._foreach_mul.Tensor([x, y], s),
                            [normal(3), normal(2), normal()]),
    "_foreach_div_": (foreach(aten._foreach_div_.List, LIST), POSITIVE_PAIRS),
    "_foreach_lerp_": (foreach(aten._foreach_lerp_.Scalar, LIST, 0.1), PAIRS),
    "_foreach_addcmul_": (foreach(aten._foreach_addcmul_.Scalar, LIST, LIST, 0.3), PAIRS),
    "_foreach_addcdiv_": (
        foreach(aten._foreach_addcdiv_.ScalarList, LIST, LIST, [0.3, 2.0]), POSITIVE_PAIRS,
    ),
    "_foreach_addcdiv_ tensor": (
        lambda x, y, a, b: (aten._foreach_addcdiv_.Tensor(
            [x, y], [a, b], [a, b], torch.tensor([0.5, 2.0])), [x, y])[1],
        [normal(3), normal(2), positive(3), positive(2)],
    ),
    "_foreach_sqrt": (foreach(aten._foreach_sqrt.default), POSITIVE_PAIRS),
    "_foreach_neg_": (foreach(aten._foreach_neg_.default), PAIRS),
    "_foreach_pow": (
        lambda x, y: aten._foreach_pow.ScalarAndTensor(0.9, [x, y]), [normal(), normal()],
    ),
    "_foreach_norm": (foreach(aten._foreach_norm.Scalar), PAIRS),
    "_foreach_copy_": (foreach(aten._foreach_copy_.default, LIST), PAIRS),
    "_foreach_zero_": (foreach(aten._foreach_zero_.default), PAIRS),
    "_fused_adamw_": (
        fused_adamw, [normal(4), normal(4), normal(4), positive(4), torch.tensor(3.0)],
    ),
    "_fused_sgd_": (fused_sgd, [normal(4), normal(4), normal(4)]),
}  # fmt: skip

#: Relative to the largest value: half types are computed in float32, but rounded in other places.
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def assert_equal(ours, theirs, name=""):
    assert ours.shape == theirs.shape, name
    if not theirs.dtype.is_floating_point and not theirs.dtype.is_complex:
        assert torch.equal(ours, theirs), name
        return
    tolerance = TOLERANCE.get(theirs.dtype, 2e-5)
    kind = torch.complex128 if theirs.dtype.is_complex else torch.float64
    ours, theirs = ours.to(kind), theirs.to(kind)
    finite = theirs[theirs.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=tolerance * scale + 1e-12, equal_nan=True, msg=name
    )


def check(recorded, strict=True):
    """Execute what is emitted; compare results and mutated inputs; gives the outputs."""
    made = emitted(recorded.recording, strict=strict)
    outputs, aliases = execute(made.data, recorded.inputs)
    results = outputs[len(aliases) :]
    for ours, theirs in zip(results, recorded.results, strict=True):
        assert_equal(ours, theirs)
    for number, after in recorded.mutated.items():
        if number in aliases:
            assert_equal(outputs[aliases[number]], after, f"input {number}")
        else:
            assert torch.equal(recorded.inputs[number], after), f"input {number} has changed"
    return outputs


@pytest.mark.parametrize("name", CASES)
def test_a_lowering_computes_what_eager_pytorch_computes(name):
    function, tensors = CASES[name]

    def step(*tensors):
        out = function(*tensors)
        return [out] if isinstance(out, torch.Tensor) else list(out)

    with torch.no_grad():
        check(record(step, *[tensor.clone() for tensor in tensors]))


RANDOM = {
    "rand": (lambda: aten.rand.default([4000]), 0.5, 1 / math.sqrt(12)),
    "uniform_": (
        lambda: aten.uniform_.default(torch.empty(4000), -1.0, 3.0), 1.0, 4 / math.sqrt(12),
    ),
    "randn": (lambda: aten.randn.default([4000]), 0.0, 1.0),
    "normal_": (lambda: aten.normal_.default(torch.empty(4000), 2.0, 3.0), 2.0, 3.0),
    "bernoulli_": (lambda: aten.bernoulli_.float(torch.empty(4000), 0.3), 0.3, math.sqrt(0.21)),
    "exponential_": (lambda: aten.exponential_.default(torch.empty(4000), 2.0), 0.5, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_have_the_mean_and_deviation_of_their_distribution(name):
    step, mean, deviation = RANDOM[name]
    recorded = record(step)
    (value,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    assert abs(float(value.mean()) - mean) < 5 * deviation / math.sqrt(4000)
    assert abs(float(value.std()) - deviation) < 0.1 * deviation


def test_dropout_keeps_what_its_mask_keeps_and_scales_it():
    recorded = record(lambda x: aten.native_dropout.default(x, 0.25, True), torch.ones(4000))
    (value, kept), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    torch.testing.assert_close(value, kept.float() / 0.75)
    assert abs(float(kept.float().mean()) - 0.75) < 0.04


def test_randperm_is_a_permutation():
    recorded = record(lambda: aten.randperm.default(50))
    (value,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    assert sorted(value.tolist()) == list(range(50))


def by_hand(name, tensors, results, *arguments, **options):
    """A recording of one op that this machine has no kernel for.

    Args:
        tensors: its tensor arguments' values.
        results: tensors of the results' shapes and dtypes.
        arguments: its positional arguments, tensors as their place in ``tensors``, in braces.
    """

    def view(number, tensor):
        return View(
            number, 0, tuple(tensor.shape), tensor.contiguous().stride(), dtype_name(tensor.dtype)
        )

    everything = [*tensors, *results]
    views = [view(number, tensor) for number, tensor in enumerate(everything)]
    opened = tuple(views[min(item)] if isinstance(item, set) else item for item in arguments)
    own = views[len(tensors) :]
    op = Op(name=name, args=opened, kwargs=options, results=tuple(own))
    return Recording(
        rank=0,
        world_size=1,
        ops=(op,),
        storage_bytes=tuple(item.numel() * item.element_size() for item in everything),
        inputs=tuple(Input(item, "unknown", "") for item in views[: len(tensors)]),
        results=tuple(own),
    )


def test_fused_rms_norm_backward_is_the_derivative_of_rms_norm():
    grad, x, w = normal(3, 6), normal(3, 6).requires_grad_(), normal(6).requires_grad_()
    torch.nn.functional.rms_norm(x, (6,), w, 1e-5).backward(grad)
    rstd = (x.detach().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    recording = by_hand(
        "aten._fused_rms_norm_backward.default", [grad, x, rstd, w], [x, w],
        {0}, {1}, (6,), {2}, {3}, (True, True),
    )  # fmt: skip
    tensors = [grad, x.detach(), rstd, w.detach()]
    outputs, _ = execute(emitted(recording, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (x.grad, w.grad), strict=True):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("heads", [4, 2])
def test_device_flash_attention_and_its_derivative_are_those_of_plain_attention(heads):
    q = normal(2, 4, 8, 16).requires_grad_()
    k, v = (normal(2, heads, 8, 16).requires_grad_() for _ in range(2))
    grad = normal(2, 4, 8, 16)
    many = [item.repeat_interleave(4 // heads, 1) for item in (k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, *many, is_causal=True)
    out.backward(grad)
    scores = (q @ many[0].mT / 4).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    lse = scores.logsumexp(-1)
    forward = by_hand(
        "aten._scaled_dot_product_flash_attention.default", [q, k, v], [out, lse],
        {0}, {1}, {2}, 0.0, True, False, scale=0.25,
    )  # fmt: skip
    plain = [item.detach() for item in (q, k, v)]
    outputs, _ = execute(emitted(forward, strict=True).data, plain)
    for ours, theirs in zip(outputs, (out.detach(), lse.detach()), strict=True):
        assert_equal(ours, theirs)
    backward = by_hand(
        "aten._scaled_dot_product_flash_attention_backward.default",
        [grad, q, k, v, out, lse], [q, k, v],
        {0}, {1}, {2}, {3}, {4}, {5}, None, None, 8, 8, 0.0, True, None, None, scale=0.25,
    )  # fmt: skip
    tensors = [grad, *plain, out.detach(), lse.detach()]
    outputs, _ = execute(emitted(backward, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (q.grad, k.grad, v.grad), strict=True):
        assert_equal(ours, theirs)


def attention_by_hand(q, k, v, grad, probability):
    """Forward and backward recordings of a device's kernel, and their tensors."""
    lse = normal(*q.shape[:3])
    forward = by_hand(
        "aten._scaled_dot_product_flash_attention.default", [q, k, v], [q, lse],
        {0}, {1}, {2}, probability, False, False,
    )  # fmt: skip
    backward = by_hand(
        "aten._scaled_dot_product_flash_attention_backward.default",
        [grad, q, k, v, q, lse], [q, k, v],
        {0}, {1}, {2}, {3}, {4}, {5}, None, None, 8, 8, probability, False, None, None,
    )  # fmt: skip
    return emitted(forward, strict=True).data, emitted(backward, strict=True).data


def test_attention_with_dropout_has_the_derivative_of_what_it_computes():
    """Central differences along a random direction, in float64."""
    q, k, v, grad = (normal(1, 2, 8, 4, dtype=torch.float64) for _ in range(4))
    direction = [normal(1, 2, 8, 4, dtype=torch.float64) for _ in range(3)]
    forward, backward = attention_by_hand(q, k, v, grad, 0.25)

    def loss(step):
        moved = [x + step * d for x, d in zip((q, k, v), direction, strict=True)]
        return float((execute(forward, moved)[0][0] * grad).sum())

    out, lse = execute(forward, [q, k, v])[0]
    grads = execute(backward, [grad, q, k, v, out, lse.to(torch.float32)])[0]
    slope = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
    assert slope == pytest.approx((loss(1e-4) - loss(-1e-4)) / 2e-4, rel=1e-4)
    plain = execute(attention_by_hand(q, k, v, grad, 0.0)[0], [q, k, v])[0][0]
    assert not torch.allclose(out, plain)


def test_a_grouped_product_has_the_flops_of_one_product_of_all_rows():
    rows, groups, out = half(16, 32), half(4, 32, 24), half(16, 24)
    ends = torch.tensor([4, 8, 8, 16], dtype=torch.int32)
    recording = by_hand("aten._grouped_mm.default", [rows, groups, ends], [out], {0}, {1}, {2})
    (node,) = walk(read_mlir(emitted(recording, strict=True).data), None, WalkOptions()).graph
    assert [item.flops for item in node.work.items if item.unit == Unit.MATMUL] == [
        2 * 16 * 32 * 24
    ]


def test_an_op_without_a_lowering_is_a_kernel_with_torchs_own_flops_and_a_warning():
    x, w = normal(3, 4), normal(5, 4)
    tensors = [x, w.t(), normal(), normal()]
    recording = by_hand("aten._scaled_mm.default", tensors, [normal(3, 5)], {0}, {1}, {2}, {3})
    made = emitted(recording)
    assert list(made.warnings.values()) == [1]
    text = str(parse(made.data))
    assert "custom_call @flint.aten._scaled_mm.default(%arg0, %arg1, %arg2, %arg3)" in text
    assert f"\\22flops\\22: {2 * 3 * 4 * 5}," in text
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._scaled_mm.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.MATMUL, 2 * 3 * 4 * 5)]


def test_an_op_that_nobody_knows_has_a_flop_per_element_and_a_warning():
    recording = by_hand("aten._cdist_forward.default", [normal(3, 4)], [normal(3, 3)], {0}, {0})
    made = emitted(recording)
    assert any("one FLOP per element assumed" in text for text in made.warnings)
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._cdist_forward.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.VECTOR, 9)]


def test_strict_refuses_an_op_without_a_lowering():
    recording = by_hand("aten._cdist_forward.default", [normal(3, 4)], [normal(3, 3)], {0}, {0})
    with pytest.raises(FlintError, match=r"op 0 \(aten._cdist_forward.default\).*no lowering"):
        emitted(recording, strict=True)


def test_an_operand_that_is_only_written_is_not_read():
    recorded = record(lambda x, y: aten.copy_.default(x, y), normal(3), normal(3))
    text = str(parse(emitted(recorded.recording).data))
    assert 'composite "aten.copy_.default" %arg1 {' in text
