"""CUDA by name: programs' calls to a GPU go to the recording device.

The idea: training code names its device ("cuda", ``.cuda()``, ``torch.cuda.Stream``).  Wherever
PyTorch takes a device, the recording device is substituted; the functions of ``torch.cuda`` and of
``torch.accelerator`` are answered by its module.  Extensions that call CUDA themselves are not
PyTorch code and fail when they are called.

    with cuda_names(): torch.zeros(3, device="cuda").device        # flint:0
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.cuda import nvtx, profiler

from flint.frontends.torch.cluster.device import NAME, Event, Stream, current_stream
from flint.frontends.torch.cluster.device_module import GENERATOR, DeviceModule, Markers
from flint.frontends.torch.cluster.device_numbers import number_of, of_number, put_on
from flint.frontends.torch.cluster.nccl import ProcessGroupNCCL
from flint.frontends.torch.cluster.tensor_types import kind_of, set_default, types
from flint.frontends.torch.modes import function_mode
from flint.frontends.torch.patching import around, replace

#: Versions that programs compare with their requirements, for PyTorch built without CUDA.
_CUDA, _NCCL = "13.0", (2, 27, 5)
#: Private functions that packages use, which PyTorch without CUDA does not have: the number of a
#: device's current stream; what clears memory of libraries (Lightning) and pinned memory; a
#: question about forks.
_PRIVATE: Mapping[str, Callable[..., Any]] = {
    "_cuda_getCurrentRawStream": lambda *_: current_stream().stream_id,
    "_cuda_clearCublasWorkspaces": lambda: None,
    "_cuda_emptyCache": lambda: None,
    "_cuda_isInBadFork": lambda: False,
    "_host_emptyCache": lambda: None,
    "_cuda_CUDAAllocator_AllocatorState": object,  # a type, imported where CUDA is available
}
#: What PyTorch without CUDA does not have, but names where NCCL is available.
_NCCL_GROUP = "ProcessGroupNCCL"
#: Generators of devices, which programs index by their number.
_MOST_DEVICES = 64


def recording_device() -> torch.device:
    """The device that this process records."""
    return of_number(None)


def mapped(item: Any) -> Any:
    """A device that names CUDA becomes the recording device; any other object is unchanged."""
    if isinstance(item, torch.device):
        if item.type == "cuda":
            return of_number(item.index)
        return of_number(number_of(item)) if item.type == NAME else item
    if isinstance(item, str) and (item == "cuda" or item.startswith("cuda:")):
        with torch._C.DisableTorchFunction():  # else it has the recording device's number
            return of_number(torch.device(item).index)
    return item


def _see(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Substitute the recording device wherever a function is given a CUDA device."""
    if func is torch.Tensor.cuda:
        rest = {key: value for key, value in kwargs.items() if key == "non_blocking"}
        device = args[1] if args[1:] else kwargs.get("device")
        put_on(of_number(device) if isinstance(device, int) else mapped(device))
        return args[0].to(recording_device(), **rest)
    if func is torch.device:
        same = len(args) == 1 and isinstance(args[0], torch.device)
        return mapped(args[0] if same else torch.device(*args, **kwargs))
    if func is torch.Tensor.type:
        kind = kind_of(args[1] if args[1:] else kwargs.get("dtype"))
        if kind is not None:
            return args[0].to(recording_device(), kind.dtype)
    if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], int):
        args = (args[0], of_number(args[1]), *args[2:])
    for item in args:
        if isinstance(item, torch.device | str):
            args = tuple(mapped(part) for part in args)
            for part in args:
                put_on(part)
            break
    if "device" in kwargs:
        device = mapped(kwargs["device"])
        is_number = isinstance(device, int) and not isinstance(device, bool)
        kwargs = {**kwargs, "device": of_number(device) if is_number else device}
        put_on(kwargs["device"])
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    return func(*args, **kwargs)


