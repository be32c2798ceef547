"""Tensors that hold numbers of the rank, and what they are on the other ranks.

of_members(numbers, (8, 9, 10, 11))       # the tensors of these ranks
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


def of_members(tensor: torch.Tensor, ranks: Iterable[int]) -> list[torch.Tensor] | None:
    """What a tensor that holds numbers of the rank is on some ranks; None if that is not known."""
    held: Held | None = capture().held.get(tensor)
    if held is None or not held.values or held.version != tensor._version:
        return None
    found = [held.values[held.kinds[rank]] for rank in ranks]
    return found if all(item is not None and item.shape == tensor.shape for item in found) else None
