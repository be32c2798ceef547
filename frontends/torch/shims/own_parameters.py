"""Parameters and tensors of a program's own class: they have its methods and type, and are fake.

The idea: a program may subclass ``torch.nn.Parameter`` or ``torch.Tensor`` to say how a weight is
shared or loaded, or what an image shows.  PyTorch makes no such object from a fake tensor: it gives
the fake tensor, or refuses.  Here its class becomes one of both, which equals the program's own.

    class Tied(torch.nn.Parameter): ...
    tied = Tied(fake); isinstance(tied, Tied), type(tied) == Tied      # both are true
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import FunctionType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.patching import around
from flint.frontends.torch.shims.own_attributes import ATTRIBUTES, note_fake
from flint.launching.followed_functions import TYPE

#: What belongs to a class itself, or has made the object already.
_OF_ITS_CLASS = {"__dict__", "__weakref__", "__slots__", "__new__"}
#: Modules with PyTorch's kernels of tensors without values.
_KERNELS = (
    "torch._decomp", "torch._meta_registrations", "torch._prims", "torch._refs",
    "torch._subclasses",
)  # fmt: skip


def apply() -> None:
    """Make such parameters."""
    around(torch.nn.Parameter, "__new__", _make)
    around(type(torch.nn.Parameter), "__new__", _define)
    around(torch.Tensor, "_make_subclass", _make_subclass)
    around(torch.Tensor, "as_subclass", _as_subclass)
    around(torch.Tensor, "__new__", _new)
    setattr(FakeTensor, TYPE, _type_of)


def _type_of(tensor: Any) -> type:
    """What a program takes for the type of a fake tensor where it compares types."""
    return torch.nn.Parameter if getattr(tensor, "_is_param", False) else torch.Tensor


def _define(make: Any, meta: Any, name: str, bases: Any, content: Any, **kwargs: Any) -> Any:
    """A class of parameters without slots, with which its layout would not be a fake tensor's."""
    slots = {"__slots__": ()} if "__slots__" in content else {}
    return make(meta, name, bases, content | slots, **kwargs)


def _make(make: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
    made = make(kind, *args, **kwargs)
    if type(made) is FakeTensor and kind is not torch.nn.Parameter:
        note_fake(made)
        made.__class__ = _of_both(kind)
    return made


def _make_subclass(make: Any, kind: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``__new__`` of many such classes calls: without the history of the tensor."""
    if not isinstance(data, FakeTensor) or issubclass(kind, FakeTensor):
        return make(kind, data, *args, **kwargs)
    grad = args[0] if args else kwargs.get("require_grad", False)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter.__new__(kind, data.detach(), grad)
    made = data.detach().as_subclass(kind)
    with torch._C.DisableTorchFunctionSubclass():  # which such a class may have no rule for
        return made.requires_grad_(grad)


def _new(make: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
    """A tensor of numbers, of a size or of another; of a class, it is made as a plain one first."""
    if kind is torch.Tensor or kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return make(kind, *args, **kwargs)
    return torch.Tensor(*args, **kwargs).as_subclass(kind)


def _as_subclass(make: Any, tensor: Any, kind: Any) -> Any:
    """The same memory, as an object of a class of its own."""
    if not isinstance(tensor, FakeTensor):
        return make(tensor, kind)
    made: Any = torch.ops.aten.alias.default(tensor)
    note_fake(made)
    made.__class__ = FakeTensor if kind is torch.Tensor else _of_both(kind)
    return made


def _own(name: str, own: Any) -> Any:
    """What a class defines; where it replaces a tensor's method, not for PyTorch's own kernels.

    Those see no class of a program's in a run.
    """
    plain = getattr(torch.Tensor, name, None)
    if plain is None or not isinstance(own, FunctionType):
        return own

    @functools.wraps(own)
    def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        module = str(sys._getframe(1).f_globals.get("__name__"))
        return (plain if module.startswith(_KERNELS) else own)(tensor, *args, **kwargs)

    return method


@functools.cache
def _of_both(kind: type) -> type:
    """A class of fake tensors that has what a program's class has, and equals it."""
    if issubclass(kind, FakeTensor):
        return kind

    def equals(cls: Any, other: object) -> bool:
        return other is kind or other is cls

    meta = type(kind.__name__, (type(kind),), {"__eq__": equals, "__hash__": lambda _: hash(kind)})
    own = [item for item in kind.__mro__ if item not in torch.nn.Parameter.__mro__]
    names = {name for item in own for name in vars(item)} - _OF_ITS_CLASS
    defined = {name: _own(name, inspect.getattr_static(kind, name)) for name in names}
    defined |= {"__module__": kind.__module__, TYPE: lambda _: kind, "__dict__": ATTRIBUTES}
    made: Any = meta(kind.__name__, (FakeTensor, kind), defined)
    # A class that sees ops, as fake tensors do, is made without it.
    made.__torch_function__ = inspect.getattr_static(kind, "__torch_function__")
    return made  # type: ignore[no-any-return]
