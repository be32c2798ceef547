"""GPU kernels for which PyTorch has no shape function, and the code around them.

The idea: under fake tensors an op gives shapes by its "meta" kernel.  Synchronised batch norm's
ops, the fused GRU cell, gradients of margin losses and fused optimizers whose learning rate is a
tensor have none: they are here, as in PyTorch's own kernels
(aten/src/ATen/native/cuda/Normalization.cu, RNN.cu).  Any other op without one is an error that
names it.

Synchronised batch norm removes ranks without samples, which the host waits for: every rank is
assumed to have some, and the wait stays.  Recurrent networks are decomposed step by step, as on
GPUs without cuDNN.  Both are reported.

    with kernels(): F.batch_norm ...
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import _decomp, _meta_registrations
from torch._subclasses import fake_tensor
from torch.nn.modules import _functions

from flint.errors import FlintError
from flint.frontends.torch.cluster import device
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import always_around, around, replace
from flint.frontends.torch.recording import precision
from flint.frontends.torch.user_lines import at_user_line

#: Kernels of these types keep statistics in another type.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _per_channel(input: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A vector [channels], by default of the dtype of statistics."""
    dtype = dtype or _WIDE.get(input.dtype, input.dtype)
    return input.new_empty(input.shape[1], dtype=dtype)


def _stats(input: torch.Tensor, *_: Any) -> Any:
    return _per_channel(input), _per_channel(input)


def _like(input: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(input)


def _reduced(
    grad_out: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, invstd: torch.Tensor,
    weight: torch.Tensor | None, input_g: bool, weight_g: bool, bias_g: bool,
) -> Any:  # fmt: skip
    kind = None if weight is None else weight.dtype
    none = input.new_empty(0)
    sums = [_per_channel(input) if input_g else none for _ in range(2)]
    return *sums, *(_per_channel(input, kind) if each else none for each in (weight_g, bias_g))


def _gru(input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(hx), hx.new_empty(hx.shape[0], hx.shape[1] * 5)


def _gru_backward(grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> Any:
    batch, hidden = workspace.shape[0], workspace.shape[1] // 5
    gates = [workspace.new_empty(batch, 3 * hidden) for _ in range(2)]
    biases = [workspace.new_empty(3 * hidden if has_bias else 0) for _ in range(2)]
    return *gates, torch.empty_like(grad_hy), *biases


def _like_second(_: torch.Tensor, input: torch.Tensor, *__: Any, **___: Any) -> Any:
    return torch.empty_like(input)


def _nothing(*_: Any, **__: Any) -> None:
    """The shapes of ops that only write their arguments."""


def _given(*_: Any, out: torch.Tensor, **__: Any) -> torch.Tensor:
    """Compiled programs write into a buffer of the result's sizes."""
    return out


_SHAPES = {
    "_scaled_mm.out": _given,
    "_fused_adam_.tensor_lr": _nothing,
    "_fused_adamw_.tensor_lr": _nothing,
    "_fused_sgd_": _nothing,
    "_fused_sgd_.tensor_lr": _nothing,
    "_fused_adagrad_": _nothing,
    "_fused_adagrad_.tensor_lr": _nothing,
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _stats,
    "batch_norm_elemt": _like,
    "batch_norm_backward_reduce": _reduced,
    "batch_norm_backward_elemt": _like,
    "multi_margin_loss_backward": _like_second,
    "multilabel_margin_loss_backward": _like_second,
    "_thnn_fused_gru_cell": _gru,
    "_thnn_fused_gru_cell_backward": _gru_backward,
}


def _sum_of_product(
    _: torch.Tensor, left: torch.Tensor, right: torch.Tensor, out_dtype: torch.dtype, **__: Any
) -> Any:
    return left.new_empty(left.shape[0], right.shape[1], dtype=out_dtype)


#: Overloads of ``addmm`` that PyTorch 2.12 decomposes as another, for which a dtype is ``beta``.
_SHAPES_OF_2_12 = {"addmm.dtype": _sum_of_product, "addmm.dtype_out": _given}

_new_library: Any = torch.library.Library


@contextlib.contextmanager
def kernels() -> Iterator[None]:
    """Within it, these ops have shapes."""
    library = _new_library("aten", "IMPL")
    for name, function in (_SHAPES | _misplaced()).items():
        library.impl(name, function, "Meta", allow_override=True)
    with contextlib.ExitStack() as stack:
        stack.callback(around(fake_tensor, "run_fallback_kernel", _fallback))
        # Inductor plans with the same layouts as the kernels give.
        stack.callback(always_around(torch._C, "_conv_determine_backend_memory_format", _layout))
        stack.callback(around(_functions.SyncBatchNorm, "forward", _synchronised))
        stack.callback(around(_meta_registrations, "rnn_cell_checkSizes", _checked))
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            stack.callback(around(torch._VF, name, functools.partial(_step_by_step, name)))
        yield


def _misplaced() -> dict[str, Any]:
    """Shapes of ops whose decomposition is that of another overload, which is taken away."""
    found, packet = _decomp.decomposition_table, torch.ops.aten.addmm
    if found.get(packet.dtype) is not found.get(packet.default):
        return {}
    for name in _SHAPES_OF_2_12:
        found.pop(getattr(packet, name.rpartition(".")[2]))
    return _SHAPES_OF_2_12


def _fallback(original: Any, mode: Any, func: Any, flat_args: Any, *rest: Any) -> Any:
    """Prevent ops on the recording device from falling back to a real run."""
    for item in flat_args:
        if isinstance(item, torch.Tensor) and item.device.type == device.NAME:
            raise FlintError(
                f"{func} cannot be captured{at_user_line()}: PyTorch has no function that gives "
                "its results' shapes; torch.library.register_fake adds one for an op of your own"
            )
    return original(mode, func, flat_args, *rest)


def _layout(original: Any, input: torch.Tensor, weight: torch.Tensor, backend: Any) -> Any:
    """Convolutions of cuDNN keep channels last if their input or weight has them there
    (``cudnn_conv_suggest_memory_format`` in aten/src/ATen/native/ConvUtils.h).
    """
    for item in (input, weight):
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(item.dim())
        if last is None or item.dtype == torch.float64 or item.is_contiguous():
            continue
        if item.is_contiguous(memory_format=last):
            return last
    return original(input, weight, backend)


def _checked(
    check: Any, input: torch.Tensor, hidden: torch.Tensor, input_bias: torch.Tensor | None,
    *rest: Any,
) -> None:  # fmt: skip
    """PyTorch's own check of an LSTM cell asks biases for their device where there are none."""
    if input_bias is not None:
        check(input, hidden, input_bias, *rest)


def _synchronised(original: Any, *args: Any) -> Any:
    """SyncBatchNorm's forward pass without the selection of ranks that have samples."""

    def waits() -> bool:
        line = device.timeline()
        line.host_wait(line.moment(device.current_stream().stream_id))
        return True  # as in a CUDA graph, which assumes that every rank has samples

    capture().notice(
        f"batch norm is synchronised{at_user_line()}: every rank is assumed to have samples"
    )
    undo = replace(torch.cuda, "is_current_stream_capturing", waits)
    try:
        return original(*args)
    finally:
        undo()


def _step_by_step(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    if args and args[0].device.type == device.NAME:
        capture().notice(
            f"{name}{at_user_line()}: recorded step by step; cuDNN has a kernel for all steps"
        )
    with precision.of_cudnn():
        return original(*args, **kwargs)
