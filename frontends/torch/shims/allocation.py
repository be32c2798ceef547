"""Allocation on the recording device outside of fake mode.

C++ code that needs real CPU tensors (DDP's reducer when it rebuilds its buckets) runs outside of
fake mode and still allocates on the device: it gets fake tensors of the capture's mode.  And what
fake mode knows the value of (``torch.tensor(3)``) is not really moved to the device, which has no
memory, but forgotten on the way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_library: Any = None
_new_library: Any = torch.library.Library
_mode: Any = None


def use(mode: Any) -> None:
    """Allocate fake tensors of this FakeTensorMode from now on."""
    global _mode
    _mode = mode


def apply() -> None:
    """Let the recording device allocate."""
    global _library
    _library = _new_library("aten", "IMPL")
    _library.impl("empty.memory_format", _empty, "PrivateUse1")
    kind: Any = FakeTensorMode
    kind.avoid_device_init = property(lambda _: True)
    _library.impl("empty_strided", _empty_strided, "PrivateUse1")


def _empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: Any = None,
) -> Any:  # fmt: skip
    with _mode:
        return torch.empty(size, dtype=dtype, device=device)


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    with _mode:
        return torch.empty_strided(size, stride, dtype=dtype, device=device)
