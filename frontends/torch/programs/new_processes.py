"""Processes that a program starts anew are told which device there is.

The idea: such a process imports the program's module, which may ask for GPUs before it does
anything else (``assert torch.cuda.is_available()``).  It gets the same answers as the program; it
has no recording, and makes no tensors of the device.

    own.anew.append(functools.partial(answer, "h100-sxm", 8))
"""

from __future__ import annotations

import functools
from typing import Any

from flint.host.imports import watch_imports

#: Questions about the device that need no recording.
_ASKED = (
    "current_device", "device_count", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "is_available", "is_bf16_supported",
)  # fmt: skip


def answer(accelerator: str | None, devices: int) -> None:
    """In the new process: answer when it imports PyTorch.

    Args:
        accelerator: which device the program sees.
        devices: how many a host has.
    """
    watch_imports({"torch": functools.partial(_answer, accelerator, devices)})


def _answer(accelerator: str | None, devices: int) -> None:
    import torch

    from flint.frontends.torch.cluster import cuda, device_module
    from flint.frontends.torch.programs import xformers

    device_module.describe(accelerator, devices)
    module: Any = device_module.DeviceModule()
    for name in _ASKED:
        setattr(torch.cuda, name, getattr(module, name))
    for owner, name, value in cuda.built():
        setattr(owner, name, value)
    xformers.apply()
