"""Moving modules of fake parameters: ``to_empty``, ``.to(device)``, ``.cuda()``, ``fully_shard``.

A module swaps the contents of such parameters, and refuses to if there are weak references to
them.  Fake tensors always have one, from the cache of conversions, which holds nothing that the
swap could invalidate.

``parameter.data = parameter.to(device)`` moves a parameter as well, from the CPU to a GPU;
``fully_shard`` does so with a module that was made on the CPU.  PyTorch treats fake tensors of two
devices as tensors of different kinds and refuses: they are swapped then, too.

A swap exchanges attributes and classes as well, but a program that moves a module keeps those that
it gave to its parameters (Megatron-Core says there which ranks share one), since a GPU's are not
swapped.

``copy.deepcopy`` (an averaged model, the layers of a transformer) gives a fake tensor a new storage
by ``set_``, which the tensor behind it does not see: its views would have storages of their own.
Of a tensor that is a part of a storage (a gradient in a bucket), it copies all that belongs to fake
mode.

``type(parameter)(tensor, requires_grad=...)``, as packages write that load weights one by one,
makes a parameter; the type of a fake parameter is FakeTensor, which cannot be made like this.

Megatron calls an attribute of its weights ``stride``: it hides the tensor's function from the
program only, not from PyTorch's Python, which asks fake tensors for their strides.

``share_memory_`` does nothing for a GPU's tensors; other processes see those as they are.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.user_lines import inside_torch

_PLAIN_DATA: Any = torch._C.TensorBase.data
_PLAIN_STRIDE: Any = torch._C.TensorBase.stride


def apply() -> None:
    """Make moves of modules with fake parameters work."""
    around(torch.utils, "swap_tensors", _swap)
    around(torch.nn.Module, "_apply", _move)
    replace(FakeTensor, "data", property(_PLAIN_DATA.__get__, _assign_data))
    around(FakeTensor, "__deepcopy__", _with_one_storage)
    around(FakeTensor, "__new__", _new)
    replace(FakeTensor, "share_memory_", lambda tensor: tensor)
    replace(FakeTensor, "stride", property(_stride, lambda self, own: _set(self, "stride", own)))


def _stride(tensor: Any) -> Any:
    own = tensor.__dict__.get("stride")
    if own is None or inside_torch(sys._getframe(1)):
        return _PLAIN_STRIDE.__get__(tensor)
    return own


def _set(tensor: Any, name: str, value: Any) -> None:
    tensor.__dict__[name] = value


def _new(original: Callable[..., Any], kind: Any, first: Any = None, *args: Any, **of: Any) -> Any:
    """A fake tensor, or a parameter from a tensor and what the old one's ``__dict__`` holds."""
    plain = isinstance(first, torch.Tensor) and "fake_mode" not in of
    if plain or isinstance(first, FakeTensor):
        return torch.nn.Parameter(first, *(args or (of.get("requires_grad", True),)))
    return original(kind, first, *args, **of)


def _swap(original: Any, first: torch.Tensor, second: torch.Tensor) -> None:
    if isinstance(second, FakeTensor):
        swap(first, second)
    else:
        original(first, second)


def swap(first: torch.Tensor, second: torch.Tensor) -> None:
    """Swap two tensors, regardless of other references to them."""
    impl: Any = torch._C._swap_tensor_impl  # private; as in torch 2.13
    notes = _notes(first), _notes(second)
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    impl(first, second)
    _note(second, notes[0])
    _note(first, notes[1])


def _move(original: Callable[..., Any], module: Any, move: Any, *args: Any, **of: Any) -> Any:
    """A module with its parameters moved or converted, which keep their class and attributes."""
    fake = [pair for pair in module._parameters.items() if isinstance(pair[1], FakeTensor)]
    before = [(type(item), dict(item.__dict__)) for _, item in fake]
    own = [pair for pair in fake if type(pair[1]) is not FakeTensor]
    with torch.no_grad():  # PyTorch makes no parameter of one of its own class
        moved = {id(item): move(item) for _, item in own}
    there = {name: item for name, item in own if moved[id(item)] is item}
    for name in there:  # nothing to move; TorchScript's modules have no ``update``
        module._parameters[name] = None
    try:
        result = original(
            module, lambda item: moved[id(item)].detach() if id(item) in moved else move(item),
            *args, **of,
        )  # fmt: skip
    finally:
        for name, item in there.items():
            module._parameters[name] = item
    scripted = getattr(module, "_c", None)  # TorchScript's module, which holds what was swapped out
    for (name, parameter), (kind, attributes) in zip(fake, before, strict=True):
        _keep(parameter, kind, attributes)
        if scripted is not None and module._parameters[name] is not parameter:
            scripted.setattr(name, parameter)
    return result


def _keep(tensor: torch.Tensor, kind: type, attributes: dict[str, Any]) -> None:
    """Give a tensor what it had; the attributes of a fake tensor are the new one's own."""
    if isinstance(tensor, FakeTensor):
        tensor.__class__ = kind
    for name, value in attributes.items():
        tensor.__dict__.setdefault(name, value)


#: In a deep copy's memory: storages of which parts are copied -> a copy of each.
_COPIES: Any = "flint: storages"


def _with_one_storage(original: Callable[..., Any], tensor: Any, memo: dict[int, Any]) -> Any:
    """A deep copy whose storage views share; of a part of a storage, with a copy of all of it."""
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not tensor.is_leaf:
        return original(tensor, memo)  # an error
    plain, storage = tensor.detach(), tensor.untyped_storage()
    whole = storage.nbytes() == tensor.numel() * tensor.element_size()
    with torch.no_grad():
        if whole and not tensor.storage_offset():
            copied = plain.clone()
        else:
            copies = memo.setdefault(_COPIES, {})
            flat = copies.get(storage._cdata)
            if flat is None:
                count = storage.nbytes() // tensor.element_size()
                flat = copies[storage._cdata] = plain.as_strided((count,), (1,), 0).clone()
            place = tensor.size(), tensor.stride(), tensor.storage_offset()
            copied = flat.view(tensor.dtype).as_strided(*place)
        made: Any = copied.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    for name, value in tensor.__dict__.items():
        if name not in made.__dict__:
            made.__dict__[name] = copy.deepcopy(value, memo)
    made.__class__ = type(tensor)
    return made


def _assign_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """``tensor.data = other``, which may move a tensor to another device."""
    if tensor.device == value.device or not isinstance(value, FakeTensor):
        notes = _notes(value)
        _PLAIN_DATA.__set__(tensor, value)
        _note(tensor, notes)
        return
    with torch.no_grad():
        moved = value.detach()
        if isinstance(tensor, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved, requires_grad=tensor.requires_grad)
        utils: Any = torch.utils
        kind, before = type(tensor), dict(tensor.__dict__)
        utils.swap_tensors(tensor, moved)
        _keep(tensor, kind, before)


def _notes(tensor: torch.Tensor) -> list[Any]:
    """What is known about a tensor's value."""
    return [noted.get(tensor) for noted in _noted()]


def _note(tensor: torch.Tensor, notes: list[Any]) -> None:
    """Have a tensor that has another storage now known by that one's value."""
    for noted, what in zip(_noted(), notes, strict=True):
        noted.pop(tensor, None)
        if what is not None:
            noted[tensor] = what


def _noted() -> tuple[Any, ...]:
    own = capture()
    return own.known_values, own.deferred, own.judged
