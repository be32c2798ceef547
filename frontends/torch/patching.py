"""Replacement of parts of PyTorch, permanently or until undone.

undo = around(torch.Tensor, "__setitem__", lambda original, self, *args: original(self, *args))
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

#: Undoes a replacement.
Undo = Callable[[], None]

#: Kernels are registered for as long as their library lives.
_libraries: list[Any] = []
_new_library: Any = torch.library.Library


#: Functions that are replaced by others around them, oldest first: owner, name, before, now.
_around: dict[object, tuple[Any, str, Any, Any]] = {}


def replace(owner: Any, name: str, value: Any) -> Undo:
    """Set an attribute; the returned function restores it."""
    before = _attribute(owner, name)
    setattr(owner, name, value)
    return functools.partial(setattr, owner, name, before)


def replace_of_type(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a C type, which Python does not allow; permanently."""
    attributes: Any = gc.get_referents(kind.__dict__)[0]
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def around(owner: Any, name: str, function: Callable[..., Any]) -> Undo:
    """Replace a function: a call of it becomes ``function(original, *args, **kwargs)``."""
    before, key = _attribute(owner, name), object()
    now = _calling(owner, name, function)
    undo = replace(owner, name, now)
    _around[key] = owner, name, before, now

    def taken_back() -> None:
        _around.pop(key, None)
        undo()

    return taken_back


def always_around(owner: Any, name: str, function: Callable[..., Any]) -> Undo:
    """Like ``around``, but ``plain_functions`` leaves the replacement in place."""
    return replace(owner, name, _calling(owner, name, function))


def _calling(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    return staticmethod(call) if isinstance(_attribute(owner, name), staticmethod) else call


@contextlib.contextmanager
def plain_functions() -> Iterator[None]:
    """Within it, functions replaced by ``around`` are the original ones."""
    items = list(_around.values())
    for owner, name, before, _ in reversed(items):
        setattr(owner, name, before)
    try:
        yield
    finally:
        for owner, name, _, now in items:
            setattr(owner, name, now)


def _attribute(owner: Any, name: str) -> Any:
    """An attribute as it was set; a class may return it in another form."""
    own = getattr(owner, "__dict__", {})
    return own[name] if name in own else getattr(owner, name)


def register_kernels(
    namespace: str, key: str, kernels: Mapping[str, Callable[..., Any]], **options: Any
) -> None:
    """Register kernels of existing ops for a dispatch key.

    Args:
        namespace: of the ops.
        key: of the dispatcher: "PrivateUse1" is the recording device.
        kernels: name of an op, with its overload -> its kernel.
        options: of ``torch.library.Library.impl``.
    """
    library = _new_library(namespace, "IMPL")
    _libraries.append(library)
    for name, kernel in kernels.items():
        library.impl(name, kernel, key, **options)
