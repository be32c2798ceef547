"""Kernels that the recording device has, as a GPU does, though PyTorch would decompose them.

Allocation: C++ code that needs real CPU tensors (DDP's reducer when it rebuilds its buckets) runs
outside of fake mode and still allocates on the device: it gets fake tensors of the capture's mode.
A tensor with a value known to fake mode (``torch.tensor(3)``) is not really moved to the device,
which has no memory; the value is dropped.

Fused ops: for a few ops the dispatcher has one kernel per backend and, for any backend without, a
composition of other ops: ``silu_backward`` would be recorded as seven kernels where a GPU launches
one.  These are the ops of ATen with a kernel for CUDA (native_functions.yaml) and a
CompositeImplicitAutograd one that is not merely a fallback for quantized or nested tensors.  The
kernels are never run, because fake tensors know the results' shapes.

Assignment (``x[mask] = 0``): for CPU and CUDA tensors PyTorch makes a CPU scalar of the number,
which is passed with the kernel; for other devices it first fills a scalar on the device, one more
kernel.

One-hot: fake tensors get it by comparison with all classes, for their values may not be read; a GPU
scatters ones into zeros (aten/src/ATen/native/Onehot.cpp).

Indices: a GPU's tensor may be indexed by a tensor of the host.  Fake tensors allow it, but not in
the op that writes the gradient (``inplace_gradients``).

Foreach: optimizers and gradient clipping take their foreach implementation, as they do on a GPU,
only for the tensor types that PyTorch lists; a parameter that is a fake tensor counts as another.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, register_kernels, replace

_FUSED = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")

_INSIDE = "_inside"


def apply() -> None:
    """Give the recording device its kernels."""
    allocating: dict[str, Any] = {"empty.memory_format": _empty, "empty_strided": _empty_strided}
    register_kernels("aten", "PrivateUse1", allocating)
    replace(FakeTensorMode, "avoid_device_init", property(lambda _: True))
    replace(FakeTensorMode, "in_kernel_invocation", property(_is_inside, _set_inside))
    register_kernels("aten", "PrivateUse1", dict.fromkeys(_FUSED, _never_run))
    replace(FakeTensor, "__torch_dispatch__", staticmethod(_dispatch))
    replace(torch.UntypedStorage, "__new__", staticmethod(_storage))
    around(torch.Tensor, "__setitem__", _assign)
    around(torch.nn.functional, "one_hot", _one_hot)
    table: Any = fake_impls.op_implementations_dict
    table[torch.ops.aten._index_put_impl_.default] = _written_in_place
    modules: tuple[Any, ...] = (optimizer, _foreach_utils)
    for module in modules:
        if FakeTensor not in module._foreach_supported_types:
            module._foreach_supported_types.append(FakeTensor)


_of_fake_tensors: Any = FakeTensor.__torch_dispatch__


def _dispatch(op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What a tensor made of others calls for one of them, with its own types, is that one's op.

    Tensors with values take such calls, fake ones take the types for those of the arguments.
    """
    others = [
        kind for kind in types if kind is not torch.Tensor and not issubclass(kind, FakeTensor)
    ]
    if others and not any(isinstance(item, tuple(others)) for item in tree_leaves((args, kwargs))):
        return op(*args, **(kwargs or {}))
    return _of_fake_tensors(op, types, args, kwargs or {})


_of_storages: Any = torch.UntypedStorage.__new__


def _storage(kind: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """A storage, which PyTorch cannot make on the recording device: there is no allocator."""
    if device is None or torch.device(device).type != NAME:
        return _of_storages(kind, *args, **({} if device is None else {"device": device}), **kwargs)
    size = args[0] if args and isinstance(args[0], int) else 0
    return torch.empty(size, dtype=torch.uint8, device=NAME).untyped_storage()


class _Inside(threading.local):
    """Whether a thread gets an op's shapes; PyTorch compares that with what the thread itself
    knows, but has one answer for all threads of a mode."""

    is_inside = False


def _is_inside(mode: Any) -> bool:
    inside: _Inside = vars(mode)[_INSIDE]
    return inside.is_inside


def _set_inside(mode: Any, value: bool) -> None:
    vars(mode).setdefault(_INSIDE, _Inside()).is_inside = value


def _one_hot(original: Any, tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if tensor.device.type != NAME or tensor.dtype != torch.int64 or not tensor.numel():
        classes: torch.Tensor = original(tensor, num_classes)
        return classes
    count = int(tensor.max().item()) + 1 if num_classes == -1 else num_classes
    if count < 1:
        raise RuntimeError("num_classes should be positive")
    made = torch.zeros((*tensor.shape, count), dtype=tensor.dtype, device=tensor.device)
    return made.scatter_(-1, tensor.unsqueeze(-1), 1)


def _empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: Any = None,
) -> Any:  # fmt: skip
    with capture().fake_mode:
        return torch.empty(size, dtype=dtype, device=device)


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    with capture().fake_mode:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)


def _never_run(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a kernel of the recording device was run")


def _written_in_place(_: Any, __: Any, tensor: Any, *___: Any, **____: Any) -> Any:
    return tensor


def _assign(original: Any, tensor: torch.Tensor, index: Any, value: Any) -> None:
    if isinstance(value, bool | int | float | complex) and tensor.device.type == NAME:
        value = torch.tensor(value, dtype=tensor.dtype, device="cpu")
    original(tensor, index, value)
