"""The input of a lowering: the call of one ATen op, by types.

The idea: a lowering is a function whose parameters are those of the op's schema, in its order and
with its defaults, after the ``Call``; it adds StableHLO ops and returns a value per target, None
for an unchanged target.  Tensors come as ``Operand``: a type whose ``value`` becomes a parameter of
the decomposition at its first use, so that a tensor that an op only writes is not read.

    @lowers("aten.mm")
    def mm(call, self, mat2):
        return dot(self.value, mat2.value, ([1], [0]), dtype=call.accumulate)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from flint.errors import FlintError
from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.operations import Value


class Unsupported(FlintError):
    """A lowering does not support a variant of its op, which the text names."""


class Spec(NamedTuple):
    """A tensor's type: shape, and dtype by torch's name."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


class Operand:
    """A tensor operand of an op.

    Attributes:
        spec: its type; ``shape`` and ``dtype`` are its parts.
        numbers: its values, if an op's work depends on them and they are known.
        kept: the dims of an index along which its elements are not repeated; None if none are.
    """

    __slots__ = ("_ask", "_value", "kept", "numbers", "spec")

    def __init__(
        self,
        spec: Spec,
        ask: Callable[[], Value],
        numbers: tuple[int, ...] | None = None,
        kept: tuple[int, ...] | None = None,
    ) -> None:
        self.spec, self.numbers, self.kept = spec, numbers, kept
        self._ask = ask
        self._value: Value = None

    @property
    def once(self) -> Value:
        """Its value without repetitions, along the dims ``kept``."""
        if self._value is None:
            self._value = self._ask()
        return self._value

    @property
    def value(self) -> Value:
        """Its value; reading it makes the op a reader of the tensor."""
        once = self.once
        return once if self.kept is None else op.broadcast(once, self.shape, list(self.kept))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.spec.shape

    @property
    def dtype(self) -> str:
        """Its dtype."""
        return self.spec.dtype

    @property
    def rank(self) -> int:
        """How many dims it has."""
        return len(self.spec.shape)


@dataclass(frozen=True, slots=True)
class Call:
    """The call of an op.

    Attributes:
        name: "aten.add.Tensor".
        targets: types of the tensors that it writes or returns, in the order in which a lowering
            returns values: first existing tensors that it writes, by their place in the arguments,
            then new results.
    """

    name: str
    targets: tuple[Spec, ...]

    @property
    def overload(self) -> str:
        """The part of the name after the last dot."""
        return self.name.rpartition(".")[2]

    @property
    def base(self) -> str:
        """The op's name without namespace, overload and the underscore of in-place ops."""
        name = self.name.split(".")[1]
        return name[:-1] if name.endswith("_") and not name.endswith("__") else name

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by the names of the op's schema, with its defaults."""
        namespace, base, overload = self.name.split(".")
        op: Any = getattr(getattr(getattr(torch.ops, namespace), base), overload)
        named = {item.name: item.default_value for item in op._schema.arguments}
        return named | dict(zip(named, args, strict=False)) | dict(kwargs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first target."""
        return self.targets[0].shape

    @property
    def dtype(self) -> str:
        """Of the first target."""
        return self.targets[0].dtype

    @property
    def compute(self) -> str:
        """The dtype in which a kernel with the first target's dtype computes."""
        return dtypes.compute_dtype(self.dtype)


def value_at(item: Any, shape: Sequence[int], dtype: str) -> Value:
    """An operand, value or Python number, converted and broadcast."""
    if isinstance(item, Operand):
        item = item.value
    if isinstance(item, bool | int | float | complex):
        return op.constant(item, shape, dtype)
    return op.broadcast(op.convert(item, dtype), shape)


def common_dtype(first: Any, second: Any) -> str:
    """The compute dtype of a pointwise op of tensors or numbers (``torch.result_type``)."""

    def stand_in(item: Any) -> Any:
        if not isinstance(item, Operand):
            return item
        return torch.empty(item.shape, dtype=dtypes.torch_dtype(item.dtype), device="meta")

    return dtypes.torch_name(torch.result_type(stand_in(first), stand_in(second)))


def axis(dim: int, rank: int) -> int:
    """A dim counted from the front."""
    return dim % rank if rank else 0


def axes(dims: Any, rank: int) -> list[int]:
    """Dims counted from the front; None and an empty list mean all."""
    if dims is None or (isinstance(dims, tuple | list) and not dims):
        return list(range(rank))
    listed = dims if isinstance(dims, tuple | list) else [dims]
    return sorted({axis(dim, rank) for dim in listed}) if rank else []


@functools.cache
def outputs_of(name: str) -> frozenset[str]:
    """The keyword arguments in which "aten.op.overload" is given the tensors that it writes."""
    namespace, base, *rest = name.split(".")
    overload = getattr(getattr(torch.ops.aten, base, None), rest[0] if rest else "", None)
    if namespace != "aten" or overload is None:
        return frozenset(("out",))
    return frozenset(
        item.name for item in overload._schema.arguments if item.kwarg_only and item.is_out
    )
