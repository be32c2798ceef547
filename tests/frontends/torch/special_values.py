"""Calls of pointwise ops and reductions with the inputs that kernels differ on.

NaN, infinities, both zeros, halves that round to even, negative dividends and divisors, the ends of
integers, dtypes that are promoted, tensors without dims or elements.  Left out is what eager
PyTorch itself answers differently from kernel to kernel, or C++ leaves undefined: the sign of zero
where a function takes one of two equal values, NaN and infinity as integers, integers to a power
that overflows, division of integers by zero.

    SPECIAL["fmax"]    # [(function, tensors), ...]

Longer than 300 lines because it is one table of calls.
"""

from __future__ import annotations

import math
from collections import defaultdict

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, named

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
I64, I32, I8, U8, BOOL = torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool

#: Exact in every floating dtype.
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 7.25, -7.25, 30.0, 100.0]
SPECIALS = [math.nan, math.inf, -math.inf]
WHOLE = [0, 1, -1, 2, -2, 3, -3, 7, -7, 31, 100, -100]
EXTREMES = {U8: [255, 128], I8: [-128, 127], I32: [2**31 - 1], I64: [2**63 - 1]}

SPECIAL = defaultdict(list)


def values(dtype, zero=True):
    """A vector of what is special in a dtype."""
    if dtype == BOOL:
        return torch.tensor([True, False] if zero else [True])
    if dtype.is_floating_point:
        return torch.tensor(SPECIALS + NUMBERS).to(dtype)
    numbers = [number for number in WHOLE if zero or number]
    if dtype == U8:
        numbers = [abs(number) for number in numbers]
    return torch.tensor(numbers + (EXTREMES[dtype] if zero else []), dtype=dtype)


def call(op, function, *tensors):
    """A call that eager PyTorch takes."""
    try:
        with torch.no_grad():
            function(*[tensor.clone() for tensor in tensors])
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return
    SPECIAL[op].append((function, list(tensors)))


UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "log10", "exp2",
    "cos", "erf", "exp", "expm1", "floor", "ceil", "round", "log", "log1p", "log2", "neg",
    "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "tan",
    "tanh", "trunc", "isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "sgn", "angle",
    "nan_to_num", "leaky_relu", "softplus", "elu", "hardsigmoid", "hardswish", "mish",
    "hardtanh", "clone", "log_sigmoid_forward",
)  # fmt: skip
for name in UNARY:
    function = getattr(aten, name).default
    for dtype in (F32, BF16, I64, I8, U8, BOOL):
        call(name, function, values(dtype))
    call(name, function, torch.tensor(-2.5))
# PyTorch's CPU kernel alone gives NaN for the gelu of infinity; its formula gives infinity.
for form in ("none", "tanh"):
    for dtype in (F32, BF16):
        call(
            "gelu", lambda x, form=form: aten.gelu.default(x, approximate=form),
            torch.tensor([math.nan, *NUMBERS], dtype=dtype),
        )  # fmt: skip
for decimals in (-1, 0, 1, 2):
    for dtype in (F32, BF16):
        tensor = torch.tensor([*SPECIALS, 1.25, 1.35, -1.25, 12.345, -17.5, 25.0, 0.0, -0.0])
        call(
            "round", lambda x, d=decimals: aten.round.decimals(x, decimals=d), tensor.to(dtype)
        )  # fmt: skip
call("round", lambda x: aten.round_.decimals(x, decimals=1), torch.tensor([1.25, 12.345]))
call("nan_to_num", lambda x: aten.nan_to_num.default(x, 1.0, 2.0, -3.0), values(F32))
call("nan_to_num", lambda x: aten.nan_to_num.default(x, 1.0), values(F16))

PAIRS = (
    (F32, F32), (BF16, BF16), (I64, I64), (U8, U8), (BOOL, BOOL), (F32, I64), (BOOL, I8),
    (BOOL, F32), (BF16, F32), (F16, BF16), (U8, I8),
)  # fmt: skip
BINARY = (
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default",
    "fmax.default", "fmin.default", "eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor",
    "gt.Tensor", "ge.Tensor", "atan2.default", "pow.Tensor_Tensor", "remainder.Tensor",
    "fmod.Tensor", "logical_and.default", "logical_or.default", "logical_xor.default",
    "floor_divide.default", "bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor",
    "__and__.Tensor", "__or__.Tensor", "__xor__.Tensor", "__lshift__.Tensor", "__rshift__.Tensor",
    "bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor", "max.other", "min.other",
    "complex.default",
)  # fmt: skip
DIVIDES = ("div", "remainder", "fmod", "floor_divide")


