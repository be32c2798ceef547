"""Measured kernels: a CSV file of ops, shapes, types and seconds, and a graph made from it.

The idea: kernels are read into a workload graph of one node each, so that a fit sees the same
(work, bytes, class, tiles) as a simulation.

    op,shapes,type,seconds
    matmul,1024x512 512x2048,bf16,0.0000123
    add,4096x1024 4096x1024,bf16,0.0000087

``shapes`` are those of the operands; a column ``result`` before ``seconds`` may give the result's
shape if it does not follow from them (without it, reductions lose their last dim), a column
``class`` the class of an op that is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flint.cost.hardware import CURVED
from flint.errors import UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import DTYPE_BITS, tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.host.csv_files import csv_lines
from flint.observed.classes import OpClass, aten_class

COLUMNS: Final = ("op", "shapes", "type", "seconds")
_OPTIONAL: Final = ("result", "class")
#: Far beyond any device, so that sums of bytes and FLOPs fit into 64 bits.
_MOST_ELEMENTS, _MOST_PRODUCTS = 1 << 48, 1 << 61
_LEAST_SECONDS, _MOST_SECONDS = 1e-12, 1e9

#: Class -> ops, by their names in frameworks and compilers.
_OPS: Final = {
    "matmul": ("matmul", "dot", "dot_general", "gemm", "mm", "bmm", "linear"),
    "reduction": (
        "reduce", "reduce_sum", "reduce_max", "sum", "mean", "max", "min", "softmax", "layer_norm",
        "layernorm", "rms_norm", "rmsnorm",
    ),
    "movement": (
        "copy", "transpose", "convert", "concatenate", "slice", "gather", "scatter", "pad",
    ),
    "elementwise": (
        "add", "subtract", "sub", "multiply", "mul", "divide", "div", "maximum", "minimum",
        "negate", "abs", "exp", "exponential", "log", "tanh", "logistic", "sigmoid", "sqrt",
        "rsqrt", "power", "select", "relu", "gelu", "silu", "elu", "selu", "leaky_relu", "binary",
    ),
}  # fmt: skip
_CLASS_OF: Final = {op: name for name, ops in _OPS.items() for op in ops}
_OF_ATEN: Final = {
    OpClass.GEMM: "matmul",
    OpClass.REDUCTION: "reduction",
    OpClass.ELEMENTWISE: "elementwise",
    OpClass.COPY: "movement",
}
_ROLES: Final = {
    "matmul": Role.CONTRACTION,
    "reduction": Role.REDUCTION,
    "elementwise": Role.ELEMENTWISE,
    "movement": Role.MOVEMENT,
}
#: Other common names of the types.
_TYPES: Final = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8",
    "int32": "i32",
}  # fmt: skip

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One kernel.

    Attributes:
        op: its name.
        kind: its class, one of ``flint.cost.curves.CURVED``.
        operands: their shapes.
        result: its shape.
        dtype: element type of operands and result.
        seconds: how long it took.
    """

    op: str
    kind: str
    operands: tuple[Shape, ...]
    result: Shape
    dtype: str
    seconds: float

    @property
    def shapes(self) -> str:
        """The operands' shapes as in the file."""
        return " ".join("x".join(map(str, shape)) for shape in self.operands)


def read_kernels(path: Path) -> list[MeasuredKernel]:
    """The kernels of a CSV file.

    Raises:
        UsageError: no such file, another heading, or a line that describes no kernel.
    """
    lines = csv_lines(path, "a table of kernels")
    columns = [name.strip() for name in lines[0]] if lines else []
    unknown = [name for name in columns if name not in (*COLUMNS, *_OPTIONAL)]
    if set(COLUMNS) - set(columns) or unknown or len(set(columns)) < len(columns):
        raise UsageError(
            f"{path}: the first line must name the columns {', '.join(COLUMNS)} and may name "
            f"{' and '.join(_OPTIONAL)}"
        )
    found = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            if len(line) != len(columns):
                raise ValueError(f"expected {','.join(columns)}")
            cells = dict(zip(columns, (cell.strip() for cell in line), strict=True))
            found.append(
                kernel_of(**{_NAMES.get(name, name): cell for name, cell in cells.items()})
            )
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from None
    if not found:
        raise UsageError(f"{path}: has no kernels")
    return found


