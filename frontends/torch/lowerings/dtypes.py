"""Element types by torch's names: MLIR types, sizes, promotion, the type that a kernel computes in.

size("bfloat16"), compute_dtype("bfloat16"), promote("int64", "float16")  # 2, "float32", ...
"""

from __future__ import annotations

from typing import Any

import torch

from flint.errors import FlintError
from flint.stablehlo.read.bindings import ir

#: MLIR's name of an element type -> PyTorch's.
_NAMES = {
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64", "i1": "bool", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32",
    "ui64": "uint64", "complex<f32>": "complex64", "complex<f64>": "complex128",
}  # fmt: skip
_ELEMENTS = {name: element for element, name in _NAMES.items()}

#: Complex type -> that of its parts.
PARTS = {"complex64": "float32", "complex128": "float64"}


def size(dtype: str) -> int:
    """Bytes of an element.

    Raises:
        FlintError: no StableHLO type corresponds to it.
    """
    if dtype not in _ELEMENTS:
        raise FlintError(f"dtype torch.{dtype} has no StableHLO type here")
    return torch_dtype(dtype).itemsize


def is_float(dtype: str) -> bool:
    """Whether it is a real floating-point type."""
    return torch_dtype(dtype).is_floating_point


def is_unsigned(dtype: str) -> bool:
    """Whether it is an integer without sign."""
    return dtype.startswith("uint")


def largest(dtype: str) -> float:
    """The largest finite value of a float."""
    return float(torch.finfo(torch_dtype(dtype)).max)


def is_complex(dtype: str) -> bool:
    """Whether it is a complex type."""
    return dtype in PARTS


def mlir_name(dtype: str) -> str:
    """MLIR's name of an element type."""
    size(dtype)
    return _ELEMENTS[dtype]


def element(dtype: str) -> Any:
    """The MLIR element type, in the current context."""
    return ir.Type.parse(mlir_name(dtype))


def name_of(element_type: Any) -> str:
    """The dtype of an MLIR element type."""
    return _NAMES[str(element_type)]


def compute_dtype(dtype: str) -> str:
    """The dtype in which a pointwise or reducing kernel computes: float32 for the half types."""
    return "float32" if is_float(dtype) and size(dtype) < 4 else dtype


def promote(first: str, second: str) -> str:
    """The common type of two tensors of equal standing, as ``torch.promote_types``."""
    return torch_name(torch.promote_types(torch_dtype(first), torch_dtype(second)))


def torch_dtype(dtype: str) -> torch.dtype:
    """The type of PyTorch of a name."""
    kind: torch.dtype = getattr(torch, dtype)
    return kind


def torch_name(dtype: torch.dtype) -> str:
    """The name of a type of PyTorch."""
    return str(dtype).removeprefix("torch.")
