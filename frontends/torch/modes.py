"""Dispatch and function modes of PyTorch made from plain functions.

with dispatch_mode(lambda op, types, args, kwargs: op(*args, **kwargs)): ...
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

#: What sees an op: the op, types of its tensors, arguments.
Handler = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


#: What programs replace while they make a model, to put it on a device (nanotron, DeepSpeed).
_CONSTRUCTORS = {
    name: getattr(torch, name)
    for name in ("arange", "empty", "empty_strided", "full", "ones", "rand", "randn", "zeros")
}
_DISPATCH = "__torch_dispatch__"
#: Autograd's engine asks every gradient for it, as an op: two of three ops of a training step.
_DEVICE = torch.ops.prim.device.default
#: C++ asks, and ends the process at an error: a program's class, which may raise one, is not asked.
_DEVICE_OF: Any = vars(FakeTensor)["device"].fget
_OWN = "is_flints"
#: Imported with Dynamo itself, not with what stands for it (``shims.dynamo``).
_DYNAMO = "torch._dynamo.eval_frame"
_hidden = 0
_traced = False


def let_code_be_traced() -> None:
    """Make PyTorch compile code also under modes of this module, from now on."""
    global _traced
    _traced = True


@contextmanager
def unseen() -> Iterator[None]:
    """Within it, dispatch modes of this module are inactive."""
    global _hidden
    _hidden += 1
    try:
        yield
    finally:
        _hidden -= 1


@contextmanager
def without_modes() -> Iterator[None]:
    """Within it, code of Flint's runs as if there were no capture, and Dynamo traces none of it."""
    set_tracing = torch._C._dynamo.eval_frame.set_eval_frame
    before = set_tracing(None)
    try:
        with unset_fake_temporarily(), _disable_current_modes(), torch._C.DisableTorchFunction():
            yield
    finally:
        set_tracing(before)


def with_real_tensors(function: Any) -> Any:
    """The function with real tensors on the CPU, regardless of active modes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with (
            unset_fake_temporarily(),
            _disable_current_modes(),
            torch._C.DisableTorchFunctionSubclass(),
            torch.device("cpu"),
        ):
            return function(*args, **kwargs)

    return call


@contextmanager
def _plain_constructors(replaced: dict[str, Any]) -> Iterator[None]:
    """Within it, these functions are PyTorch's: what gives an op's shapes uses them, too."""
    for name in replaced:
        setattr(torch, name, _CONSTRUCTORS[name])
    try:
        yield
    finally:
        for name, function in replaced.items():
            setattr(torch, name, function)


def run(op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Leave an op to the modes below: the inactive handler."""
    return op(*args, **kwargs)


def dispatch_mode(handler: Handler) -> AbstractContextManager[Any]:
    """A mode that sees every op that reaches the dispatcher below autograd."""
    return _mode(TorchDispatchMode, _DISPATCH, handler)


def function_mode(handler: Handler) -> AbstractContextManager[Any]:
    """A mode that sees every function of PyTorch that is called."""
    return _mode(TorchFunctionMode, "__torch_function__", handler)


def _mode(kind: Any, method: str, handler: Handler) -> AbstractContextManager[Any]:
    def see(_: Any, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if method != _DISPATCH:
            return handler(op, types, args, kwargs or {})
        if op is _DEVICE and isinstance(args[0], FakeTensor):
            return _DEVICE_OF(args[0])
        if _hidden:
            return op(*args, **(kwargs or {}))
        now = vars(torch)
        replaced = {name: now[name] for name, own in _CONSTRUCTORS.items() if now[name] is not own}
        if not replaced:
            return handler(op, types, args, kwargs or {})
        with _plain_constructors(replaced):
            return handler(op, types, args, kwargs or {})

    parts = {
        method: see, "ignore_compile_internals": classmethod(lambda _: _traced), _OWN: True,
        # Keeping Dynamo out of a handler costs as much as an op: only where it may be at work, also
        # for what was compiled before the capture.
        "_should_skip_dynamo": classmethod(lambda _: _traced or _DYNAMO in sys.modules),
    }  # fmt: skip
    made: AbstractContextManager[Any] = type(kind.__name__, (kind,), parts)()
    return made


def is_own(mode: Any) -> bool:
    """Whether a mode was made here."""
    return hasattr(mode, _OWN)
