"""The attributes of a fake tensor that is of a program's own class (``own_parameters.py``).

The idea: such a class may copy what its objects hold from one to the next, as MONAI's tensors do
with what is known of an image.  A fake tensor keeps what makes it one in the same place, which is
of this tensor only.  So a program's lines see its own attributes, and replace no others.

    result.__dict__ = image.__dict__.copy()        # result is as fake as before
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch

from flint.frontends.torch.user_lines import inside_torch

_ALL: Any = vars(torch.Tensor)["__dict__"]
#: What fake tensors hold.
_OF_FAKE: set[str] = set()


class _Attributes(MutableMapping[str, Any]):
    """A program's own attributes of a tensor."""

    def __init__(self, every: dict[str, Any]) -> None:
        """Among all that it holds."""
        self._every = every

    def __getitem__(self, name: str) -> Any:
        if name in _OF_FAKE:
            raise KeyError(name)
        return self._every[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in _OF_FAKE:
            self._every[name] = value

    def __delitem__(self, name: str) -> None:
        if name in _OF_FAKE:
            raise KeyError(name)
        del self._every[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._every if name not in _OF_FAKE])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> dict[str, Any]:
        """As ``dict.copy``."""
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)


def note_fake(tensor: torch.Tensor) -> None:
    """What a fake tensor holds, of no class of a program's, belongs to fake mode."""
    _OF_FAKE.update(_ALL.__get__(tensor))


def _get(tensor: Any) -> Any:
    every: dict[str, Any] = _ALL.__get__(tensor)
    return every if inside_torch(sys._getframe(1)) else _Attributes(every)


def _set(tensor: Any, given: Any) -> None:
    if not inside_torch(sys._getframe(1)):
        kept = {name: value for name, value in _ALL.__get__(tensor).items() if name in _OF_FAKE}
        given = {name: value for name, value in given.items() if name not in _OF_FAKE} | kept
    _ALL.__set__(tensor, given)


#: ``__dict__`` of classes of such tensors.
ATTRIBUTES = property(_get, _set)
