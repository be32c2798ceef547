"""Registration of the recording device in PyTorch, and errors that C++ loses on the way to Python.

register()
with torch.device("flint"): ...
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.cluster.device_module import DeviceModule


class _Passing:
    """A Python error on its way through C++, during which no Python may be called.

    While it unwinds, PyTorch restores devices and streams and asks the recording device's guard for
    its type; the answer would end the process.  So the error is removed first, and an empty error
    that C++ then reports is this one (``passed_error``).
    """

    take: Any = ctypes.pythonapi.PyErr_Fetch
    cells = tuple(ctypes.py_object() for _ in range(3))
    places = tuple(ctypes.byref(cell) for cell in cells)
    last: BaseException | None = None


def _type(_: Any, take: Any = _Passing.take, places: Any = _Passing.places) -> Any:
    take(*places)  # first: nothing else may be called before
    if _Passing.cells[0]:
        kind, value, trace = (cell.value if cell else None for cell in _Passing.cells)
        error: Any = value if isinstance(value, BaseException) or kind is None else kind(value)
        _Passing.last = error.with_traceback(trace)
    return torch._C._autograd.DeviceType.PrivateUse1


def passed_error() -> BaseException | None:
    """The last error that C++ lost, once."""
    found, _Passing.last = _Passing.last, None
    return found


_registered = False


def register() -> None:
    """Make the device known to PyTorch, once in a process."""
    global _registered
    if _registered:
        return
    import torch.distributed as dist
    import torch.testing._internal.distributed.fake_pg  # describes its groups
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    acc: Any = torch._C._acc  # private; as in torch 2.13

    def yes(*_: Any) -> bool:
        return True

    hooks = {"is_available": yes, "is_built": yes, "has_primary_context": yes}
    guard = {"type_": _type}
    made = [
        type("Hooks", (acc.PrivateUse1Hooks,), hooks)(),
        type("Guard", (acc.DeviceGuard,), guard)(),
    ]
    _setup_privateuseone_for_python_backend(NAME, DeviceModule(), *made)
    backend: Any = dist.Backend
    if NAME not in backend.backend_capability["fake"]:
        backend.backend_capability["fake"].append(NAME)
    backend.default_device_backend_map[NAME] = "fake"
    _registered = True
