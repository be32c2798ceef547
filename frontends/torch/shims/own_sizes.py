"""Sizes of tensors that follow from the rank: ``x[rank * rows : (rank + 1) * rows]``.

The idea: a slice's ends, the number of a part and the size of a new tensor go into PyTorch without
a comparison.  The sizes on other ranks are computed here, and ranks with different sizes are
distinguished.

    with seeing(): x[rank : rank + 1]        # of 13 rows on 16 ranks: ranks 13-15 have none
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import function_mode
from flint.frontends.torch.shims import own_methods, own_tensors  # noqa: F401  # which it adds
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_questions import note_values
from flint.frontends.torch.shims.own_tables import note_picked
from flint.frontends.torch.shims.own_values import OwnWhole, everywhere

_NARROWED = (torch.narrow, torch.Tensor.narrow)
_MADE = (
    torch.arange, torch.empty, torch.eye, torch.full, torch.nn.functional.pad, torch.ones,
    torch.rand, torch.randint, torch.randn, torch.randperm, torch.repeat_interleave, torch.tile,
    torch.zeros, torch.Tensor.expand, torch.Tensor.new_empty, torch.Tensor.new_full,
    torch.Tensor.new_ones, torch.Tensor.new_zeros, torch.Tensor.repeat,
    torch.Tensor.repeat_interleave, torch.Tensor.reshape, torch.Tensor.tile, torch.Tensor.view,
)  # fmt: skip
_PARTED = (
    torch.chunk, torch.split, torch.tensor_split, torch.Tensor.chunk, torch.Tensor.split,
    torch.Tensor.tensor_split,
)  # fmt: skip

_SIZE = "is the size of a tensor"


def seeing() -> AbstractContextManager[Any]:
    """A mode that sees sizes that follow from the rank, and tensors that pick a place."""
    # As they are called now: a shim has replaced one of them.
    indexed = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)

    def see(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if own_tensors.concerns(args, kwargs):
            return own_tensors.followed(
                func, args, kwargs, lambda: see_size(func, types, args, kwargs)
            )
        return see_size(func, types, args, kwargs)

    def see_size(func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in indexed:
            _indexed(args, kwargs)
            return _picked(func, args, kwargs)
        rule = _RULES.get(func)
        if rule is not None:
            rule(args, kwargs)
        result = func(*args, **kwargs)
        if func in _PARTED and len({item.shape for item in result}) > 1:
            return _Parts(result)
        return result

    return function_mode(see)


def _picked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an index picks; PyTorch reads a tensor without dims in it as it reads a count."""
    index = args[1]
    parts = index if isinstance(index, tuple) else (index,)
    found = tuple(item for item in parts if isinstance(item, torch.Tensor) and item.dim() == 0)
    if not found:
        return func(*args, **kwargs)
    known = capture()
    before, known.indices = known.indices, found
    try:
        return func(*args, **kwargs)
    finally:
        known.indices = before


class _Parts(tuple[torch.Tensor, ...]):
    """Parts of a tensor, not all of one size."""

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, OwnWhole):
            sizes = np.array([item.numel() for item in self])
            note_values(sizes[np.clip(everywhere(at), -len(sizes), len(sizes) - 1)], _SIZE)
        return super().__getitem__(at)


def _indexed(args: tuple[Any, ...], _: Any) -> None:
    """The lengths of slices; other indices give one element at any position, or a count."""
    tensor, index = args[:2]
    if isinstance(index, OwnWhole):
        note_picked(tensor, index)
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(item, slice) and _own(_ends(item)) for item in parts):
        return
    before = sum(1 for item in parts if item is not None and item is not Ellipsis)
    dim = 0
    for item in parts:
        if isinstance(item, slice) and _own(_ends(item)):
            note_values(_lengths(item, tensor.shape[dim]), _SIZE)
        dim += tensor.dim() - before if item is Ellipsis else item is not None


def _lengths(part: slice, size: int) -> Any:
    """The number of elements in a slice of a dim of ``size`` on every rank, [world]."""

    def clipped(end: Any, default: int) -> Any:
        place = np.broadcast_to(everywhere(default if end is None else end), world())
        return np.clip(np.where(place < 0, place + size, place), 0, size)

    step = everywhere(1 if part.step is None else part.step)
    return np.maximum(-(-(clipped(part.stop, size) - clipped(part.start, 0)) // step), 0)


def _narrowed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _made((kwargs.get("length", args[3] if len(args) > 3 else 0),), {})


def _made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Numbers among the arguments of functions that take sizes."""
    for item in (*args, kwargs.get("size")):
        for number in item if isinstance(item, list | tuple) else (item,):
            if isinstance(number, OwnWhole):
                note_values(everywhere(number), _SIZE)


def _full(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Its second number is a value."""
    _made(tuple(item for item in args if isinstance(item, list | tuple)), kwargs)


def _arange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``arange(end)`` and ``arange(start, end, step)``, each by position or by name."""
    names = ("end",) if len(args) == 1 and "end" not in kwargs else ("start", "end", "step")
    given = {"start": 0, "step": 1} | dict(zip(names, args, strict=False)) | kwargs
    start, end, step = (given[name] for name in ("start", "end", "step"))
    if _own((start, end, step)):
        note_values(-(-(everywhere(end) - everywhere(start)) // everywhere(step)), _SIZE)


def _steps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``linspace(start, end, steps)``."""
    _made((kwargs.get("steps", args[2] if len(args) > 2 else 0),), {})


def _ends(part: slice) -> tuple[Any, ...]:
    return part.start, part.stop, part.step


def _own(items: Iterable[Any]) -> bool:
    return any(isinstance(item, OwnWhole) for item in items)


_RULES = {
    **dict.fromkeys(_NARROWED, _narrowed),
    **dict.fromkeys(_MADE, _made),
    **dict.fromkeys((torch.full, torch.Tensor.new_full), _full),
    torch.arange: _arange,
    **dict.fromkeys((torch.linspace, torch.logspace), _steps),
}
