"""Facts about an op from PyTorch's profilers: tensors, element types, contractions, collectives.

The idea: Kineto and execution traces write the same facts under different names; both are converted
to ``OpFacts`` here.

    op_facts("aten::mm", [((16, 32), "f32"), ((32, 8), "f32")]).gemms      # ((1, 16, 8, 32),)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from flint.cost.aten_work import work_of
from flint.cost.recorded_op import OpWork
from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.classes import (
    RECURRENT_LIBRARY,
    OpClass,
    aten_class,
    base_name,
    c10d_class,
    is_fused_in_cpp,
)
from flint.observed.columns import Gemm, OpFacts, Tensor

#: Element types as C++ names, as ``c10::ScalarType`` and as Python's torch names them.
DTYPES: dict[str, str] = {
    "float": "f32", "double": "f64", "half": "f16", "bfloat16": "bf16", "long int": "i64",
    "long": "i64", "int": "i32", "short": "i16", "short int": "i16", "char": "i8",
    "signed char": "i8", "byte": "ui8", "unsigned char": "ui8", "bool": "i1",
    "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2", "float8_e4m3fnuz": "f8E4M3FNUZ",
    "float8_e5m2fnuz": "f8E5M2FNUZ", "complexfloat": "complex<f32>",
    "complexdouble": "complex<f64>", "c10::complex<float>": "complex<f32>",
    "c10::complex<double>": "complex<f64>", "unsigned long": "ui64", "unsigned int": "ui32",
    "uint64": "ui64", "uint32": "ui32", "uint16": "ui16", "unsigned short": "ui16",
    "float16": "f16", "float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "ui8", "float8_e8m0fnu": "f8E8M0FNU",
    "qint8": "i8", "quint8": "ui8", "qint32": "i32",
}  # fmt: skip

#: Element type of a missing optional tensor in execution traces.
UNDEFINED = "nullptr (uninitialized)"
_NO_TENSOR = ("None", f"Tensor({UNDEFINED})")

#: The most dims and tensors of an op; a file with more is damaged.
_MAX_DIMS, _MAX_TENSORS = 64, 100_000


def dtype_of(text: object) -> str:
    """The StableHLO name of an element type; "" where it is not one."""
    name = str(text).lower()
    if name.startswith("tensor(") and name.endswith(")"):
        name = name[7:-1]
    return DTYPES.get(name) or DTYPES.get(name.removeprefix("c10::"), "")


def shape_of(dims: object) -> tuple[int, ...] | None:
    """A shape written as a list of sizes; None if it is something else."""
    if not isinstance(dims, list) or len(dims) > _MAX_DIMS:
        return None
    return tuple(dims) if all(type(size) is int and size >= 0 for size in dims) else None


def tensors_of(dims: Sequence[Any], types: Sequence[Any]) -> list[list[Tensor]]:
    """The tensors of each argument: one, several for a list or nested lists, none for a number."""
    found: list[list[Tensor]] = []
    for number, item in enumerate(dims[:_MAX_TENSORS]):
        kind = str(types[number]) if number < len(types) else ""
        if kind.startswith("GenericList[GenericList[Tensor") and isinstance(item, list):
            item = [shape for part in item if isinstance(part, list) for shape in part]
            kind = "GenericList[" + kind[len("GenericList[") :].replace("GenericList[", "")
            kind = kind.replace("]", "") + "]"
        several = kind.startswith("GenericList[") and "Tensor(" in kind
        if (several or kind.startswith("TensorList")) and isinstance(item, list):
            inner = [part.strip() for part in kind[kind.find("[") + 1 : -1].split(",")]
            shapes = [shape_of(part) for part in item[:_MAX_TENSORS]]
            found.append(
                [
                    (shape, dtype_of(inner[i]) if i < len(inner) else "")
                    for i, shape in enumerate(shapes)
                    if shape is not None and not (i < len(inner) and inner[i] in _NO_TENSOR)
                ]
            )
            continue
        # Numbers are "Scalar" in Kineto and "Int", "Double", "Bool" in execution traces.
        is_tensor = kind.startswith(("Tensor(", "c10::")) or (kind.islower() and kind != "")
        is_tensor = is_tensor and kind not in _NO_TENSOR
        shape = shape_of(item) if is_tensor else None
        found.append([(shape, dtype_of(kind))] if shape is not None else [])
    return found


#: Operations per element of ops of a class without their own formula.
_OTHERWISE = {
    OpClass.ELEMENTWISE: (1, 0),
    OpClass.REDUCTION: (1, 0),
    OpClass.COPY: (0, 0),
}
#: Reductions whose names PyTorch also gives to ops of two tensors, which call these.
_OF_TWO = {"aten::max": "aten::maximum", "aten::min": "aten::minimum"}
#: Namespaces of ops that implement collectives: PyTorch's symmetric memory, vLLM (on CPUs ``_C``),
#: SGLang, TensorRT-LLM, AITER, DeepSpeed.
_EXCHANGING = frozenset(
    {"symm_mem", "vllm", "_C", "_C_custom_ar", "sgl_kernel", "sglang", "trtllm", "aiter"}
    | {"deepspeed"}
)
#: Their names; of vLLM's and SGLang's on CPUs, in memory that ranks share, also gathers.
_OWN_COLLECTIVES = (
    (
        re.compile(
            r"(multimem_|one_shot_|two_shot_|custom_|shm_|inference_)?all_?reduce(_out|_copy)?"
        ),
        OpClass.ALL_REDUCE,
    ),
    (re.compile(r"shm_all_?gather"), OpClass.ALL_GATHER),
)


def _own_collective(name: str) -> OpClass | None:
    """The collective that an op of a library implements itself; None for other ops."""
    if name.partition("::")[0] not in _EXCHANGING:
        return None
    base = base_name(name)
    return next((kind for names, kind in _OWN_COLLECTIVES if names.fullmatch(base)), None)


def op_facts(
    name: str,
    arguments: list[list[Tensor]] | None,
    group: Any = None,
    values: Sequence[Any] = (),
) -> OpFacts:
    """Facts about an op that is not an NCCL record.

    Args:
        name: the profiler's name, with its namespace.
        arguments: from ``tensors_of``; None if the trace has no shapes.
        group: ranks of a collective, if known.
        values: numbers and lists of numbers of each argument, as far as recorded.
    """
    namespace = name.partition("::")[0]
    if namespace in ("c10d", "_c10d_functional", "c10d_functional"):
        return _collective(name, arguments, group)
    own = _own_collective(name)
    if own is not None:
        sent = tuple(next(filter(None, arguments or ()), ()))
        dtype = sent[0][1] if sent else ""
        return OpFacts(own, name, sent or None, bytes_of(sent), dtype, group, blocks=True)
    if name in _OF_TWO and [len(tensors) for tensors in arguments or ()] == [1, 1]:
        name = _OF_TWO[name]
    kind = aten_class(name) if "::" in name or is_fused_in_cpp(name) else OpClass.OTHER
    if arguments is None:
        return OpFacts(kind, name)
    operands = tuple(tensor for argument in arguments for tensor in argument)
    gemms = _gemms(base_name(name), arguments) if kind == OpClass.GEMM else None
    types = [item for _, item in operands]
    real = [item for item in types if item.startswith(("f", "bf"))]  # and no offsets of groups
    dtype = (real or types or [""])[-1]
    work = OpWork(None)
    if gemms is None and kind != OpClass.FREE:
        work = work_of(name, arguments, values, _OTHERWISE.get(kind))
    return OpFacts(
        kind, name, operands, dtype=dtype, gemms=gemms,
        work=work.items, moved=work.moved, lacks=work.lacks,
    )  # fmt: skip


#: c10d ops whose first argument receives the result; for others it is what is sent.  A
#: scatter's first is a result too, but of the size of each message; what is sent only its root has.
_RESULT_FIRST = re.compile(r"c10d::_?(allgather|reduce_scatter|alltoall|gather)")


def _collective(name: str, arguments: list[list[Tensor]] | None, group: Any) -> OpFacts:
    kind = c10d_class(base_name(name))
    if base_name(name) == "barrier":  # NCCL's is an all-reduce of a number, and so are captures'
        return OpFacts(OpClass.ALL_REDUCE, name, (((1,), "f32"),), (4,), "f32", group)
    if kind is None:
        return OpFacts(OpClass.FREE, name)
    place = 1 if _RESULT_FIRST.match(name) else 0
    if arguments is None or len(arguments) <= place:
        return OpFacts(kind, name, group=group)
    sent = tuple(arguments[place])
    # Of a gather or scatter the root alone has a list of a tensor for each member.
    lists = arguments[1 - place : 2 - place] if kind == OpClass.OTHER_COLLECTIVE else []
    listed = sum(map(len, lists))
    return OpFacts(
        kind, name, sent, bytes_of(sent), sent[0][1] if sent else "", group, members=listed or -1
    )


def bytes_of(tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Bytes of each tensor; None where there are none or an element type is unknown."""
    if not tensors or any(dtype not in DTYPE_BITS for _, dtype in tensors):
        return None
    return tuple(math.prod(shape) * DTYPE_BITS[dtype] // 8 for shape, dtype in tensors)


def _gemms(base: str, arguments: list[list[Tensor]]) -> tuple[Gemm, ...] | None:
    """(batch, m, n, k) of PyTorch's matrix products by their arguments' shapes."""
    first = 1 if base in ("addmm", "baddbmm", "addbmm", "addmv") else 0
    if len(arguments) < first + 2 or not arguments[first] or not arguments[first + 1]:
        return None
    a, b = arguments[first][0][0], arguments[first + 1][0][0]
    if base in ("mm", "addmm", "_scaled_mm") and len(a) == len(b) == 2 and a[1] == b[0]:
        return ((1, a[0], b[1], a[1]),)
    if base in ("bmm", "baddbmm", "addbmm") and len(a) == len(b) == 3 and a[2] == b[1]:
        return ((a[0], a[1], b[2], a[2]),)
    if base in ("mv", "addmv") and (len(a), a[-1:]) == (2, b):
        return ((1, a[0], 1, a[1]),)
    if base in ("dot", "vdot") and len(a) == 1 and a == b:
        return ((1, 1, 1, a[0]),)
    if base == "linear" and a and len(b) == 2 and a[-1] == b[1]:
        return ((1, math.prod(a[:-1]), b[0], a[-1]),)
    if base.startswith(RECURRENT_LIBRARY):
        return _recurrent(base, [argument[0][0] for argument in arguments[:3] if argument])
    if base == "_grouped_mm" and len(a) > 1 < len(b) and a[-1] == b[-2]:
        # Products of runs of rows: their sizes are values; summed up they are one product.
        batch = a[0] if len(a) == len(b) == 3 else 1
        return ((batch, a[-2], b[-1], a[-1]),)
    return None


def _recurrent(base: str, shapes: list[tuple[int, ...]]) -> tuple[Gemm, ...] | None:
    """Every step's products in a recurrent layer, of its input and of what it hands on.

    Args:
        base: the op; the one for the gradients has products for those of weights and of inputs.
        shapes: input (steps, rows, inputs), weights (gates, inputs) and (gates, hidden).
    """
    if [len(shape) for shape in shapes] != [3, 2, 2] or math.prod(shapes[0][:2]) > _MAX_TENSORS:
        return None
    (steps, rows, _), *weights = shapes
    found: list[Gemm] = []
    for gates, inputs in weights:
        of_gradients = (1, gates, inputs, rows), (1, rows, inputs, gates)
        found += of_gradients if base.endswith("backward") else [(1, rows, gates, inputs)]
    return tuple(found) * steps