#: Columns whose names are words of Python.
_NAMES: Final = {"type": "dtype", "class": "kind"}


def kernel_of(
    op: str, shapes: str, dtype: str, seconds: str, result: str = "", kind: str = ""
) -> MeasuredKernel:
    """A kernel from the cells of its line.

    Raises:
        ValueError: they describe no kernel; the message says why.
    """
    kind = kind or _class_of(op)
    if kind not in CURVED:
        known = f"not a known op: give its class in a column class ({', '.join(CURVED)})"
        raise ValueError(f"{op!r} is {known}")
    dtype = _TYPES.get(dtype, dtype)
    if dtype not in DTYPE_BITS:
        raise ValueError(f"{dtype!r} is not an element type")
    operands = tuple(_shape(text) for text in shapes.split())
    if not operands:
        raise ValueError("shapes are missing")
    taken = float(seconds)
    if not _LEAST_SECONDS <= taken <= _MOST_SECONDS:
        raise ValueError(f"seconds must be above 0, not {seconds}: kernels take 1e-12 to 1e9")
    made = _shape(result) if result else _result(kind, operands)
    products = math.prod(product_of(operands)) if kind == "matmul" else 0
    if sum(map(math.prod, (*operands, made))) > _MOST_ELEMENTS or products > _MOST_PRODUCTS:
        raise ValueError("its operands are larger than the memory of any device")
    return MeasuredKernel(op, kind, operands, made, dtype, taken)


def _class_of(op: str) -> str:
    if op.startswith(("aten.", "aten::")):
        return _OF_ATEN.get(aten_class(op), "")
    return _CLASS_OF.get(op.lower().removeprefix("stablehlo."), "")


def _shape(text: str) -> Shape:
    try:
        dims = tuple(int(dim) for dim in text.split("x"))
    except ValueError:
        dims = (0,)
    if not all(0 < dim < 1 << 40 for dim in dims):
        raise ValueError(f"{text!r} is not a shape: expected dims joined by x, as in 1024x512")
    return dims


def _result(kind: str, operands: Sequence[Shape]) -> Shape:
    if kind == "matmul":
        batch, m, n, _ = product_of(operands)
        return (batch, m, n) if batch > 1 else (m, n)
    if kind == "reduction":
        return operands[0][:-1]
    return max(operands, key=math.prod)


def product_of(operands: Sequence[Shape]) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of a product of ...,m,k by ...,k,n; a batch with one shared matrix is one
    product of more rows.

    Raises:
        ValueError: the shapes do not fit.
    """
    if len(operands) < 2 or len(operands[0]) < 2 or len(operands[1]) < 2:
        raise ValueError("a product needs two operands, as in 1024x512 512x2048")
    left, right = operands[:2]
    (*batches, m, k), (*others, rows, n) = left, right
    if k != rows or (others and others != batches):
        raise ValueError(f"the operands of a product do not fit: ...x{k} by {rows}x...")
    if not others:
        return 1, math.prod(batches) * m, n, k
    return math.prod(batches), m, n, k


def as_graph(kernels: Sequence[MeasuredKernel]) -> WorkloadGraph:
    """A graph of one node for each kernel, in order."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    given = {(shape, kernel.dtype): None for kernel in kernels for shape in kernel.operands}
    inputs = {kind: builder.input(tables.type(tensor_type(*kind))) for kind in given}
    for kernel in kernels:
        made = tensor_type(kernel.result, kernel.dtype)
        read = sum(tensor_type(shape, kernel.dtype).bytes for shape in kernel.operands)
        items: tuple[WorkItem, ...] = ()
        if kernel.kind == "matmul":
            dims = product_of(kernel.operands)
            items = (WorkItem(Unit.MATMUL, kernel.dtype, 2 * math.prod(dims), dims),)
        builder.compute(
            kernel.op,
            _ROLES[kernel.kind],
            [inputs[shape, kernel.dtype] for shape in kernel.operands],
            (made,),
            Work(items, read, made.bytes),
        )
    return with_tables(builder.finish(()), tables.finish())