@contextlib.contextmanager
def cuda_names() -> Iterator[None]:
    """Within it, CUDA's names mean the recording device, in this process."""
    module = DeviceModule()
    values = {
        "Stream": Stream, "Event": Event, "device": module.device, "_lazy_init": lambda: None,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        for owner in (torch.cuda, torch.accelerator):
            for name in dir(module):
                if not name.startswith("__") and hasattr(owner, name):
                    stack.callback(replace(owner, name, getattr(module, name)))
        for name, value in values.items():
            stack.callback(replace(torch.cuda, name, value))
        for name, kind in list(types()):
            stack.callback(replace(torch.cuda, name, kind))
        stack.callback(around(torch, "set_default_tensor_type", set_default))
        for owner, name, value in _present():
            stack.callback(replace(owner, name, value))
        stack.callback(replace(nvtx, "_nvtx", Markers()))
        for owner in (torch.cuda, profiler):
            stack.callback(replace(owner, "cudart", Markers))
            stack.callback(replace(owner, "check_error", lambda _: None))
        # Pages of fake tensors cannot be pinned; a data loader's thread is outside of the mode.
        stack.callback(replace(torch.Tensor, "pin_memory", lambda tensor, *_, **__: tensor))
        # It states when memory may be reused, which adds no order.
        stack.callback(replace(torch.Tensor, "record_stream", lambda *_: None))
        for owner, name, where in _device_arguments():
            stack.callback(around(owner, name, functools.partial(_with_mapped, where)))
        stack.callback(around(torch.nn.Module, "to", _module_to))
        for owner in (torch.autograd, torch.autograd.graph):
            stack.callback(around(owner, "_engine_run_backward", _backward))
        stack.enter_context(function_mode(_see))
        yield


def _backward(run: Any, *args: Any, **kwargs: Any) -> Any:
    """``tensor.backward()`` is a function that the mode sees: while it runs, the mode is off, but
    hooks and the gradients of a program's own functions name devices, too."""
    with function_mode(_see):
        return run(*args, **kwargs)


def _module_to(plain: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """``module.to(device)``, which makes a device of its own of what it is given."""
    for item in (*args, *kwargs.values()):
        number = isinstance(item, int) and not isinstance(item, bool)
        put_on(of_number(item) if number else mapped(item))
    return plain(module, *args, **kwargs)


def release() -> str:
    """The release of CUDA that PyTorch is said to be built with."""
    return torch.version.cuda or _CUDA


def built() -> Iterator[tuple[Any, str, Any]]:
    """The attributes that say that PyTorch is built for CUDA: owner, name, value."""
    yield torch.version, "cuda", release()
    yield torch.backends.cuda, "is_built", lambda: True
    yield torch.backends.cuda, "is_flash_attention_available", lambda: True


def _present() -> Iterator[tuple[Any, str, Any]]:
    """The attributes that report CUDA and NCCL as available: owner, name, value."""
    from torch.distributed import distributed_c10d

    yield from built()
    yield torch.cuda.nccl, "version", lambda: _NCCL
    yield torch.cuda, "default_generators", (GENERATOR,) * _MOST_DEVICES
    yield torch, "Generator", _Generator
    for name, function in _PRIVATE.items():
        vars(torch._C).setdefault(name, None)
        yield torch._C, name, function
    for owner in (torch.distributed, distributed_c10d):
        yield owner, "is_nccl_available", lambda: True
        yield owner, _NCCL_GROUP, vars(owner).setdefault(_NCCL_GROUP, ProcessGroupNCCL)
        yield owner, "get_default_backend_for_device", _default_backend


class _Generators(type):
    """The type of PyTorch's generators, for type checks."""

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, torch._C.Generator)


class _Generator(metaclass=_Generators):
    """``torch.Generator``: a generator of the device draws no values, one of the host does it."""

    def __new__(cls, device: Any = "cpu") -> Any:
        kind: Any = torch._C.Generator
        return kind("cpu" if mapped(torch.device(device)).type == NAME else device)


def _default_backend(device: Any) -> str:
    """As ``torch.distributed.get_default_backend_for_device``."""
    kind = torch.device(mapped(device)).type if isinstance(device, str) else mapped(device).type
    return "nccl" if kind in ("cuda", NAME) else "gloo"


def _device_arguments() -> Iterator[tuple[Any, str, tuple[int, str]]]:
    """Functions that modes do not see: owner, name, position and name of the device's type."""
    from torch.distributed import device_mesh

    yield torch, "set_default_device", (0, "device")
    yield torch.autocast, "__init__", (1, "device_type")
    yield torch.amp.GradScaler, "__init__", (1, "device")
    yield torch, "get_device_module", (0, "device")
    for name in ("get_autocast_dtype", "is_autocast_enabled", "set_autocast_enabled",
                 "set_autocast_dtype"):  # fmt: skip
        yield torch, name, (0, "device_type")
    yield torch.distributed, "init_device_mesh", (0, "device_type")
    yield device_mesh, "init_device_mesh", (0, "device_type")
    yield device_mesh.DeviceMesh, "__init__", (1, "device_type")


def _with_mapped(where: tuple[int, str], function: Any, *args: Any, **kwargs: Any) -> Any:
    position, name = where
    if len(args) > position:
        args = (*args[:position], _same_kind(args[position]), *args[position + 1 :])
    if name in kwargs:
        kwargs[name] = _same_kind(kwargs[name])
    return function(*args, **kwargs)


def _same_kind(item: Any) -> Any:
    """A device's type given as text stays text."""
    found = mapped(item)
    return NAME if isinstance(item, str) and isinstance(found, torch.device) else found
