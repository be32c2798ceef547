"""Element types by torch's names: MLIR types, sizes, promotion, the type that a kernel computes in.

size("bfloat16"), compute_dtype("bfloat16"), promote("int64", "float16")  # 2, "float32", ...
"""

from __future__ import annotations

from typing import Any

from flint.errors import FlintError
from flint.stablehlo.read.bindings import ir

_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2,
    "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip

_FLOATS = {
    "float8_e4m3fn": "Float8E4M3FNType",
    "float8_e5m2": "Float8E5M2Type",
    "float16": "F16Type",
    "bfloat16": "BF16Type",
    "float32": "F32Type",
    "float64": "F64Type",
}

#: Complex type -> that of its parts.
PARTS = {"complex64": "float32", "complex128": "float64"}

#: Kernels of these types compute in another one (torch's ``opmath``).
_COMPUTE = dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32")

_INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
#: Bits of the fraction, largest exponent.
_LARGEST = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127), "float64": (52, 1023)}
_RANK = {"float16": 10, "bfloat16": 10, "float32": 11, "float64": 12}


def size(dtype: str) -> int:
    """Bytes of an element.

    Raises:
        FlintError: no StableHLO type stands for it.
    """
    if dtype not in _SIZES:
        raise FlintError(f"dtype torch.{dtype} has no StableHLO type here")
    return _SIZES[dtype]


def is_float(dtype: str) -> bool:
    """Whether it is a real floating-point type."""
    return dtype in _FLOATS


def is_unsigned(dtype: str) -> bool:
    """Whether it is an integer without sign."""
    return dtype.startswith("uint")


def largest(dtype: str) -> float:
    """The largest finite value of a float: (2 - epsilon) times 2 to its largest exponent."""
    fraction, exponent = _LARGEST[dtype]
    return (2 - 2.0**-fraction) * 2.0**exponent


def is_complex(dtype: str) -> bool:
    """Whether it is a complex type."""
    return dtype in PARTS


def element(dtype: str) -> Any:
    """The MLIR element type, in the current context."""
    size(dtype)
    if dtype in _FLOATS:
        return getattr(ir, _FLOATS[dtype]).get()
    if dtype in PARTS:
        return ir.ComplexType.get(element(PARTS[dtype]))
    if dtype == "bool":
        return ir.IntegerType.get_signless(1)
    bits = 8 * size(dtype)
    if dtype.startswith("u"):
        return ir.IntegerType.get_unsigned(bits)
    return ir.IntegerType.get_signless(bits)


_NAMES = {
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64", "i1": "bool", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32",
    "ui64": "uint64", "complex<f32>": "complex64", "complex<f64>": "complex128",
}  # fmt: skip


def name_of(element_type: Any) -> str:
    """The dtype of an MLIR element type."""
    return _NAMES[str(element_type)]


def compute_dtype(dtype: str) -> str:
    """What a pointwise or reducing kernel computes in: float32 for the half types."""
    return _COMPUTE.get(dtype, dtype)


def promote(first: str, second: str) -> str:
    """The common type of two tensors of equal standing, as ``torch.promote_types``."""
    if first == second:
        return first
    if is_complex(first) or is_complex(second):
        parts = [PARTS.get(dtype, dtype) for dtype in (first, second)]
        real = promote(*parts)
        return "complex128" if real == "float64" else "complex64"
    floats = [dtype for dtype in (first, second) if is_float(dtype)]
    if len(floats) == 1:
        return floats[0]
    if floats:
        if _RANK.get(first) == _RANK.get(second):
            return "float32"
        return max(floats, key=lambda dtype: _RANK.get(dtype, 0))
    if {first, second} == {"uint8", "int8"}:
        return "int16"
    return max(first, second, key=_INTEGERS.index)


def category(dtype: str) -> int:
    """0 bool, 1 integer, 2 floating, 3 complex: what scalars and 0-d tensors are compared by."""
    if dtype == "bool":
        return 0
    return 3 if is_complex(dtype) else 2 if is_float(dtype) else 1
