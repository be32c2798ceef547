"""FLOPs of PyTorch's ops by the shapes of their operands, as profilers record them.

The idea: a table gives each op's formula and the positions of its operands in its schema
(aten/src/ATen/native/native_functions.yaml).  Products are GEMMs; convolutions, attention, lookups
and dense linear algebra have tables of their own (``convolution_work``, ``attention_work``,
``lookup_work``, ``dense_work``); every other op has a number of operations per element, the same as
its lowering to StableHLO (``tests/cost/test_aten_work.py`` compares them).

    work_of("mm", [[((16, 32), "f32")], [((32, 8), "f32")]], [None, None]).items    # 8192 FLOPs
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

from flint.cost import (
    attention_work,
    convolution_work,
    dense_work,
    lookup_work,
    old_gradients,
    upsampling_work,
)
from flint.cost.op_work import block_scaled
from flint.cost.recorded_op import Arguments, Formula, Items, OpWork, Tensor, product
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Unit, WorkItem

#: Larger counts are not believed, so that sums stay within 64 bits.
_LARGEST: Final = 1 << 60


def work_of(
    name: str,
    arguments: Arguments,
    values: Sequence[Any],
    otherwise: tuple[int, int] | None = None,
) -> OpWork:
    """FLOPs of an op, and its bytes if they are not those of its operands.

    Args:
        name: with or without its namespace, without overload.
        arguments: tensors of each argument.
        values: numbers, truth values and lists of these per argument, None for other arguments.
        otherwise: operations and function evaluations per element of an op without a formula.
    """
    base = _base(name)
    formula = FORMULAS.get(name) or FORMULAS.get(base) or _by_pattern(base)
    if formula is None and otherwise is not None:
        formula = _per_element(*otherwise)
    try:
        found = formula(arguments, values) if formula is not None else None
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        found = None  # shapes that do not fit the schema
    work = found if isinstance(found, OpWork) else OpWork(found)
    if any(not 0 <= item.flops < _LARGEST for item in work.items or ()):
        return OpWork(None, work.moved and (0, 0))
    if any(not 0 <= moved < _LARGEST for moved in work.moved or ()):
        return work._replace(moved=(0, 0))
    return work


def needs_values(name: str) -> bool:
    """Whether an op's work depends on more than shapes: on strides, on a mask, on a dim."""
    base = _base(name)
    return (
        base in convolution_work.FORMULAS
        or base in dense_work.TRANSFORMS
        or base in upsampling_work.FORMULAS
        or attention_work.needs_values(name)
        or attention_work.needs_values(base)
        or lookup_work.needs_values(base)
    )


def _base(name: str) -> str:
    """An op's name without its namespace and the mark of one that works in place."""
    head = name.rpartition("::")[2]
    return head.rstrip("_") if not head.endswith("__") else head


def _dtype(tensors: Sequence[Tensor]) -> str:
    known = [dtype for _, dtype in tensors if dtype in DTYPE_BITS]
    real = [dtype for dtype in known if dtype.startswith(("f", "bf"))]
    return (real or known or ["f32"])[0]


def _per_element(operations: int, functions: int, place: int | None = None) -> Formula:
    """Operations and evaluations per element of an argument, by default of the largest operand."""

    def formula(arguments: Arguments, values: Sequence[Any]) -> Items | None:
        tensors = [tensor for argument in arguments for tensor in argument]
        if not tensors and not operations + functions:
            return (WorkItem(Unit.VECTOR, "f32", 0),)
        if not tensors or (place is not None and not arguments[place]):
            return None
        if place is None:
            count = max(prod(shape) for shape, _ in tensors)
            count = max(count, *(sum(prod(shape) for shape, _ in some) for some in arguments))
        else:
            count = sum(prod(shape) for shape, _ in arguments[place])
        dtype = _dtype(tensors)
        items = [WorkItem(Unit.VECTOR, dtype, operations * count)]
        if functions:
            items.append(WorkItem(Unit.TRANSCENDENTAL, dtype, functions * count))
        return tuple(items)

    return formula


#: Element types that are used only for scales of blocks.
_BLOCK_SCALES: Final = frozenset({"f8E8M0FNU"})


