"""Casts to FP8 with one scale per tensor or one per block, and what is made of them.

The idea: a quantizer of the package says which copies a tensor needs: its rows, and its columns for
products along the other dim.  One kernel reads the tensor and writes all copies with their scales.
With current scaling another one finds the largest value first; with delayed scaling that value goes
into a history.

    quantize(x, quantizer); bgrad_quantize(gradient, quantizer)
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from flint.errors import FlintError
from flint.frontends.torch.programs.transformer_engine.enums import torch_dtype
from flint.frontends.torch.programs.transformer_engine.kernels import kernel, writing_kernel
from flint.frontends.torch.user_lines import at_user_line


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a quantizer makes.

    Attributes:
        module, name: of its class of tensors; the storage's has "Storage" added.
        attributes: of rows, of their scales, of columns, of theirs; scales may be shared.
        keywords: the same as arguments of the class.
        blocks: there is a scale for each block.
        transposed: columns are rows of a transposed copy.
    """

    module: str
    name: str
    attributes: tuple[str, str, str, str]
    keywords: tuple[str, str, str, str]
    blocks: bool
    transposed: bool


#: Places of arrays beside those of ``_Kind.attributes``: a history of largest values, sums of rows.
_HISTORY, _SUM = 4, 5

_KEYWORDS = ("rowwise_data", "rowwise_scale_inv", "columnwise_data", "columnwise_scale_inv")
_BLOCKS = ("_rowwise_data", "_rowwise_scale_inv", "_columnwise_data", "_columnwise_scale_inv")
_ONE = ("_data", "_scale_inv", "_transpose", "_scale_inv")
_ONE_KEYWORDS = ("data", "fp8_scale_inv", "data_transpose", "fp8_scale_inv")
_PER_TENSOR = _Kind("float8_tensor", "Float8Tensor", _ONE, _ONE_KEYWORDS, False, True)
_KINDS = {
    "Float8Quantizer": _PER_TENSOR,
    "Float8CurrentScalingQuantizer": _PER_TENSOR,
    "MXFP8Quantizer": _Kind(
        "mxfp8_tensor", "MXFP8Tensor", _BLOCKS, _KEYWORDS, True, False
    ),
    "Float8BlockQuantizer": _Kind(
        "float8_blockwise_tensor", "Float8BlockwiseQTensor", _BLOCKS, _KEYWORDS, True, True
    ),
}  # fmt: skip


def quantize(x: Tensor, quantizer: Any, output: Any = None, noop: Tensor | None = None) -> Any:
    """A quantised tensor of x, or the one given, written."""
    return _quantised(x, quantizer, output, False)[0]


def bgrad_quantize(grad: Tensor, quantizer: Any) -> tuple[Tensor, Any]:
    """A gradient quantised, and its sum over rows: that of a bias."""
    made, bias = _quantised(grad, quantizer, None, True)
    return bias, made


def split_quantize(
    x: Tensor, sizes: Sequence[int], quantizers: Sequence[Any], *_: Any, **__: Any
) -> list[Any]:
    """Groups of rows, each with its own quantizer."""
    parts = torch.split(x.reshape(-1, x.shape[-1]), list(sizes))
    return [quantize(part, by) for part, by in zip(parts, quantizers, strict=True)]


def dequantize(x: Any, dtype: Any) -> Tensor:
    """A plain tensor of a quantised one."""
    kind = _kind_of(x)
    rows, scales, columns, others = (getattr(x, name) for name in kind.attributes)
    data, scale = (rows, scales) if rows is not None else (columns, others)
    made = _dequantized(data, scale, torch_dtype(dtype))
    return made.movedim(0, -1) if rows is None and kind.transposed else made


def create_empty_quantized_tensor(
    quantizer: Any, shape: list[int], dtype: torch.dtype, device: Any, pin_memory: bool = False
) -> Any:
    """A quantised tensor without values."""
    like = torch.empty(shape, dtype=dtype, device=device)
    plan = _plan(like, quantizer)
    return _made(like, quantizer, plan, _empty(like, plan))


