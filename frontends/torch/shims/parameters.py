"""Moving modules of fake parameters: ``to_empty``, ``.to(device)``, ``.cuda()``, ``fully_shard``.

A module swaps the contents of such parameters, and refuses to when something refers to them weakly.
Fake tensors are always referred to so, by the memory of what was converted, which keeps nothing
that the swap could invalidate.

``parameter.data = parameter.to(device)`` moves a parameter as well, from the CPU to a GPU;
``fully_shard`` does so with a module that was made on the CPU.  PyTorch takes fake tensors of two
devices for tensors of different kinds and refuses: they are swapped then, too.

``copy.deepcopy`` (an averaged model, the layers of a transformer) gives a fake tensor a new storage
by ``set_``, of which what it stands for learns nothing: its views would have storages of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def apply() -> None:
    """Let modules of fake parameters be moved."""
    utils: Any = torch.utils
    original = utils.swap_tensors
    weakrefs = utils.weakref
    blind = SimpleNamespace(getweakrefs=lambda _: [])

    def swap_tensors(first: torch.Tensor, second: torch.Tensor) -> None:
        fake = isinstance(first, FakeTensor) and isinstance(second, FakeTensor)
        utils.weakref = blind if fake else weakrefs
        try:
            original(first, second)
        finally:
            utils.weakref = weakrefs

    utils.swap_tensors = swap_tensors
    _assign_data(swap_tensors)
    kind: Any = FakeTensor
    kind.__deepcopy__ = _with_one_storage(kind.__deepcopy__)


def _with_one_storage(original: Callable[..., Any]) -> Callable[..., Any]:
    """A deep copy that views share the storage of; of tensors that have theirs to themselves."""

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        whole = self.untyped_storage().nbytes() == self.numel() * self.element_size()
        if not self.is_leaf or not whole or self.storage_offset():
            return original(self, memo)
        with torch.no_grad():
            made: Any = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = made
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        for name, value in self.__dict__.items():
            if name not in made.__dict__:
                made.__dict__[name] = copy.deepcopy(value, memo)
        return made

    return deepcopy


def _assign_data(swap: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
    """Let ``tensor.data = other`` move a tensor to another device."""
    plain: Any = torch._C.TensorBase.data

    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if tensor.device == value.device or not isinstance(value, FakeTensor):
            plain.__set__(tensor, value)
            return
        with torch.no_grad():
            moved = value.detach()
            if isinstance(tensor, torch.nn.Parameter):
                moved = torch.nn.Parameter(moved, requires_grad=tensor.requires_grad)
            swap(tensor, moved)

    kind: Any = FakeTensor
    kind.data = property(plain.__get__, assign)
