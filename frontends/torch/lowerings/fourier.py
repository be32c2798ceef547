"""Fourier transforms: one StableHLO transform per dim.

Of several dims the last one is that of a real input or result.  The scales are torch's: 0 none, 1
one over the root of the number of points, 2 one over it; StableHLO's inverses divide by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, axis
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


def _along(value: Value, dim: int, kind: str, length: int) -> Value:
    """The transform of a dim, ``length`` points long in the real or the one domain."""
    shape = op.shape_of(value)
    order = [at for at in range(len(shape)) if at != dim] + [dim]
    value = op.transpose(value, order)
    made = hlo.fft(value, hlo.FftTypeAttr.get(kind), op.integers([length]))
    back = [order.index(at) for at in range(len(shape))]
    return op.transpose(made, back)


def _scaled(value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    dtype = op.dtype_of(value)
    if not dtypes.is_complex(dtype):
        return op.multiply(value, op.like(factor, value))
    parts = (hlo.real(value), hlo.imag(value))
    return hlo.complex(*(op.multiply(part, op.like(factor, part)) for part in parts))


def _factor(normalization: int, count: int, inverse: bool) -> float:
    """What a result of StableHLO's transforms is multiplied by."""
    wanted = (1.0, 1 / math.sqrt(count), 1 / count)[normalization]
    return wanted * count if inverse else wanted


def _points(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[dim] for dim in dims)


@lowers("aten._fft_c2c")
def _complex_to_complex(
    call: Call, self: Any, dim: Any, normalization: int, forward: bool, **_: Any
) -> Value:
    value = self.value
    dims = [axis(one, self.rank) for one in dim]
    for one in dims:
        value = _along(value, one, "FFT" if forward else "IFFT", self.shape[one])
    count = _points(self.shape, dims)
    return _scaled(value, _factor(normalization, count, not forward))


@lowers("aten._fft_r2c")
def _real_to_complex(
    call: Call, self: Any, dim: Any, normalization: int, onesided: bool, **_: Any
) -> Value:
    *dims, last = (axis(one, self.rank) for one in dim)
    if onesided:
        value = _along(self.value, last, "RFFT", self.shape[last])
    else:
        value = _along(op.convert(self.value, call.dtype), last, "FFT", self.shape[last])
    for one in dims:
        value = _along(value, one, "FFT", self.shape[one])
    count = _points(self.shape, [*dims, last])
    return _scaled(value, _factor(normalization, count, False))


@lowers("aten._fft_c2r")
def _complex_to_real(
    call: Call, self: Any, dim: Any, normalization: int, last_dim_size: int, **_: Any
) -> Value:
    *dims, last = (axis(one, self.rank) for one in dim)
    value = self.value
    for one in dims:
        value = _along(value, one, "IFFT", self.shape[one])
    value = _along(value, last, "IRFFT", last_dim_size)
    return _scaled(value, _factor(normalization, _points(call.shape, [*dims, last]), True))
