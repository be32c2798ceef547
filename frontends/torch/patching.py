"""Parts of PyTorch replaced by others, for good or until undone.

undo = around(torch.Tensor, "__setitem__", lambda original, self, *args: original(self, *args))
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch

#: Takes a replacement back.
Undo = Callable[[], None]

#: Kernels are registered for as long as their library lives.
_libraries: list[Any] = []
_new_library: Any = torch.library.Library


def replace(owner: Any, name: str, value: Any) -> Undo:
    """Set an attribute; what is returned sets it back."""
    before = _attribute(owner, name)
    setattr(owner, name, value)
    return functools.partial(setattr, owner, name, before)


def replace_of_type(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a type of C, which Python does not let be set; for good."""
    attributes: Any = gc.get_referents(kind.__dict__)[0]
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def around(owner: Any, name: str, function: Callable[..., Any]) -> Undo:
    """Replace a function: who calls it calls ``function(original, *args, **kwargs)``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    static = isinstance(_attribute(owner, name), staticmethod)
    return replace(owner, name, staticmethod(call) if static else call)


def _attribute(owner: Any, name: str) -> Any:
    """An attribute as it was set, which a class may hand out in another form."""
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
