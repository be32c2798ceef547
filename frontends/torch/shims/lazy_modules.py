"""Parameters without sizes: ``LazyLinear``, ``LazyConv2d``, ``LazyBatchNorm2d``.

Until its module is called such a parameter has no elements, and a class that says so.  A fake
tensor cannot be of that class.  So it stays on the host, with a note of the device that the program
has it on, and becomes that device's parameter when it gets its sizes.

    layer = torch.nn.LazyLinear(8).cuda(); layer(batch); layer.weight.device      # cuda:0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from flint.frontends.torch.patching import around
from flint.frontends.torch.shims.parameters import swap

_PLACE = "_flint_place"


def apply() -> None:
    """Keep parameters without sizes on the host."""
    around(torch.nn.Module, "_apply", _move)
    for kind in (UninitializedParameter, UninitializedBuffer):
        around(kind, "__new__", _new)
        around(kind, "materialize", _materialize)


def _new(original: Callable[..., Any], kind: Any, *args: Any, **kwargs: Any) -> Any:
    device = args[1] if len(args) > 1 else kwargs.pop("device", None)
    args = (*args[:1], "cpu", *args[2:]) if len(args) > 1 else args
    kwargs = kwargs if len(args) > 1 else {**kwargs, "device": "cpu"}
    made = original(kind, *args, **kwargs)
    setattr(made, _PLACE, torch.device(device or torch.get_default_device()))
    return made


def _move(original: Callable[..., Any], module: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """A module with its parameters moved or converted; those without sizes are noted to be."""
    tables = module._parameters, module._buffers
    lazy = [{name: item for name, item in table.items() if is_lazy(item)} for table in tables]
    names = [list(table) for table in tables] if any(lazy) else []
    for table, own in zip(tables, lazy, strict=True):
        for name in own:
            del table[name]
    result = original(module, fn, *args, **kwargs)
    for table, own, order in zip(tables, lazy, names, strict=False):
        for name, item in own.items():
            with torch.no_grad():
                moved = fn(torch.empty(0, dtype=item.dtype, device=getattr(item, _PLACE)))
            kind: Any = type(item)
            table[name] = kind(item.requires_grad, moved.device, moved.dtype)
        for name in order:  # as they were ordered
            table[name] = table.pop(name)
    return result


def _materialize(
    original: Callable[..., Any], tensor: Any, shape: Any, device: Any = None, dtype: Any = None
) -> None:
    """Give it sizes, and the place that it has been moved to."""
    where = torch.device(device or getattr(tensor, _PLACE, "cpu"))
    if where.type == "cpu" and isinstance(tensor, UninitializedBuffer):
        original(tensor, shape, where, dtype or tensor.dtype)
        return
    made = torch.empty(shape, device=where, dtype=dtype or tensor.dtype)
    if isinstance(tensor, UninitializedParameter):
        made = torch.nn.Parameter(made, tensor.requires_grad)
    swap(tensor, made)