def second(name, dtype):
    """What stands on the right: no zeros under integers, few powers, all lengths of shifts."""
    if dtype == BOOL or dtype.is_floating_point:
        return values(dtype, zero=dtype != BOOL or name not in DIVIDES)
    if name == "pow":
        return torch.tensor([0, 1, 2, 3], dtype=dtype)
    if "shift" in name:
        return torch.tensor([0, 1, 3, 7, 8, 31, 63, 100], dtype=dtype)
    return values(dtype, zero=name not in DIVIDES)


for full in BINARY:
    name, function = full.split(".")[0], named(full)
    for left, right in PAIRS:
        call(name, function, values(left)[:, None], second(name, right)[None])
    for left, right in ((BF16, torch.tensor(2.5)), (I64, torch.tensor(2.5))):
        call(name, function, values(left), right)
        call(name, function, right, values(left, zero=name not in DIVIDES))
    call(name, function, values(I32), torch.tensor(3))
    call(name, function, torch.tensor(7), torch.tensor(3))
    call(name, function, values(BOOL), torch.tensor(3))
for mode in ("floor", "trunc"):
    for left, right in PAIRS:
        call(
            "div", lambda x, y, mode=mode: aten.div.Tensor_mode(x, y, rounding_mode=mode),
            values(left)[:, None], second("div", right)[None],
        )  # fmt: skip
    for dtype in (F32, BF16, I64):
        for number in (2, -3, 0.75):
            call(
                "div",
                lambda x, n=number, mode=mode: aten.div.Scalar_mode(x, n, rounding_mode=mode),
                values(dtype),
            )
SCALARS = (
    "add.Scalar", "sub.Scalar", "mul.Scalar", "div.Scalar", "eq.Scalar", "ne.Scalar", "lt.Scalar",
    "le.Scalar", "gt.Scalar", "ge.Scalar", "pow.Tensor_Scalar", "remainder.Scalar", "fmod.Scalar",
    "floor_divide.Scalar", "bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar",
    "__lshift__.Scalar", "__rshift__.Scalar", "bitwise_left_shift.Tensor_Scalar",
    "bitwise_right_shift.Tensor_Scalar", "rsub.Scalar",
)  # fmt: skip
for full in SCALARS:
    name, function = full.split(".")[0], named(full)
    for dtype in (F32, BF16, I64, I8, U8, BOOL):
        for number in (2, -3, 0.75, True, math.nan, math.inf):
            if dtype == BOOL and not 0 < number < math.inf:
                continue  # XLA makes a product with a bool a choice between a number and +0
            call(name, lambda x, n=number, f=function: f(x, n), values(dtype))
for full in ("remainder.Scalar_Tensor", "pow.Scalar", "bitwise_right_shift.Scalar_Tensor"):
    name, function = full.split(".")[0], named(full)
    for dtype in (F32, BF16, I64, U8):
        for number in (2, -3, True):
            call(name, lambda x, n=number, f=function: f(n, x), second(name, dtype))
call("floor_divide", lambda x: aten.floor_divide.Scalar(x, 0.1), values(F32))
for full in ("add.Tensor", "sub.Tensor", "rsub.Tensor"):
    name, function = full.split(".")[0], named(full)
    for dtype, alpha in ((F32, 2.5), (I64, -3), (BOOL, True), (BF16, 0.25), (U8, 2)):
        call(
            name, lambda x, y, f=function, alpha=alpha: f(x, y, alpha=alpha),
            values(dtype)[:, None], values(dtype)[None],
        )  # fmt: skip

