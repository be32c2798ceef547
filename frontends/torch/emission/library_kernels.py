"""Which of several kernels PyTorch runs for an op, where a tensor's layout decides it.

The idea: convolutions and batch norms have kernels for channels that come first in memory and
others for channels that come last.  PyTorch's rules are those of ``use_cudnn_depthwise`` in
aten/src/ATen/native/Convolution.cpp and of ``_batch_norm_impl_index`` in Normalization.cpp:

- a depthwise convolution of f32 is PyTorch's own kernel unless channels come last (in half
  precision cuDNN is asked for most sizes, and counts as asked for all);
- a batch norm that is trained is cuDNN's, which for channels first has a block of threads per
  channel, and for channels last reads the activations twice;
- so do group norms, and the backward passes of layer norms and RMS norms with weights: one kernel
  each for the gradients of input and weight (cuda/layer_norm_kernel.cu, group_norm_kernel.cu);
- other convolutions are cuDNN's, for channels last; their bias is added by itself;
- elementwise kernels take several elements at a time only from dense tensors of one type that lie
  alike (cuda/CUDALoops.cuh), and sums are along or across what is next to each other;
- softmaxes of short rows are in registers, longer ones in shared memory if they fit and are
  aligned, others are read twice, as layer norms are (cuda/SoftMax.cu, cuda/layer_norm_kernel.cu);
- products whose rows do not all begin at 16 bytes are not those of the tensor memory accelerator;
- ``index_add`` and ``scatter_add`` add every element by itself (cuda/Indexing.cu,
  cuda/ScatterGatherKernel.cu), an ``index_put`` that adds those of sorted indices.

    does(op)        # "direct convolution"; "" if nothing is known
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

from flint.cost.library_kernels import (
    ADDED,
    CHANNELS_FIRST,
    COLUMNS,
    DIRECT,
    LOOPED,
    PER_CHANNEL,
    RECURRENT,
    ROWS,
    SORTED,
    TRANSPOSING,
    TWICE,
    UNALIGNED,
    WITH_BIAS,
)
from flint.cost.row_kernels import (
    AGAIN,
    LONGEST,
    PRODUCT_FIRST,
    REGISTERS,
    ROW_GRADIENT,
    SHARED,
    TABLE_GRADIENT,
)
from flint.frontends.torch.recording.recording import Op, View
from flint.observed.classes import OpClass, aten_class


def does(op: Op) -> str:
    """What the kernel of an op does, as ``flint.cost.library_kernels`` names it; "" if unknown."""
    if op.recurrent:
        return RECURRENT
    if op.name in _PRODUCTS:
        return "" if all(map(_aligned, (*op.args, *op.results))) else UNALIGNED
    rule = _RULES.get(op.name)
    return rule(op.args) if rule is not None else _plain(op)


def _channels_last(view: View) -> bool:
    """Whether a tensor (n, channels, ...) has its channels next to each other in memory."""
    return view.stride[1] == 1 and view.shape[1] > 1


def _norm(data: int, trains: int) -> Callable[[Any], str]:
    def rule(args: Any) -> str:
        view = args[data]
        if len(view.shape) <= 2 or (trains >= 0 and args[trains] is not True):
            return ""
        return TWICE if _channels_last(view) else PER_CHANNEL

    return rule


def _weighted(mask: int) -> Callable[[Any], str]:
    """Of a norm's backward pass: whether the weight has a gradient too."""

    def rule(args: Any) -> str:
        wanted = args[mask]
        return ROW_GRADIENT if wanted[0] and wanted[1] else ""

    return rule


def _softmax(args: Any) -> str:
    """Of a softmax, by the length of its rows."""
    view = args[0]
    length, size = _row(view, args[1]), _size(view)
    if not length:
        return ""
    if _short(length, size):
        return REGISTERS
    vector = _VECTOR // size
    return SHARED if length < _SHARED_BYTES // size and length % vector == 0 else AGAIN


def _softmax_gradient(long: str, short: str) -> Callable[[Any], str]:
    def rule(args: Any) -> str:
        view = args[1]
        length = _row(view, args[2])
        return "" if not length else short if _short(length, _size(view)) else long

    return rule


def _row(view: View, dim: int) -> int:
    """Elements of the rows of a softmax; 0 if its dim is not the last one."""
    last = bool(view.shape) and dim % len(view.shape) == len(view.shape) - 1
    return int(view.shape[-1]) if last else 0


def _size(view: View) -> int:
    return {"float64": 8, "float32": 4}.get(view.dtype, 2)


def _short(length: int, size: int) -> bool:
    return length <= LONGEST and length * size <= 4 * LONGEST


def _convolution(data: int, transposed: int) -> Callable[[Any], str]:
    def rule(args: Any) -> str:
        view, weight, groups = args[data], args[data + 1], args[transposed + 2]
        # A window of 1 lies in either way.
        turned = weight.stride[1] == 1 < weight.shape[1] and prod(weight.shape[2:]) > 1
        first = not _channels_last(view) and not turned
        plane = len(view.shape) == len(weight.shape) == 4 and args[transposed] is False
        depthwise = view.shape[1] == groups > 1
        if plane and depthwise and view.dtype in ("float32", "float64"):
            return DIRECT if first else ""
        # One column of a window of 1 is a product, which reads either layout.
        windows = max((*weight.shape[2:], *args[transposed - 3]), default=1) > 1
        if first and windows and not depthwise and view.dtype in _TENSOR_CORES:
            return CHANNELS_FIRST
        bias = args[10][2] if data else args[2] is not None
        return WITH_BIAS if bias else ""

    return rule


