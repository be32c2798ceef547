"""HLO shapes -> interned tensor types.

The idea: a shape arrives as serialised bytes and thousands of instructions share the same ones, so
bytes are looked up and parsed once.  A tuple shape becomes a tree: nested Python tuples whose
leaves are type indices, the form in which the reader keeps values (``flatten`` gives the leaves).

    f32[8,128]              -> 3
    (f32[8,128], (s32[],))  -> (3, (0,))
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

from flint.errors import FlintError
from flint.graph.tensor_types import TOKEN, TensorType, tensor_type
from flint.hlo import hlo_pb2 as pb
from flint.stablehlo.read.records import BOUNDED, UNBOUNDED

#: A type index or value id, or a nested tuple of them: the form of an HLO tuple shape or value.
Tree: TypeAlias = "int | tuple[Any, ...]"

#: XLA's PrimitiveType numbers -> element type.
ELEMENT_TYPES: dict[int, str] = {
    1: "i1", 26: "i2", 21: "i4", 2: "i8", 3: "i16", 4: "i32", 5: "i64",
    27: "ui2", 22: "ui4", 6: "ui8", 7: "ui16", 8: "ui32", 9: "ui64",
    10: "f16", 16: "bf16", 11: "f32", 12: "f64", 15: "complex<f32>", 18: "complex<f64>",
    19: "f8E5M2", 28: "f8E4M3", 20: "f8E4M3FN", 23: "f8E4M3B11FNUZ", 29: "f8E3M4",
    24: "f8E5M2FNUZ", 25: "f8E4M3FNUZ", 32: "f4E2M1FN", 33: "f8E8M0FNU",
    35: "f6E3M2FN", 36: "f6E2M3FN",
}  # fmt: skip
_TUPLE, _OPAQUE, _TOKEN, _BUFFER = 13, 14, 17, 34
#: XLA's size of a dim without a bound.
_UNBOUNDED = -(2**63)
_ONE_BIT = {30: "s1", 31: "u1"}

#: The most dims and bytes of a tensor; a file with more is damaged.
MAX_RANK = 256
MAX_TYPE_BYTES = 2**56


class TypeTable:
    """Interns the types of one module.

    Attributes:
        types: the tensor types, in order of first appearance.
        by_bytes: serialised shape -> tree of type indices; read directly in the reader's loop.
        warnings: text -> count.
    """

    __slots__ = ("_by_type", "by_bytes", "name", "types", "warnings")

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: list[TensorType] = []
        self.by_bytes: dict[bytes, Tree] = {}
        self.warnings: Counter[str] = Counter()
        self._by_type: dict[TensorType, int] = {}

    def tree(self, shape: bytes) -> Tree:
        """The tree of type indices of a serialised ``ShapeProto``.

        Raises:
            FlintError: an element type or a size that no shape has.
        """
        found = self.by_bytes.get(shape)
        if found is None:
            found = self.by_bytes[shape] = self._tree(pb.ShapeProto.FromString(shape))
        return found

    def _tree(self, shape: pb.ShapeProto) -> Tree:
        if shape.element_type == _TUPLE:
            return tuple([self._tree(part) for part in shape.tuple_shapes])
        if shape.element_type == _BUFFER and len(shape.tuple_shapes) == 1:
            return self._tree(shape.tuple_shapes[0])
        return self.intern(self._array(shape))

    def intern(self, described: TensorType) -> int:
        """The index of a tensor type in ``types``."""
        if described.bytes > MAX_TYPE_BYTES:
            raise FlintError(f"{self.name}: a value of {described.bytes} bytes: damaged file?")
        number = self._by_type.setdefault(described, len(self.types))
        if number == len(self.types):
            self.types.append(described)
        return number

    def _array(self, shape: pb.ShapeProto) -> TensorType:
        code = shape.element_type
        if code == _TOKEN:
            return TOKEN
        if code == _OPAQUE:
            self.warnings["an opaque value: counted as 0 bytes"] += 1
            return TOKEN
        dtype = ELEMENT_TYPES.get(code)
        if dtype is None:
            what = _ONE_BIT.get(code, f"number {code}")
            raise FlintError(f"{self.name}: unknown element type {what}")
        if len(shape.dimensions) > MAX_RANK:
            raise FlintError(f"{self.name}: a shape of rank {len(shape.dimensions)}: damaged file?")
        if not any(shape.is_dynamic_dimension):
            dims = tuple(shape.dimensions)
            if dims and min(dims) < 0:
                raise FlintError(f"{self.name}: a shape with the dims {dims}: damaged file?")
            return tensor_type(dims, dtype)
        bounded = tuple(shape.dimensions)
        for size, dynamic in zip(bounded, shape.is_dynamic_dimension, strict=False):
            if dynamic and size == _UNBOUNDED:
                raise FlintError(f"{self.name}: a shape {UNBOUNDED}")
            self.warnings[BOUNDED] += dynamic
        if bounded and min(bounded) < 0:
            raise FlintError(f"{self.name}: a shape with the dims {bounded}: damaged file?")
        return tensor_type(bounded, dtype, dynamic=True)


def flatten(tree: Tree) -> list[int]:
    """The leaves of a tree in order."""
    if isinstance(tree, int):
        return [tree]
    leaves: list[int] = []
    for part in tree:
        leaves += flatten(part)
    return leaves


def same_structure(one: Tree, other: Tree) -> bool:
    """Whether two trees have leaves at the same positions (the leaves may differ)."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int)
    return len(one) == len(other) and all(map(same_structure, one, other))


def arrange(values: tuple[int, ...], shape: Tree) -> Tree:
    """Values in the form of a tree of types.

    Raises:
        ValueError: the numbers of values and leaves differ.
    """
    remaining = list(reversed(values))

    def take(part: Tree) -> Tree:
        return remaining.pop() if isinstance(part, int) else tuple([take(item) for item in part])

    if len(flatten(shape)) != len(values):
        raise ValueError("the wrapped computation yields a different number of values")
    return take(shape)
