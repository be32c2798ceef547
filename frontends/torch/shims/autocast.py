"""Automatic mixed precision.

``torch.autocast`` casts op by op through kernels that PyTorch registers for each kind of device;
for a device made in Python there are none, and nothing would be cast.  The lists are those of
PyTorch's documentation ("Autocast Op Reference", CUDA): some ops run in the lower precision, some
in float32, some in the widest type of their arguments.  Casts of parameters are kept until the
outermost autocast ends, as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flint.frontends.torch.patching import always_around, around, register_kernels
from flint.frontends.torch.recording.schemas import tensors_in

_LOWER = (
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input",
    "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "einsum",
    "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul",
    "linalg_multi_dot", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "scaled_dot_product_attention",
)  # fmt: skip
_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal",
    "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus",
    "layer_norm", "native_layer_norm", "group_norm", "cosine_similarity", "poisson_nll_loss",
    "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss",
    "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "norm.Scalar", "norm.ScalarOpt_dim",
)  # fmt: skip
#: These get the type of their result as an argument: the cast is part of the kernel.
_FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "sum", "sum.dim_IntList",
)  # fmt: skip
_WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put",
    "tensordot", "scatter_add", "cat", "stack",
)  # fmt: skip

_others: Any = None
_fall_through: Any = torch.library.fallthrough_kernel
_new_library: Any = torch.library.Library
_c: Any = torch._C
_casts: dict[int, tuple[Any, Any]] = {}  # parameter -> itself, to keep it alive, and its cast


def apply() -> None:
    """Register autocast for the recording device when it is first enabled.

    Registration changes what the dispatcher knows of every op, which takes as long as a small step.
    """
    always_around(torch, "set_autocast_enabled", _set_enabled)
    around(torch, "clear_autocast_cache", _clear_both)


def _set_enabled(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    if _others is None and (kwargs.get("enabled") or True in args):
        _register()
    original(*args, **kwargs)


def _register() -> None:
    global _others
    _others = _new_library("_", "IMPL")
    _others.fallback(_fall_through, "AutocastPrivateUse1")
    for names, rule in (
        (_LOWER, _lower),
        (_FLOAT32, _float32),
        (_FLOAT32_RESULT, _float32_result),
        (_WIDEST, _widest),
    ):
        kernels = {name: _without_autocast(_op(name), rule) for name in names}
        register_kernels("aten", "AutocastPrivateUse1", kernels)


def _op(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _clear_both(clear: Callable[[], None]) -> None:
    _casts.clear()
    clear()


_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _without_autocast(op: Any, rule: Callable[[Any, Any, Any], _Arguments]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        key = _c.DispatchKeySet(_c.DispatchKey.AutocastPrivateUse1)
        with _c._ExcludeDispatchKeyGuard(key):
            args, kwargs = rule(op, args, kwargs)
            return op(*args, **kwargs)

    return run


def _lower(_: Any, args: Any, kwargs: Any) -> _Arguments:
    return _all_to(torch.get_autocast_dtype("flint"), args, kwargs)


def _float32(_: Any, args: Any, kwargs: Any) -> _Arguments:
    return _all_to(torch.float32, args, kwargs)


def _float32_result(op: Any, args: Any, kwargs: Any) -> _Arguments:
    names = [item.name for item in op._schema.arguments]
    place = names.index("dtype")
    given = kwargs.get("dtype") is not None or (len(args) > place and args[place] is not None)
    if given or not args[0].is_floating_point() or args[0].dtype == torch.float64:
        return args, kwargs
    if len(args) > place:
        return (*args[:place], torch.float32, *args[place + 1 :]), kwargs
    return args, {**kwargs, "dtype": torch.float32}


def _widest(_: Any, args: Any, kwargs: Any) -> _Arguments:
    types = {item.dtype for item in tensors_in((*args, *kwargs.values()))}
    if torch.float32 in types:
        return _all_to(torch.float32, args, kwargs)
    return args, kwargs


def _all_to(dtype: torch.dtype, args: Any, kwargs: Any) -> _Arguments:
    def cast(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return _to(item, dtype)
        if isinstance(item, list | tuple):
            return type(item)(cast(part) for part in item)
        return item

    # From the last argument to the first, as the C++ wrapper's compiled argument list is evaluated.
    named = {key: cast(item) for key, item in reversed(kwargs.items())}
    return tuple(reversed([cast(item) for item in reversed(args)])), named


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    eligible = tensor.is_floating_point() and tensor.dtype not in (dtype, torch.float64)
    if not eligible or tensor.device.type == "cpu":
        return tensor
    keeps = (
        tensor.requires_grad
        and tensor.is_leaf
        and tensor.dtype == torch.float32
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
    )
    if not keeps:
        return tensor.to(dtype)
    known = _casts.get(id(tensor))
    if known is None or known[1].dtype != dtype:
        known = tensor, tensor.to(dtype)
        _casts[id(tensor)] = known
    cast: torch.Tensor = known[1]
    return cast