def _plain(op: Op) -> str:
    """Of elementwise ops, copies and sums of single tensors."""
    space, _, name = op.name.partition(".")
    kind, base = aten_class(op.name), name.split(".")[0]
    made = [item for item in (*op.results, *op.writes) if isinstance(item, View)]
    given = [item for item in op.args if isinstance(item, View)]
    if space != "aten" or not made or not given or (prod(made[0].shape) < 2 and base not in _SUMS):
        return ""
    if base in _SUMS:
        return _summed(given[0], op.args)
    if kind != OpClass.ELEMENTWISE and base not in _COPIES:
        return ""
    out = made[0]
    full = [item for item in given if item.shape == out.shape]
    if base in _COPIES and any(_turned(item, out) for item in full):
        return TRANSPOSING
    alike = all(item.stride == out.stride for item in full) and len(full) == len(given)
    types = {item.dtype for item in (*given, out)}
    narrower = base in _COPIES and out.dtype in _HALVES  # is vectorised
    return "" if alike and _dense(out) and (len(types) == 1 or narrower) else LOOPED


def _summed(view: View, args: Any) -> str:
    dims = args[1] if len(args) > 1 and isinstance(args[1], tuple | list) else ()
    rank = len(view.shape)
    over = (
        {dim % rank for dim in dims if isinstance(dim, int)} if rank and dims else set(range(rank))
    )
    inner = [dim for dim in range(rank) if view.stride[dim] == 1 and view.shape[dim] > 1]
    return ROWS if not inner or inner[-1] in over else COLUMNS


def _turned(view: View, out: View) -> bool:
    """Whether what is next to each other in a result is sectors apart in an operand."""
    inner = [dim for dim, step in enumerate(out.stride) if step == 1 and out.shape[dim] > 1]
    if not inner:
        return False
    return view.stride[inner[-1]] >= _SECTOR // (2 if view.dtype in _HALVES else 4)


def _aligned(item: Any) -> bool:
    """Whether all rows of a matrix, or of several, begin at a multiple of 16 bytes."""
    if not isinstance(item, View) or len(item.shape) < 2 or item.dtype not in _TENSOR_CORES:
        return True
    steps = [step for size, step in zip(item.shape, item.stride, strict=True) if size > 1]
    apart = (item.offset, *(step for step in steps if step > 1))
    return all(step * _size(item) % _VECTOR == 0 for step in apart)


def _dense(view: View) -> bool:
    """Whether its elements fill a part of memory, in whatever order."""
    span = 1 + sum((size - 1) * step for size, step in zip(view.shape, view.stride, strict=True))
    return span == prod(view.shape)


_HALVES: Final = ("float16", "bfloat16")
#: Types of convolutions that tensor cores compute: f32 as TF32, as cuDNN does by default.
_TENSOR_CORES: Final = (*_HALVES, "float32")
_COPIES: Final = frozenset(("_to_copy", "clone", "contiguous", "copy_"))
_SUMS: Final = frozenset(("amax", "amin", "mean", "sum"))
_PRODUCTS: Final = frozenset(f"aten.{name}.default" for name in ("mm", "addmm", "bmm", "baddbmm"))
#: Bytes of a vector, which a softmax loads, and of the shared memory that its rows may fill.
_VECTOR, _SHARED_BYTES = 16, 49_000
#: Bytes that memory is read by.
_SECTOR: Final = 32
#: Per op, from its arguments.
_RULES: Final[dict[str, Callable[[Any], str]]] = {
    "aten.convolution.default": _convolution(0, 6),
    "aten.convolution_backward.default": _convolution(1, 7),
    "aten.native_group_norm.default": lambda args: TWICE,
    "aten.native_group_norm_backward.default": lambda args: TWICE,
    "aten.native_layer_norm.default": lambda args: AGAIN,
    "aten.native_layer_norm_backward.default": _weighted(7),
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _softmax,
    "aten._softmax_backward_data.default": _softmax_gradient(PRODUCT_FIRST, PRODUCT_FIRST),
    "aten._log_softmax_backward_data.default": _softmax_gradient(AGAIN, ""),
    "aten.embedding_dense_backward.default": lambda args: TABLE_GRADIENT,
    "aten._fused_rms_norm_backward.default": _weighted(5),
    "aten.native_batch_norm.default": _norm(0, 5),
    "aten._native_batch_norm_legit.default": _norm(0, 5),
    "aten.native_batch_norm_backward.default": _norm(1, 7),
    "aten.cudnn_batch_norm.default": _norm(0, 5),
    "aten.cudnn_batch_norm_backward.default": _norm(0, -1),
    **dict.fromkeys(
        (
            f"aten.{name}.default"
            for name in ("index_add", "index_add_", "scatter_add", "scatter_add_")
        ),
        lambda args: ADDED,
    ),
    **dict.fromkeys(
        (f"aten.{name}.default" for name in ("index_put", "index_put_", "_index_put_impl_")),
        lambda args: SORTED if args[3:4] == (True,) else "",
    ),
}
