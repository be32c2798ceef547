"""Replacement of PyTorch's functions wherever modules have imported them.

The idea: a program with ``from torch.distributed import get_rank`` keeps the function that it found
there, so the other function is put into every module that has it.  To look into thousands of
modules takes as long as a small step, and in a child it copies the memory in which they lie.
Installed packages do not change once they are imported: the parent of the children searches them
once, and a child looks into the other modules alone.

    search()                                    # in the parent of the children
    replace_everywhere(dist.get_rank, other)    # in a child
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.capturing.user_frames import is_programs

#: Names that are searched for; any other is looked for in all modules.
_NAMES = frozenset(distributed_c10d.__all__)


@dataclass(slots=True)
class _Searched:
    """What has been searched.

    Attributes:
        last: name and module of the newest installed one; before any search, none.
        having: name of a function -> the installed modules that have it.
        changing: the modules that may get other functions, by their number.
    """

    last: tuple[str, Any] = ("", None)
    having: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    changing: dict[int, Any] = field(default_factory=dict)


_searched = _Searched()


def search() -> None:
    """Search the modules that have been imported since the last search."""
    for item in reversed(_newer()):
        _, module = item
        space = getattr(module, "__dict__", {})
        if _may_change(space):
            _searched.changing[id(module)] = module
            continue
        for name in space.keys() & _NAMES:
            _searched.having[name].append(module)
        _searched.last = item


def replace_everywhere(original: Any, other: Any) -> None:
    """Replace a function by ``other``, wherever it was imported."""
    name = original.__name__
    # Programs with "from torch.distributed import get_rank" have it already.
    for module in (dist, distributed_c10d, *_places(name)):
        if getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, other)


def _places(name: str) -> list[Any]:
    """The modules that may have a function of that name."""
    if name not in _NAMES:
        return list(sys.modules.values())
    newer = (module for _, module in _newer())
    return [*_searched.having.get(name, ()), *_searched.changing.values(), *newer]


def _newer() -> list[tuple[str, Any]]:
    """Names and modules that have been imported since the last search, the newest first."""
    name, module = _searched.last
    if sys.modules.get(name) is not module:  # it was removed, and may be elsewhere
        return list(reversed(sys.modules.items()))
    newest = reversed(sys.modules.items())
    try:
        return list(itertools.takewhile(lambda item: item[0] != name, newest))
    except RuntimeError:  # another thread imports something
        return list(reversed(sys.modules.copy().items()))


def _may_change(space: dict[str, Any]) -> bool:
    """Whether a module may get other names: one that is being imported, or the program's."""
    spec, file = space.get("__spec__"), space.get("__file__")
    if spec is None or getattr(spec, "_initializing", False) or not isinstance(file, str):
        return True
    return is_programs(file)
