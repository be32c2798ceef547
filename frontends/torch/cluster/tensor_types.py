"""Types of tensors by name, as programs had them before PyTorch had dtypes and devices.

The idea: ``torch.cuda.FloatTensor`` is a type that no object has.  Programs make tensors with it,
ask whether a tensor is one, and move tensors to it; PyTorch without CUDA has the names, but says no
to each question.  Here a type is a dtype on the recording device.

    isinstance(torch.ones(2, device="cuda"), torch.cuda.FloatTensor)      # True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.patching import Undo, around

_CUDA = "torch.cuda."
#: The type of tensors that name none, once it has been set.
_default: list[Any] = []
_taken_back: list[Undo] = []


class _Kind(type):
    """The type of these types."""

    dtype: torch.dtype

    def __instancecheck__(cls, item: object) -> bool:
        if not isinstance(item, torch.Tensor) or item.layout != torch.strided:
            return False
        return (item.dtype, item.device.type) == (cls.dtype, NAME)

    def __call__(cls, *args: Any, **_: Any) -> Any:
        """A tensor of numbers, or one of that size without values."""
        if args and isinstance(args[0], torch.Tensor):
            return args[0].to(NAME, cls.dtype)
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        if all(isinstance(item, int) for item in sizes):
            return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device=NAME)
        return torch.as_tensor(args[0]).to(cls.dtype).to(NAME)


def types() -> Iterator[tuple[str, Any]]:
    """Each of them: its name in ``torch.cuda``, the type."""
    for name in dir(torch.cuda):
        plain: Any = getattr(torch, name) if name.endswith("Tensor") else None
        if plain is not None:
            known = {"dtype": plain.dtype, "layout": plain.layout, "is_cuda": True}
            yield name, _Kind(name, (), {"__module__": "torch.cuda", "is_sparse": False, **known})


def kind_of(given: Any) -> Any:
    """The type that is meant by itself or by its name; None for anything else."""
    if isinstance(given, str) and given.startswith(_CUDA):
        given = getattr(torch.cuda, given.removeprefix(_CUDA), None)
    return given if isinstance(given, _Kind) else None


def set_default(original: Any, given: Any) -> None:
    """As ``torch.set_default_tensor_type``."""
    kind = kind_of(given)
    if kind is not None:
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device(NAME)
        if not _default:
            _taken_back.append(around(torch.Tensor, "__new__", _of_default))
        _default[:] = [kind]
        return
    if _default:
        _default.clear()
        _taken_back.pop()()
        torch.set_default_device(None)
    original(given)


def _of_default(make: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.Tensor(...)`` makes a tensor of the default type; classes of it do as they say."""
    if kind is not torch.Tensor or kwargs:
        return make(kind, *args, **kwargs)
    return _default[0](*args)
