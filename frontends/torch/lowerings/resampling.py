"""Gradients of upsampling: the gradient of a result goes to the inputs that it was computed from.

The idea: along each dim a result is a sum of a few neighbours with weights that follow from the
sizes alone; over several dims, of their products.  So the gradient of n results from k neighbours
along each of d dims is n k^d products and as many sums, plus the weights, which all planes share.
Which neighbours and weights: aten/src/ATen/native/UpSample.h.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers

#: Along a dim: places int64 [out, k] and weights float32 [out, k] of a result's neighbours.
_Neighbours = tuple[NDArray[np.int64], NDArray[np.float32]]

#: Slope of the cubic convolution between neighbours, as in PyTorch.
_CUBIC = -0.75


def _nearest(
    size: int, out: int, scale: float | None, _: bool = False, *, centred: bool = False
) -> _Neighbours:
    step = np.float32(1 / scale if scale else size / out)
    at = np.arange(out, dtype=np.float32)
    place = np.floor((at + np.float32(0.5)) * step if centred else at * step)
    return np.minimum(place.astype(np.int64), size - 1)[:, None], np.ones((out, 1), np.float32)


def _positions(size: int, out: int, scale: float | None, corners: bool) -> NDArray[np.float32]:
    """Where results lie among the inputs, [out]."""
    at = np.arange(out, dtype=np.float32)
    if corners:
        return at * np.float32((size - 1) / (out - 1) if out > 1 else 0)
    step = np.float32(1 / scale if scale else size / out)
    return (at + np.float32(0.5)) * step - np.float32(0.5)


def _linear(size: int, out: int, scale: float | None, corners: bool) -> _Neighbours:
    at = np.maximum(_positions(size, out, scale, corners), np.float32(0))
    first = np.minimum(np.floor(at).astype(np.int64), size - 1)
    part = np.clip(at - first.astype(np.float32), 0, 1).astype(np.float32)
    second = np.minimum(first + 1, size - 1)
    return np.stack([first, second], 1), np.stack([1 - part, part], 1)


def _cubic(size: int, out: int, scale: float | None, corners: bool) -> _Neighbours:
    at = _positions(size, out, scale, corners)
    first = np.floor(at).astype(np.int64)
    part = at - first.astype(np.float32)
    places, weights = [], []
    for shift in (-1, 0, 1, 2):
        x = np.abs(part - np.float32(shift))
        near = ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1
        far = ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC
        places.append(np.clip(first + shift, 0, size - 1))
        weights.append(np.where(x <= 1, near, far).astype(np.float32))
    return np.stack(places, 1), np.stack(weights, 1)


#: Ops -> what finds a result's neighbours: of a size, the result's, the scale, and whether corners
#: are aligned.
_KINDS: dict[str, Callable[..., _Neighbours]] = {
    **{f"upsample_nearest{dims}d": _nearest for dims in (1, 2, 3)},
    **{f"_upsample_nearest_exact{dims}d": functools.partial(_nearest, centred=True)
       for dims in (1, 2, 3)},
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), _linear),
    "upsample_bicubic2d": _cubic,
}  # fmt: skip


@lowers(*(f"aten.{name}_backward" for name in _KINDS))
def _backward(call: Call, grad_output: Any, *args: Any, **kwargs: Any) -> Value:
    given = call.arguments((grad_output, *args), kwargs)
    scales = [item for name, item in given.items() if name.startswith("scales")]
    dims = list(zip(call.shape[2:], grad_output.shape[2:], scales, strict=True))
    whole = all(out % size == 0 and scale in (None, out / size) for size, out, scale in dims)
    if whole and "nearest" in call.base:
        return _summed(call, grad_output)
    kind = _KINDS[call.base.removesuffix("_backward")]
    corners = given.get("align_corners", False)
    return _spread(call, grad_output, [kind(*each, corners) for each in dims])


def _summed(call: Call, grad_output: Any) -> Value:
    """Gradients of elements that were repeated, which lie side by side."""
    split = list(call.shape[:2])
    for size, out in zip(call.shape[2:], grad_output.shape[2:], strict=True):
        split += [size, out // size]
    grad = value_at(grad_output, grad_output.shape, call.compute)
    return op.reduce(op.reshape(grad, split), list(range(3, len(split), 2)))


def _spread(call: Call, grad_output: Any, found: list[_Neighbours]) -> Value:
    """Gradients [n, c, *out] times weights, added up at the places that they belong to."""
    dims = range(len(found))
    sizes, out = call.shape[2:], grad_output.shape[2:]
    planes, places = math.prod(call.shape[:2]), math.prod(out)
    dtype = call.compute
    moved = [*(2 + at for at in dims), 0, 1]
    grad = op.transpose(value_at(grad_output, grad_output.shape, dtype), moved)
    rows = op.reshape(grad, (places, planes))
    result = op.constant(0, (math.prod(sizes), planes), dtype)
    for chosen in itertools.product(*(range(item[0].shape[1]) for item in found)):
        place, weight = None, None
        for at, (of, one) in enumerate(zip(found, chosen, strict=True)):
            along = op.literal(of[0][:, one] * math.prod(sizes[at + 1 :]), "int64")
            along = op.broadcast(along, out, [at])
            place = along if place is None else op.add(place, along)
            if of[1].shape[1] > 1:
                factor = op.broadcast(
                    op.convert(op.literal(of[1][:, one], "float32"), dtype), out, [at]
                )
                weight = factor if weight is None else op.multiply(weight, factor)
        part = rows
        if weight is not None:
            share = op.broadcast(op.reshape(weight, (places,)), (places, planes), [0])
            part = op.multiply(rows, share)
        result = op.scatter(result, op.reshape(place, (places, 1)), part, "add")
    back = op.reshape(result, (*sizes, *call.shape[:2]))
    return op.transpose(back, [len(sizes), len(sizes) + 1, *dims])
