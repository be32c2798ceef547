"""MLIR types -> interned tensor types.

The idea: an ``ir.Type`` object is looked up once; afterwards a type is a small integer.  Shapes
with dynamic dims take their ``#stablehlo.bounds`` and are marked, for reports.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from flint.errors import FlintError
from flint.graph.tensor_types import DTYPE_BITS, TOKEN, TensorType, tensor_type
from flint.stablehlo.read.bindings import ir, stablehlo
from flint.stablehlo.read.records import BOUNDED, UNBOUNDED

#: ``!quant.uniform<i8:f32, ...>`` is stored as its first type.
_QUANTISED = "!quant."


class TypeTable:
    """Interns MLIR types of one module.

    Attributes:
        types: the tensor types, in order of first appearance.
        warnings: text -> count.
    """

    __slots__ = ("_by_mlir", "_by_type", "name", "types", "warnings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: list[TensorType] = []
        self.warnings: Counter[str] = Counter()
        self._by_mlir: dict[Any, int] = {}
        self._by_type: dict[TensorType, int] = {}

    def index(self, mlir_type: Any) -> int:
        """The index of ``mlir_type`` in ``types``."""
        number = self._by_mlir.get(mlir_type)
        if number is None:
            described = self._describe(mlir_type)
            number = self._by_type.setdefault(described, len(self.types))
            if number == len(self.types):
                self.types.append(described)
            self._by_mlir[mlir_type] = number
        return number

    def _describe(self, mlir_type: Any) -> TensorType:
        text = str(mlir_type)
        if text in ("!stablehlo.token", "!mhlo.token"):
            return TOKEN
        if text.startswith("tuple<"):
            tuple_type = ir.TupleType(mlir_type)
            parts = [self._describe(tuple_type.get_type(i)) for i in range(tuple_type.num_types)]
            return TensorType((), "tuple", sum(part.bytes for part in parts))
        if text.startswith(("!stablehlo.future", "!mhlo.async_bundle", "!mhlo.future")):
            return TensorType((), "future", 0)
        if not text.startswith("tensor<"):
            return self._scalar(text)
        try:
            ranked = ir.RankedTensorType(mlir_type)
        except (ValueError, TypeError):
            self.warnings["a tensor without rank: counted as a scalar"] += 1
            return tensor_type((), self._element(text.rsplit("x", 1)[-1].rstrip(">")), True)
        dtype = self._element(str(ranked.element_type))
        if ranked.has_static_shape:
            return tensor_type(tuple(ranked.shape), dtype)
        return tensor_type(self._bounded(ranked), dtype, dynamic=True)

    def _bounded(self, ranked: Any) -> tuple[int, ...]:
        bounds: list[int] = []
        encoding = ranked.encoding
        if encoding is not None and stablehlo.TypeExtensions.isinstance(encoding):
            bounds = list(stablehlo.TypeExtensions(encoding).bounds)
        shape = []
        for dim in range(ranked.rank):
            if not ranked.is_dynamic_dim(dim):
                shape.append(ranked.get_dim_size(dim))
            elif dim < len(bounds) and bounds[dim] >= 0:
                shape.append(bounds[dim])
                self.warnings[BOUNDED] += 1
            else:
                raise FlintError(f"{self.name}: the type {ranked} {UNBOUNDED}")
        return tuple(shape)

    def _scalar(self, text: str) -> TensorType:
        if text in DTYPE_BITS:
            return tensor_type((), text)
        raise FlintError(f"{self.name}: values of type {text} are not StableHLO tensors")

    def _element(self, text: str) -> str:
        if text in DTYPE_BITS:
            return text
        if text.startswith(_QUANTISED):
            storage = text.split("<", 1)[1].split(":", 1)[0].split("<", 1)[0]
            # Versions of MLIR differ in whether they accept and print "u8" or "ui8".
            storage = f"ui{storage[1:].removeprefix('i')}" if storage[0] == "u" else storage
            if storage in DTYPE_BITS:
                return storage
        raise FlintError(f"{self.name}: unknown element type {text}")