def fp8_transpose(data: Tensor, dtype: Any, *, out: Tensor | None = None) -> Tensor:
    """The transposed copy [size, rows] of FP8 data [rows, size]."""
    rows = data.reshape(-1, data.shape[-1])
    if out is None:
        return rows.t().contiguous()
    return out.copy_(rows.t().reshape(out.shape))


def swap_first_dims(data: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy with the first two dims exchanged."""
    made = data.transpose(0, 1)
    return made.contiguous() if out is None else out.copy_(made)


def compute_amax(x: Tensor, amax: Tensor) -> None:
    """The largest absolute value."""
    _amax(x, out=[amax])


def fused_amax_and_scale_update_after_reduction(
    reduced: Tensor, histories: list[Tensor], scales: list[Tensor], *_: Any
) -> None:
    """New scales from the histories of all tensors, in one kernel."""
    _new_scales(reduced, histories, out=[*histories, *scales])


def swizzle_scales_for_gemm_(x: Any) -> None:
    """Scales in the order that cuBLAS reads: a copy of them."""
    x._with_gemm_swizzled_scales = True


def is_quantised(item: Any) -> bool:
    """Whether an operand is a quantised tensor of the package."""
    return hasattr(item, "_fp8_dtype")


def given_out(made: Any, quantizer: Any, out: Any) -> Any:
    """What a kernel has made, quantised if that is wanted, in the tensor given if there is one."""
    if quantizer is not None:
        return quantize(made, quantizer, out)
    return made if out is None else out.copy_(made)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The arrays of a quantised tensor.

    Attributes:
        kind: of tensors.
        parts: (place in ``kind.attributes``, shape) of each array.
    """

    kind: _Kind
    parts: tuple[tuple[int, tuple[int, ...]], ...]


def _kind_of(item: Any) -> _Kind:
    """The kind of a tensor of the package, or of one that only stores its arrays."""
    name = type(item).__name__
    found = next((kind for kind in _KINDS.values() if name.startswith(kind.name)), None)
    if found is None:
        raise FlintError(f"{name} of Transformer Engine{at_user_line()} has no stand-in")
    return found


def _plan(x: Tensor, quantizer: Any) -> _Plan:
    kind = _KINDS.get(type(quantizer).__name__)
    if kind is None:
        raise FlintError(
            f"{type(quantizer).__name__} of Transformer Engine{at_user_line()} has no stand-in"
        )
    shape = tuple(x.shape)
    columns = (shape[-1], *shape[:-1]) if kind.transposed else shape
    # From Blackwell on, products with one scale per tensor take either layout.
    only_rows = not kind.blocks and torch.cuda.get_device_capability()[0] >= 10
    parts: list[tuple[int, tuple[int, ...]]] = []
    if quantizer.rowwise_usage or only_rows:
        parts.append((0, shape))
        parts += [(1, tuple(quantizer.get_scale_shape(shape, False)))] if kind.blocks else []
    if quantizer.columnwise_usage and not only_rows:
        parts.append((2, columns))
        parts += [(3, tuple(quantizer.get_scale_shape(shape, True)))] if kind.blocks else []
    if not kind.blocks:
        parts.append((1, (1,)))
    return _Plan(kind, tuple(parts))


def _quantised(x: Tensor, quantizer: Any, output: Any, bias: bool) -> tuple[Any, Any]:
    """A quantised tensor, and the sum over rows if it is wanted."""
    if is_quantised(x):
        x = dequantize(x, x.dtype)
    plan = _plan(x, quantizer)
    scale = _scale(x, quantizer)
    places, shapes = [at for at, _ in plan.parts], [shape for _, shape in plan.parts]
    if output is None:
        output = _made(x, quantizer, plan, _empty(x, plan))
    targets = [getattr(output, plan.kind.attributes[at]) for at in places]
    if type(quantizer).__name__ == "Float8Quantizer":
        places, targets = [*places, _HISTORY], [*targets, quantizer.amax]
    sums = x.new_empty(x.shape[-1]) if bias else None
    if sums is not None:
        places, targets = [*places, _SUM], [*targets, sums]
    kept = [at for at, item in enumerate(targets) if item is not None]
    shapes = [tuple(targets[at].shape) for at in kept]
    _quantize(
        x, scale, [places[at] for at in kept],
        [size for shape in shapes for size in (len(shape), *shape)],
        out=[targets[at] for at in kept],
    )  # fmt: skip
    if hasattr(output, "_transpose_invalid"):
        output._transpose_invalid = output._transpose is None
    return output, sums


def _empty(x: Tensor, plan: _Plan) -> list[Tensor]:
    """Memory for the arrays of a quantised tensor."""
    bytes_of = {0: torch.uint8, 2: torch.uint8}
    scales = torch.uint8 if plan.kind.name == "MXFP8Tensor" else torch.float32  # powers of two
    return [x.new_empty(shape, dtype=bytes_of.get(at, scales)) for at, shape in plan.parts]


def _scale(x: Tensor, quantizer: Any) -> Tensor | None:
    """The scale, where it is known before the cast."""
    if type(quantizer).__name__ == "Float8Quantizer":
        scale: Tensor = quantizer.scale
        return scale
    if type(quantizer).__name__ != "Float8CurrentScalingQuantizer":
        return None
    amax = x.new_empty(1, dtype=torch.float32)
    _amax(x, out=[amax])
    if quantizer.with_amax_reduction:
        dist.all_reduce(amax, dist.ReduceOp.MAX, group=quantizer.amax_reduction_group)
    return amax


def _made(x: Tensor, quantizer: Any, plan: _Plan, arrays: Sequence[Tensor]) -> Any:
    """The package's tensor of arrays; its first base only stores them."""
    module: Any = importlib.import_module(f"transformer_engine.pytorch.tensor.{plan.kind.module}")
    of_tensor = getattr(module, plan.kind.name)
    storage = of_tensor.__bases__[0]
    given: dict[str, Any] = dict.fromkeys(plan.kind.keywords)
    for (at, _), array in zip(plan.parts, arrays, strict=True):
        given[plan.kind.keywords[at]] = array
    more = {
        "fake_dtype": x.dtype, "with_gemm_swizzled_scales": False, "data_format": None,
        "is_2D_scaled": getattr(quantizer, "block_scaling_dim", 1) == 2,
    }  # fmt: skip
    taken = inspect.signature(storage.__new__).parameters
    given |= {key: value for key, value in more.items() if key in taken}
    given |= {"fp8_dtype": quantizer.dtype, "quantizer": quantizer}
    if quantizer.internal:
        return storage(**given)
    given.pop("fake_dtype", None)
    return of_tensor(shape=x.shape, dtype=x.dtype, **given)


@writing_kernel
def _quantize(x: Tensor, scale: Tensor | None, places: list[int], flat: list[int]) -> list[Tensor]:
    """Arrays of the places named; ``flat``: each one's rank and shape."""
    wide = x.float()
    top = wide.abs().amax()
    cast = (wide / top if scale is None else wide * scale).to(torch.uint8)
    found = []
    for place in places:
        shape, flat = flat[1 : flat[0] + 1], flat[flat[0] + 1 :]
        if place == 0:
            made = cast
        elif place == 2:
            turned = shape != list(x.shape)
            made = cast.reshape(-1, x.shape[-1]).t() if turned else cast + 0
        elif place == _SUM:
            made = wide.reshape(-1, x.shape[-1]).sum(0)
        else:
            made = top.expand(shape)
        found.append(made.reshape(shape))
    return found


@kernel
def _dequantized(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return (data.float() * scale.float().amax()).to(dtype)


@writing_kernel
def _amax(x: Tensor) -> list[Tensor]:
    return [x.float().abs().amax().reshape(1)]


@writing_kernel
def _new_scales(reduced: Tensor, histories: list[Tensor]) -> list[Tensor]:
    made = [item.roll(-1, 0) for item in histories]
    return [*made, *(item.amax(0) for item in histories)]
