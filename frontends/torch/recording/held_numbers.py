"""Tensors that hold numbers of the rank, and what they are on the other ranks.

of_members(numbers, (8, 9, 10, 11))       # the tensors of these ranks
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.evidence import Kinds


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor's values on all ranks, or what a function gives on them.

    Attributes:
        kinds: the place of every rank's in the values, [world].
        values: the different ones; None where it fails.  None at all if they are not known.
        version: the tensor's, which it must still have.
    """

    kinds: Kinds
    values: tuple[Any, ...]
    version: int = 0

    def part(self, at: int) -> Held:
        """Of a list of tensors, or of numbers, one."""
        return Held(self.kinds, tuple(item if item is None else item[at] for item in self.values))


def held_of(tensor: torch.Tensor) -> Held | None:
    """What is known of a tensor, or of the one that it is a view of, if that holds such numbers."""
    held: Held | None = capture().held.get(tensor)
    whole = tensor._base
    if whole is None or (held is not None and held.version == tensor._version):
        return held
    of_whole: Held | None = capture().held.get(whole)
    if of_whole is None or of_whole.version != whole._version:
        return held
    views = tuple(_view(item, whole, tensor) for item in of_whole.values)
    return replace(of_whole, values=views)


def copied(value: torch.Tensor, whole: torch.Tensor | None) -> torch.Tensor:
    """A copy of a value, a view of a copy of all that it is a part of.

    Args:
        whole: that; None if there is no more.
    """
    if whole is None or whole.untyped_storage()._cdata != value.untyped_storage()._cdata:
        return value.clone()
    copy = whole.clone()
    found = _view(copy, whole, value)
    return value.clone() if found is None else found


def _view(value: torch.Tensor | None, whole: torch.Tensor, of: torch.Tensor) -> torch.Tensor | None:
    """The part of a value that a view ``of`` a tensor is; None if it is laid out otherwise."""
    if value is None or value.stride() != whole.stride() or value.dtype != of.dtype:
        return None
    place = value.storage_offset() + of.storage_offset() - whole.storage_offset()
    try:
        return value.as_strided(of.shape, of.stride(), place)
    except RuntimeError:
        return None


def of_members(tensor: torch.Tensor, ranks: Iterable[int]) -> list[torch.Tensor] | None:
    """What a tensor that holds numbers of the rank is on some ranks; None if that is not known."""
    held = held_of(tensor)
    if held is None or not held.values or held.version != tensor._version:
        return None
    found = [held.values[held.kinds[rank]] for rank in ranks]
    return found if all(item is not None and item.shape == tensor.shape for item in found) else None
