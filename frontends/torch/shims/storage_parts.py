"""Tensors that a program makes from storages: ``tensor.set_(other.untyped_storage()[64:128])``.

The idea: a part of a storage is memory that two tensors share, which ``recording`` finds by the
storage.  Fake tensors have no memory to take a part of, so a part is noted as a place in the whole
storage; a tensor that gets one becomes a view of it.  To a program, storages without memory are on
the device.

    part = gradients.untyped_storage()[64:128]      # bytes
    torch.empty(0, device="cuda").set_(part)        # 16 floats that share it
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from flint.frontends.torch.cluster.cuda import recording_device
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.shims.parameters import swap
from flint.frontends.torch.user_lines import inside_torch

_META = "meta"
_PLAIN: Any = torch._C.StorageBase


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a storage without memory.

    Attributes:
        whole: the storage.
        start, stop: its bytes.
    """

    whole: Any
    start: int
    stop: int

    def __getitem__(self, at: slice) -> Part:
        start, stop, _ = at.indices(len(self))
        return Part(self.whole, self.start + start, self.start + max(start, stop))

    def __len__(self) -> int:
        return self.stop - self.start

    size = nbytes = __len__

    def element_size(self) -> int:
        """As of any storage of bytes."""
        return 1

    @property
    def device(self) -> torch.device:
        """The recording device."""
        return recording_device()


def apply() -> None:
    """Make parts of storages, and tensors of them."""
    storage: Any = torch.UntypedStorage
    plain = _PLAIN.device

    def device(self: Any) -> torch.device:
        found: torch.device = plain.__get__(self)
        asked = found.type == _META and not inside_torch(sys._getframe(1))
        return recording_device() if asked else found

    replace(storage, "device", property(device))
    around(storage, "__getitem__", _part)
    around(torch.Tensor, "set_", _set)


def _has_memory(storage: Any) -> bool:
    return bool(_PLAIN.device.__get__(storage).type != _META)


def _part(original: Any, storage: Any, at: Any) -> Any:
    if _has_memory(storage) or not isinstance(at, slice):
        return original(storage, at)
    return Part(storage, 0, storage.nbytes())[at]


def _set(
    original: Any, tensor: torch.Tensor, source: Any = None, storage_offset: int = 0,
    size: Sequence[int] | None = None, stride: Sequence[int] | None = None, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """As ``torch.Tensor.set_``; PyTorch's own code knows what it does with storages."""
    storage = isinstance(source, torch.UntypedStorage) and not inside_torch(sys._getframe(2))
    if storage and isinstance(tensor, FakeTensor) and not _has_memory(source):
        source = Part(source, 0, source.nbytes())
    if not isinstance(source, Part):
        given = (source, storage_offset, size, stride)[: 1 if size is None else None]
        made: torch.Tensor = original(tensor, *(item for item in given if item is not None))
        return made
    each = tensor.element_size()
    if source.start % each:
        raise RuntimeError("a part of a storage must begin at an element of the tensor's type")
    shape = tuple(size) if size is not None else (len(source) // each,)
    steps = tuple(stride) if stride is not None else _dense(shape)
    first = source.start // each + storage_offset
    with unset_fake_temporarily(), _disable_current_modes(), torch._C.DisableTorchFunction():
        form: Any = torch.ops.aten.empty.memory_format([0], dtype=tensor.dtype, device=_META)
        form.set_(source.whole, first, shape, steps)
        swap(tensor, FakeTensor(capture().fake_mode, form, tensor.device))
    return tensor


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps[: len(shape)])
