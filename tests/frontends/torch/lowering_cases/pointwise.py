"""Pointwise ops and activations."""

from __future__ import annotations

import math

import torch

from tests.frontends.torch.lowering_cases.inputs import (
    aten,
    half,
    index,
    mask,
    named,
    normal,
    positive,
    shallow,
    steep,
)

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
    "clamp_max": (lambda x: aten.clamp_max.default(x, 0.1), [normal(6)]),
    "clone": (aten.clone.default, [normal(3, 4)]),
    "clone of a transpose": (lambda x: aten.clone.default(x.t()), [half(3, 4)]),
    "lift_fresh_copy": (aten.lift_fresh_copy.default, [normal(3)]),
    "_conj_physical": (aten._conj_physical.default, [normal(4, dtype=torch.complex64)]),
    "bitwise_xor": (aten.bitwise_xor.Tensor, [index(99, 6), index(99, 6)]),
    "bitwise_left_shift": (
        lambda x: aten.bitwise_left_shift.Tensor_Scalar(x, 3), [index(99, 6)],
    ),
    "bitwise_right_shift": (
        lambda x: aten.bitwise_right_shift.Tensor_Scalar(x, 3), [index(99, 6)],
    ),
    "__lshift__": (lambda x: aten.__lshift__.Scalar(x, 3), [index(99, 6)]),
    "fmax": (aten.fmax.default, [normal(6), normal(6)]),
    "fmin": (aten.fmin.default, [half(6), half(6)]),
    "nan_to_num": (aten.nan_to_num.default, [torch.tensor([1.0, math.nan, math.inf, -math.inf])]),
    "round.decimals": (lambda x: aten.round.decimals(x, decimals=1), [normal(6)]),
    "complex": (aten.complex.default, [normal(4), normal(4)]),
}  # fmt: skip