for dtype in (F32, BF16):
    x, y = values(dtype)[:, None], values(dtype)[None]
    for weight in (0.25, 0.5, 0.875, -2.0):
        call("lerp", lambda x, y, w=weight: aten.lerp.Scalar(x, y, w), x, y)
    call("lerp", aten.lerp.Tensor, x, y, torch.tensor([[0.5]], dtype=dtype))
    for name in ("addcmul", "addcdiv"):
        function = getattr(aten, name).default
        call(name, lambda x, y, z, f=function: f(x, y, z, value=0.25), x, y, x)
    call("where", aten.where.self, values(BOOL)[:, None], y, torch.tensor(3.0))
    for low, high in ((-1, 1), (1, -1), (math.nan, 1), (None, 0.5), (0.5, None)):
        call("clamp", lambda x, a=low, b=high: aten.clamp.default(x, a, b), values(dtype))
    call("clamp", aten.clamp.Tensor, x, y, torch.tensor([[1.0]], dtype=dtype))
    call("clamp", lambda x: aten.clamp_max.default(x, 0.5), values(dtype))
    call("clamp", lambda x: aten.clamp_min.default(x, 0.5), values(dtype))
    for number in (-math.inf, math.nan, 3, True):
        function = aten.masked_fill.Scalar
        call("masked_fill", lambda x, m, f=function, n=number: f(x, m, n), x, values(BOOL))
    # Against infinite gradients times 0 kernels multiply in different orders.
    for name, more in (
        ("silu_backward", ()), ("sigmoid_backward", ()), ("tanh_backward", ()),
        ("gelu_backward", ()), ("threshold_backward", (0.5,)), ("softplus_backward", (1, 20)),
        ("leaky_relu_backward", (0.25, False)), ("hardtanh_backward", (-1, 1)),
    ):  # fmt: skip
        # Eager's vectorised float32 hardtanh_backward has no gradient at NaN, its others have.
        at = NUMBERS if name == "hardtanh_backward" and dtype == F32 else [math.nan, *NUMBERS]
        function = getattr(aten, name).default
        call(
            name, lambda g, x, f=function, more=more: f(g, x, *more),
            y, torch.tensor(at, dtype=dtype)[:, None],
        )  # fmt: skip
call("clamp", lambda x: aten.clamp.default(x, -1.5, 2.5), values(I64))
call("clamp", lambda x: aten.clamp.default(x, -1, 2), values(I64))
call("where", aten.where.self, values(BOOL)[:, None], values(I64)[None], torch.tensor(2.5))
call("where", lambda c, x: aten.where.ScalarOther(c, x, 2.5), values(BOOL)[:, None], values(I64))
call("where", lambda c, x: aten.where.ScalarSelf(c, 2.5, x), values(BOOL)[:, None], values(BF16))
call("where", lambda c: aten.where.Scalar(c, 2.5, 3), values(BOOL))
call("masked_fill", aten.masked_fill.Tensor, values(F32), torch.tensor(True), torch.tensor(3))
for left in (F32, BF16, F16, F64, I64, I8, U8, BOOL):
    for right in (F32, BF16, F16, F64, I64, I8, U8, BOOL):
        tensor = values(left)
        if left.is_floating_point and not right.is_floating_point and right != BOOL:
            tensor = torch.tensor([0.0, 1.75, 2.5, 100.0], dtype=left)
        call("_to_copy", lambda x, to=right: aten._to_copy.default(x, dtype=to), tensor)

# Reductions.
TABLE = torch.tensor([[1.5, -2.0, 3.0, 3.0], [0.5, 1.0, 2.0, 0.25], [4.0, -7.0, 1.0, 2.0]])
NANS = torch.tensor([[1.5, math.nan, 3.0], [math.inf, 1.0, -math.inf], [math.nan, 0.0, math.nan]])
REDUCED = [
    TABLE, NANS, TABLE.to(BF16), TABLE.to(F16), TABLE.to(I64), TABLE.to(I8) * 30,
    TABLE.abs().to(U8), TABLE > 1, torch.tensor(-2.5), torch.tensor(3), torch.tensor(True),
    torch.tensor(math.nan), torch.zeros(0, 3), torch.zeros(3, 0),
]  # fmt: skip


def reduced(op, function, inputs=REDUCED):
    """Calls with all kinds of tables."""
    for tensor in inputs:
        call(op, function, tensor)


