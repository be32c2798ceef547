"""``_foreach_*``: one kernel over a list of tensors, each computed as the op on one.

The idea: the op behind ``_foreach_add_.List`` is ``aten.add``; it is lowered per tensor with each
list argument's own entry.  Every parameter is read before anything is returned, so that lists which
alias each other are safe.
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import norm
from flint.frontends.torch.lowerings.table import TABLE, lowering_of, lowers

#: Ops that go through their one-tensor op with the arguments as they are.
_PLAIN = (
    "add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow", "lerp",
    "abs", "acos", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "log2", "neg",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "tan", "tanh", "trunc",
    "copy", "max", "zero",
)  # fmt: skip


def _entry(item: Any, at: int) -> Any:
    return item[at] if isinstance(item, tuple | list) else item


def _one(call: Call, at: int) -> Call:
    base = call.base.removeprefix("_foreach_")
    return Call(f"aten.{base}.{call.overload}", (call.targets[at],))


def _foreach(call: Call, *args: Any, **kwargs: Any) -> list[Value]:
    values = []
    for at in range(len(call.targets)):
        one = _one(call, at)
        lowering = lowering_of(one.name)
        if lowering is None:
            raise Unsupported(call.name)
        named = {name: _entry(item, at) for name, item in kwargs.items()}
        values.append(lowering(one, *[_entry(item, at) for item in args], **named))
    return values


TABLE.update({f"aten._foreach_{name}": _foreach for name in _PLAIN})


@lowers("aten._foreach_addcmul", "aten._foreach_addcdiv")
def _add_scaled(
    call: Call, self: Any, tensor1: Any, tensor2: Any, scalars: Any = None, *, value: Any = 1,
    **_: Any,
) -> list[Value]:  # fmt: skip
    """Its scalars are one number, a list of numbers, or a tensor with an entry per tensor."""
    factor = value if scalars is None else scalars
    values = []
    for at, spec in enumerate(call.targets):
        one = _one(call, at)
        dtype = one.compute
        x, a, b = (value_at(item[at], spec.shape, dtype) for item in (self, tensor1, tensor2))
        both = op.multiply(a, b) if one.base == "addcmul" else op.divide(a, b)
        if isinstance(factor, Operand):
            part = op.reshape(op.slice_dim(factor.value, 0, at, at + 1), ())
            scale = value_at(part, spec.shape, dtype)
        else:
            scale = op.constant(_entry(factor, at), spec.shape, dtype)
        values.append(op.add(x, op.multiply(scale, both)))
    return values


@lowers("aten._foreach_norm")
def _norms(call: Call, self: Any, ord: Any = 2, dtype: Any = None) -> list[Value]:
    values = []
    for item, spec in zip(self, call.targets, strict=True):
        value = value_at(item, item.shape, Call(call.name, (spec,)).compute)
        values.append(norm(value, ord, list(range(item.rank))))
    return values
