"""Complex numbers and their parts; magnitude, direction and conjugates, also of real numbers."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import is_nan, pair, sign
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


@lowers("aten.complex")
def _complex(call: Call, real: Any, imag: Any, **_: Any) -> Value:
    part = dtypes.PARTS[call.dtype]
    return hlo.complex(*pair(call, real, imag, part))


@lowers("aten.polar")
def _polar(call: Call, abs: Any, angle: Any, **_: Any) -> Value:
    size, turn = pair(call, abs, angle, dtypes.PARTS[call.dtype])
    return hlo.complex(op.multiply(size, hlo.cosine(turn)), op.multiply(size, hlo.sine(turn)))


@lowers("aten._conj_physical")
def _conjugate(call: Call, self: Any, **_: Any) -> Value:
    return op.conjugate(self.value)


@lowers("aten.abs")
def _abs(call: Call, self: Any, **_: Any) -> Value:
    if dtypes.is_complex(self.dtype):
        return hlo.abs(self.value)
    if dtypes.is_unsigned(self.dtype):
        return self.value
    return hlo.abs(value_at(self, call.shape, call.compute))


@lowers("aten.sgn")
def _sgn(call: Call, self: Any, **_: Any) -> Value:
    """The sign, or a complex number's direction."""
    return hlo.sign(self.value) if dtypes.is_complex(self.dtype) else sign(self.value)


@lowers("aten.angle")
def _angle(call: Call, self: Any, **_: Any) -> Value:
    if not dtypes.is_complex(self.dtype):
        x = value_at(self, call.shape, call.compute)
        zero = op.like(0, x)
        turn = op.select(op.compare("LT", x, zero), op.like(math.pi, x), zero)
        return op.select(is_nan(x), x, turn)
    return hlo.atan2(hlo.imag(self.value), hlo.real(self.value))