ALONG = {
    "sum": "dim_IntList", "mean": "dim", "prod": "dim_int", "all": "dim", "any": "dim",
    "max": "dim", "min": "dim", "amax": "default", "amin": "default", "argmax": "default",
    "argmin": "default", "nansum": "default", "logsumexp": "default",
}  # fmt: skip
LISTS = ("sum", "mean", "amax", "amin", "nansum", "logsumexp")
for name, overload in ALONG.items():
    function = getattr(getattr(aten, name), overload)
    if name not in ("amax", "amin", "logsumexp"):
        reduced(name, getattr(aten, name).default)
    for dim, keep in ((0, False), (-1, True)):
        dims = [dim] if name in LISTS else dim
        reduced(name, lambda x, f=function, dims=dims, keep=keep: f(x, dims, keep))
    if name in LISTS:
        reduced(name, lambda x, f=function: f(x, [], True))
        reduced(name, lambda x, f=function: f(x, [0, -1], False))
    if name in ("sum", "mean", "nansum"):
        for dtype in (F64, BF16):
            reduced(name, lambda x, f=function, to=dtype: f(x, [-1], False, dtype=to))
FINITE = [tensor for tensor in REDUCED if tensor is not NANS]
for order in (0, 1, 2, 3.0, 0.5, math.inf, -math.inf, -1, -2):
    for dims, keep in ((None, False), ([-1], True)):
        reduced(
            "linalg_vector_norm",
            lambda x, o=order, d=dims, k=keep: aten.linalg_vector_norm.default(x, o, d, k), FINITE,
        )  # fmt: skip
    reduced("norm", lambda x, o=order: aten.norm.ScalarOpt_dim(x, o, [-1], True), FINITE[:3])
    reduced("_foreach_norm", lambda x, o=order: aten._foreach_norm.Scalar([x, x], o), FINITE[:3])
reduced("norm", lambda x: aten.norm.ScalarOpt_dtype(x, None, dtype=F64), FINITE)
for name in ("var", "std", "var_mean", "std_mean"):
    function = getattr(aten, name).correction
    for correction in (None, 0, 1, 2.5):
        for dims, keep in ((None, False), ([-1], True), ([], False)):
            reduced(
                name,
                lambda x, f=function, c=correction, d=dims, k=keep: f(
                    x, d, correction=c, keepdim=k
                ),
                [TABLE, TABLE.to(BF16)] + [torch.tensor(-2.5)] * (correction == 0),
            )
for name in ("cumsum", "cumprod"):
    function = getattr(aten, name).default
    for dim in (0, -1):
        reduced(name, lambda x, f=function, dim=dim: f(x, dim))
    reduced(name, lambda x, f=function: f(x, -1, dtype=F64))
for name in ("_softmax", "_log_softmax"):
    function = getattr(aten, name).default
    for dim in (0, -1):
        # Eager's log of a sum of half types is rounded to them on the way.
        given = [x for x in REDUCED if x.dtype not in (BF16, F16) or name == "_softmax"]
        reduced(name, lambda x, f=function, dim=dim: f(x, dim, False), given)
    function = getattr(aten, f"{name}_backward_data").default
    for tensor in (TABLE, TABLE.to(BF16), torch.tensor(0.5)):
        call(name, lambda g, y, f=function: f(g, y, -1, y.dtype), tensor, tensor)
reduced("_safe_softmax", lambda x: aten._safe_softmax.default(x, -1, dtype=F64))
for down in (False, True):
    for dim in (0, -1):
        reduced(
            "sort",
            lambda x, dim=dim, down=down: aten.sort.stable(
                x, stable=True, dim=dim, descending=down
            ),
        )
    reduced(
        "argsort", lambda x, down=down: aten.argsort.stable(x, stable=True, dim=-1, descending=down)
    )
    # chlo.top_k leaves it to the backend where NaN goes.
    reduced("topk", lambda x, down=down: aten.topk.default(x, 2, -1, down)[0], FINITE)
    reduced("topk", lambda x, down=down: aten.topk.default(x, 2, 0, down)[0])
edges = torch.tensor([1.0, 2.0, 2.0, 4.0])
for options in ({}, {"right": True}, {"side": "left"}, {"side": "right"}):
    call(
        "searchsorted", lambda x, y, options=options: aten.searchsorted.Tensor(x, y, **options),
        edges, torch.tensor([0.5, 2.0, 4.0, 5.0]),
    )  # fmt: skip
for right in (False, True):
    call(
        "bucketize", lambda x, y, right=right: aten.bucketize.Tensor(y, x, right=right),
        edges, torch.tensor([[0.5, 2.0], [4.0, 5.0]]),
    )  # fmt: skip