def _matrices(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """A product under a library's name: rows by a weight, which has outputs first or last.

    Some libraries are given the result as the first operand.
    """
    tensors = [tensor for argument in arguments for tensor in argument if len(tensor[0]) >= 2]
    shapes = [shape for shape, _ in tensors]
    for i, (a, b) in enumerate(pairwise(shapes)):
        dims = _multiplied(a, b)
        inner = _multiplied(*shapes[i + 1 : i + 3]) if i + 2 < len(shapes) else None
        is_result = inner and (prod(a[:-1]), a[-1]) == (inner[0] * inner[1], inner[2])
        if dims and not is_result:
            dtype = tensors[i][1]
            scaled = any(kind in _BLOCK_SCALES for argument in arguments for _, kind in argument)
            return (product(dims, block_scaled(dtype) if scaled else dtype or "bf16"),)
    return None


def _multiplied(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of a product of matrices, the second of which may be transposed."""
    if a[-1] not in b[-2:] or not (len(b) == 2 or a[:-2] == b[:-2]):
        return None
    wide = b[-2] if b[-1] == a[-1] else b[-1]
    return prod(b[:-2]), prod(a[:-1]) if len(b) == 2 else a[-2], wide, a[-1]


def _into(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """A product into the first argument, of the second one and a weight that is not an argument."""
    (result, _), (a, dtype) = arguments[0][0], arguments[1][0]
    rows = prod(a[:-1])
    if rows != prod(result[:-1]):
        return None
    return (product((1, rows, result[-1], a[-1]), dtype or "bf16"),)


def _grouped(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """Groups of rows, each with its own matrix, or sums over groups: each row meets one matrix."""
    (a, dtype), (b, _) = arguments[0][0], arguments[1][0]
    if len(a) == 3:
        return _matrices(arguments, values)
    return (product((1, a[0], b[-1], a[1]), dtype or "bf16"),)


def _experts(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """Tokens through the experts that they are routed to, as vLLM and SGLang fuse them.

    Arguments are tokens (t, d), weights in (e, 2 f, d) or (e, f, d) and out (e, d, f), and the
    weight and the number of each choice (t, k).  Packed weights have other sizes, from which
    nothing follows.
    """
    (x, dtype), (up, stored), (down, _), _, (chosen, _) = (item[0] for item in arguments[:5])
    tokens, wide, narrow = prod(chosen), up[-2], down[-1]
    if up[-1] != x[-1] or down[-2] != x[-1] or wide not in (narrow, 2 * narrow):
        return None
    kind = stored if stored.startswith("f8") else dtype or "bf16"
    return (
        product((1, tokens, wide, x[-1]), kind),
        product((1, tokens, x[-1], narrow), kind),
        WorkItem(Unit.VECTOR, dtype or "bf16", 2 * tokens * narrow),
        WorkItem(Unit.TRANSCENDENTAL, dtype or "bf16", tokens * narrow),
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS: Final = _names(
    "exp exp2 expm1 log log1p log2 log10 sin cos tan tanh sigmoid erf erfinv sqrt rsqrt"
)
_ARITHMETIC: Final = _names(
    "add sub mul div neg abs square reciprocal pow relu clamp where eq ne lt le gt ge maximum "
    "minimum sum mean amax amin max min rsub fma bitwise and or not ceil floor round"
)
_TRITON: Final = re.compile(r"triton_(?:poi|red|per|for)_fused_(\w+?)_\d+$")
_LIBRARY_PRODUCT: Final = re.compile(
    r"gemm(?!v)|scaled_mm|_mm$|fp8_linear|packed_linear|matmul|triton_tem_\w*mm|^(f8|i8|bf16)(f8|i8)bf16"
)


def _by_pattern(name: str) -> Formula | None:
    """A fused kernel of Inductor, from the ops that its name lists; or a library's product."""
    fused = _TRITON.fullmatch(name)
    if fused is not None:
        words = fused[1].split("_")
        operations = sum(word in _ARITHMETIC for word in words)
        return _per_element(operations, sum(word in _FUNCTIONS for word in words))
    if attention_work.FLASHINFER.fullmatch(name):
        return attention_work.of_pages
    if lookup_work.FBGEMM.fullmatch(name):
        return lookup_work.unknown
    return _matrices if _LIBRARY_PRODUCT.search(name) else None


#: Operations and function evaluations per element of the first argument (of all tensors of a list).
PER_ELEMENT: Final[dict[str, tuple[int, int]]] = {
    "native_layer_norm": (7, 0), "native_layer_norm_backward": (13, 0),
    "native_batch_norm": (7, 0), "native_batch_norm_backward": (9, 0),
    "cudnn_batch_norm": (7, 0), "cudnn_batch_norm_backward": (9, 0),
    "miopen_batch_norm": (7, 0), "miopen_batch_norm_backward": (9, 0),
    "_fused_rms_norm": (4, 0),
    "_softmax": (4, 1), "_softmax_backward_data": (4, 0),
    "_log_softmax": (4, 1), "_log_softmax_backward_data": (3, 1),
    "silu": (1, 1), "silu_backward": (5, 1), "gelu": (4, 1), "gelu_backward": (9, 2),
    "threshold_backward": (2, 0), "native_dropout": (7, 1),
    "_fused_adamw": (14, 1), "_fused_sgd": (9, 0),
    "_foreach_addcdiv": (3, 0), "_foreach_addcmul": (3, 0), "_foreach_lerp": (3, 0),
}  # fmt: skip

FORMULAS: Final[dict[str, Formula]] = {
    **{name: _per_element(*counts, 0) for name, counts in PER_ELEMENT.items()},
    **{name: _per_element(0, 1) for name in _FUNCTIONS},
    **{f"_foreach_{name}": _per_element(0, 1, 0) for name in _FUNCTIONS},
    **convolution_work.FORMULAS,
    **old_gradients.FORMULAS,
    **attention_work.FORMULAS,
    **lookup_work.FORMULAS,
    **dense_work.FORMULAS,
    **upsampling_work.FORMULAS,
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"), _grouped),
    **dict.fromkeys(("inplace_fused_experts", "outplace_fused_experts", "fused_experts"), _experts),
    **dict.fromkeys(("onednn_mm", "onednn_scaled_mm"), _into),
    # Norms of vLLM's and SGLang's kernels, whose result is the first argument or which work in
    # place.
    "rms_norm": _per_element(4, 0, 0),
    "fused_add_rms_norm": _per_element(5, 0, 0),
    "silu_and_mul": _per_element(2, 1, 0),
}
