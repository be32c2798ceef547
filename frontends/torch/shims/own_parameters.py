"""Parameters of a program's own class: they have its methods and its type, and are fake.

The idea: a program may subclass ``torch.nn.Parameter`` to say how a weight is shared or loaded.
PyTorch makes no parameter of such a class from a fake tensor: it gives the fake tensor.  Here its
class becomes one of both, which equals the program's own.

    class Tied(torch.nn.Parameter): ...
    tied = Tied(fake); isinstance(tied, Tied), type(tied) == Tied      # both are true
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.patching import around


def apply() -> None:
    """Make such parameters."""
    around(torch.nn.Parameter, "__new__", _make)
    around(torch.Tensor, "_make_subclass", _make_subclass)


def _make(make: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
    made = make(kind, *args, **kwargs)
    if type(made) is FakeTensor and kind is not torch.nn.Parameter:
        made.__class__ = _of_both(kind)
    return made


def _make_subclass(make: Any, kind: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``__new__`` of many such classes calls."""
    is_fake = isinstance(data, FakeTensor) and not issubclass(kind, FakeTensor)
    if not is_fake or not issubclass(kind, torch.nn.Parameter):
        return make(kind, data, *args, **kwargs)
    grad = args[0] if args else kwargs.get("require_grad", False)
    return torch.nn.Parameter.__new__(kind, data.detach(), grad)


@functools.cache
def _of_both(kind: type) -> type:
    """A class of fake tensors that has what a program's class has, and equals it."""
    if issubclass(kind, FakeTensor):
        return kind

    def equals(cls: Any, other: object) -> bool:
        return other is kind or other is cls

    meta = type(kind.__name__, (type(kind),), {"__eq__": equals, "__hash__": lambda _: hash(kind)})
    made: type = meta(kind.__name__, (FakeTensor, kind), {"__module__": kind.__module__})
    return made
