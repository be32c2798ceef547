"""Which of several kernels PyTorch runs for an op, where a tensor's layout decides it.

The idea: convolutions and batch norms have kernels for channels that come first in memory and
others for channels that come last.  PyTorch's rules are those of ``use_cudnn_depthwise`` in
aten/src/ATen/native/Convolution.cpp and of ``_batch_norm_impl_index`` in Normalization.cpp:

- a depthwise convolution of f32 is PyTorch's own kernel unless channels come last (in half
  precision cuDNN is asked for most sizes, and counts as asked for all);
- a batch norm that is trained is cuDNN's, which for channels first has a block of threads per
  channel, and for channels last reads the activations twice;
- so do group norms, and the backward passes of layer norms and RMS norms with weights: one kernel
  each for the gradients of input and weight (cuda/layer_norm_kernel.cu, group_norm_kernel.cu).

    does(op)        # "direct convolution"; "" if nothing is known
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flint.cost.library_kernels import DIRECT, PER_CHANNEL, RECURRENT, TWICE
from flint.frontends.torch.recording.recording import Op, View


def does(op: Op) -> str:
    """What the kernel of an op does, as ``flint.cost.library_kernels`` names it; "" if unknown."""
    if op.recurrent:
        return RECURRENT
    rule = _RULES.get(op.name)
    return rule(op.args) if rule is not None else ""


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
        return TWICE if wanted[0] and wanted[1] else ""

    return rule


def _convolution(data: int, transposed: int) -> Callable[[Any], str]:
    def rule(args: Any) -> str:
        view, weight, groups = args[data], args[data + 1], args[transposed + 2]
        plane = len(view.shape) == len(weight.shape) == 4 and args[transposed] is False
        if not plane or not view.shape[1] == groups > 1 or view.dtype not in ("float32", "float64"):
            return ""
        return "" if _channels_last(view) or weight.stride[1] == 1 < weight.shape[1] else DIRECT

    return rule


#: Per op, from its arguments.
_RULES: Final[dict[str, Callable[[Any], str]]] = {
    "aten.convolution.default": _convolution(0, 6),
    "aten.convolution_backward.default": _convolution(1, 7),
    "aten.native_group_norm.default": lambda args: TWICE,
    "aten.native_group_norm_backward.default": lambda args: TWICE,
    "aten.native_layer_norm_backward.default": _weighted(7),
    "aten._fused_rms_norm_backward.default": _weighted(5),
    "aten.native_batch_norm.default": _norm(0, 5),
    "aten._native_batch_norm_legit.default": _norm(0, 5),
    "aten.native_batch_norm_backward.default": _norm(1, 7),
    "aten.cudnn_batch_norm.default": _norm(0, 5),
    "aten.cudnn_batch_norm_backward.default": _norm(0, -1),
}
