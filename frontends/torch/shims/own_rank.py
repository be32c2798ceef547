"""Ranks that a program's own code reads, as values that record comparisons with them.

The idea: ``get_rank()``, places in groups, hosts and meshes, members of groups, and the variables
that launchers set follow from the rank.  PyTorch's own code gets plain numbers; a program's code
gets values that know their value on every rank (``own_values.py``).

    if dist.get_rank() == 1: ...        # asked: rank 1 of 4 is answered yes
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from flint.frontends.torch.context import capture
from flint.frontends.torch.everywhere import replace_everywhere
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_questions import note_values
from flint.frontends.torch.shims.own_values import OwnRank, OwnText, OwnWhole, everywhere
from flint.frontends.torch.shims.places import membership
from flint.frontends.torch.user_lines import inside_torch
from flint.launching.commands.variables import is_of_process, of_ranks

#: Modules that only pass values on: mappings, and this package's wrapper of a mesh's methods.
_PASSING = frozenset(
    ("os", "_collections_abc", "flint.frontends.torch.shims.mesh", "flint.frontends.torch.patching")
)


def apply() -> None:
    """Return ranks that record comparisons with them."""
    replace_everywhere(dist.get_rank, _answering(dist.get_rank))
    replace_everywhere(dist.get_node_local_rank, _in_node(dist.get_node_local_rank))
    group: Any = dist.ProcessGroup
    group.rank = _of_group(group.rank)
    replace_everywhere(dist.get_process_group_ranks, _members(dist.get_process_group_ranks))
    replace_everywhere(dist.get_global_rank, _member(dist.get_global_rank))
    replace_everywhere(dist.get_group_rank, _place(dist.get_group_rank))
    kind: Any = DeviceMesh
    kind.get_coordinate = _coordinate(kind.get_coordinate)
    environment: Any = type(os.environ)
    environment.__getitem__ = _variable(environment.__getitem__)


def device_number() -> int:
    """The number of this process's device on its host."""
    known = capture()
    each = min(known.per_host, world())
    return OwnRank(known.rank() % each, lambda: np.arange(world()) % each)


def _in_node(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_node_local_rank(*args: Any, **kwargs: Any) -> int:
        value = original(*args, **kwargs)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
        if not 0 < local <= world() or inside_torch(sys._getframe(1)):
            return value
        return OwnRank(value, np.arange(world()) % local)

    return get_node_local_rank


def _of_group(original: Callable[..., int]) -> Callable[..., int]:
    def rank(self: Any) -> int:
        value = original(self)
        return value if inside_torch(sys._getframe(1)) else _position(self, value)

    return rank


def _answering(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_rank(group: Any = None) -> int:
        value = original(group)
        if value < 0 or inside_torch(_asker(sys._getframe(1))):
            return value
        if group is None or group is dist.group.WORLD:
            return OwnRank(value, np.arange(world()))
        return _position(group, value)

    return get_rank


def _position(group: Any, value: int) -> int:
    """A place in a process group, on every rank; -1 on ranks that are in no group of its kind."""
    found = membership(group)
    return value if found is None else OwnRank(value, found.place)


def _members(original: Callable[..., list[int]]) -> Callable[..., Sequence[int]]:
    @functools.wraps(original)
    def get_process_group_ranks(group: Any = None) -> Sequence[int]:
        ranks = original(group)
        if inside_torch(sys._getframe(1)):
            return ranks
        return [_of_members(group, at, rank) for at, rank in enumerate(ranks)]

    return get_process_group_ranks


def _member(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_global_rank(group: Any, group_rank: int) -> int:
        rank = original(group, group_rank)
        if inside_torch(sys._getframe(1)):
            return rank
        return _of_members(group, group_rank, rank)

    return get_global_rank


def _place(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_group_rank(group: Any, global_rank: int) -> int:
        if not isinstance(global_rank, OwnWhole):
            return original(group, global_rank)
        place = original(group, int(global_rank.plain.__pos__(global_rank)))
        found = membership(group)
        if found is None or inside_torch(sys._getframe(1)):
            return place
        return OwnRank(place, lambda: found.place_of(everywhere(global_rank)))

    return get_group_rank


def _of_members(group: Any, at: int, rank: int) -> int:
    """The member at a place of the own group, on every rank."""
    if group is None or group is dist.group.WORLD:
        return rank

    found = membership(group)
    return rank if found is None else OwnRank(rank, functools.partial(found.member, at))


def _coordinate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_coordinate(self: Any) -> Any:
        found = original(self)
        if found is None or inside_torch(sys._getframe(1)):
            return found
        return type(found)(_position(self.get_group(dim), at) for dim, at in enumerate(found))

    return get_coordinate


def _variable(original: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(original)
    def get(self: Any, key: Any) -> str:
        text = original(self, key)
        if isinstance(key, bytes):  # of os.environb, whose text is not followed
            values = of_ranks(os.fsdecode(key), np.arange(world()), world(), capture().per_host)
            if values is not None and not inside_torch(_asker(sys._getframe(1))):
                note_values(values, "is read as bytes")
            return text
        asks = type(text) is not str  # implicitly, when it is used
        if not is_of_process(str(key)) or asks or inside_torch(_asker(sys._getframe(1))):
            return text
        values = of_ranks(key, np.arange(world()), world(), capture().per_host)
        # The program may have set it, and a job of one task for each host counts hosts.
        known = values is not None and str(values[capture().rank()]) == text
        return OwnText(text, key, values) if known else text

    return get


def _asker(frame: Any) -> Any:
    """The calling code, behind the functions that only pass the value on."""
    while frame.f_back is not None and (
        frame.f_code.co_name in ("get_rank", "get_local_rank")
        or frame.f_globals.get("__name__") in _PASSING
    ):
        frame = frame.f_back
    return frame
