"""Which questions a program asks about its own rank, and what other ranks would be answered.

The idea: a rank that a program's own code reads is an integer that carries the values of all ranks.
Arithmetic maps over them, and a comparison notes for which ranks it holds: those that are not
recorded, and for which it comes out otherwise, do something else and must be recorded, too.

    if dist.get_rank() == 1: ...        # asked: the mask (False, True, False, False) of 4 ranks

Where a rank leaves as text (environment variables) or is looked up by its hash, what is asked of it
is not seen; that is noted with its line.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.ranks.replica_groups import full_groups
from flint.frontends.torch.user_lines import at_user_line

#: More different questions than this are not distinguished.
_MOST = 64

#: Variables of launchers that differ among ranks.
_VARIABLES = frozenset(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"))

#: Modules that pass questions on: mappings, and this package's wrapper of a mesh's methods.
_PASSING = frozenset(
    ("os", "_collections_abc", "flint.frontends.torch.shims.mesh", "flint.frontends.torch.patching")
)


class OwnRank(int):
    """An integer that follows from the own rank.

    Attributes:
        everywhere: its value on every rank, int64 [world].
    """

    everywhere: NDArray[np.int64]

    def __new__(cls, value: int, everywhere: NDArray[np.int64]) -> OwnRank:
        made = super().__new__(cls, value)
        made.everywhere = everywhere
        return made

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        if not _inside_torch(sys._getframe(1)):
            _note_unseen("is looked up")
        return int.__hash__(self)

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _compared(name: str) -> Callable[..., Any]:
    plain, over = getattr(int, name), getattr(operator, name)

    def compare(self: OwnRank, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int) and _counts(sys._getframe(1)):
            _ask(over(self.everywhere, getattr(other, "everywhere", other)))
        return answer

    return compare


def _computed(name: str, over: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(int, name)

    def compute(self: OwnRank, other: object) -> Any:
        answer = plain(self, other)
        if answer is NotImplemented:
            return answer
        with np.errstate(all="ignore"):
            return OwnRank(answer, over(self.everywhere, getattr(other, "everywhere", other)))

    return compute


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(OwnRank, _name, _compared(_name))
for _name, _over in (
    ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul),
    ("floordiv", operator.floordiv), ("mod", operator.mod),
    ("and", operator.and_), ("or", operator.or_), ("xor", operator.xor),
):  # fmt: skip
    setattr(OwnRank, f"__{_name}__", _computed(f"__{_name}__", _over))
    _turned = functools.partial(lambda over, first, second: over(second, first), _over)
    setattr(OwnRank, f"__r{_name}__", _computed(f"__r{_name}__", _turned))


def apply() -> None:
    """Hand out own ranks that record what is asked of them."""
    replace_everywhere(dist.get_rank, _answering(dist.get_rank))
    replace_everywhere(dist.get_node_local_rank, _in_node(dist.get_node_local_rank))
    group: Any = dist.ProcessGroup
    group.rank = _of_group(group.rank)
    kind: Any = DeviceMesh
    kind.get_coordinate = _coordinate(kind.get_coordinate)
    environment: Any = type(os.environ)
    environment.__getitem__ = _variable(environment.__getitem__)


def replace_everywhere(original: Any, other: Any) -> None:
    """Put ``other`` in the place of a function, wherever it was imported to."""
    name = original.__name__
    # Programs that say "from torch.distributed import get_rank" have it already.
    for module in (dist, distributed_c10d, *list(sys.modules.values())):
        if getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, other)


def _in_node(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_node_local_rank(*args: Any, **kwargs: Any) -> int:
        value = original(*args, **kwargs)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
        world = math.prod(capture().shape)
        if not 0 < local <= world or _inside_torch(sys._getframe(1)):
            return value
        return OwnRank(value, np.arange(world) % local)

    return get_node_local_rank


def _of_group(original: Callable[..., int]) -> Callable[..., int]:
    def rank(self: Any) -> int:
        value = original(self)
        if value < 0 or _inside_torch(sys._getframe(1)):
            return value
        return _position(self, value)

    return rank


def _answering(original: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(original)
    def get_rank(group: Any = None) -> int:
        value = original(group)
        if value < 0 or _inside_torch(_asker(sys._getframe(1))):
            return value
        if group is None or group is dist.group.WORLD:
            return OwnRank(value, np.arange(math.prod(capture().shape)))
        return _position(group, value)

    return get_rank


def _position(group: Any, value: int) -> int:
    """A position in a process group; of other ranks, in the translates of the group."""
    world = math.prod(capture().shape)
    try:
        table = full_groups(tuple(dist.get_process_group_ranks(group)), capture().shape)
    except FlintError:
        return value
    everywhere = np.full(world + 1, -1, np.int64)  # one more for the places beside lone ranks
    everywhere[table] = np.arange(table.shape[1])
    return OwnRank(value, everywhere[:world])


def _coordinate(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_coordinate(self: Any) -> Any:
        found = original(self)
        if found is None or _inside_torch(sys._getframe(1)):
            return found
        return type(found)(_position(self.get_group(dim), at) for dim, at in enumerate(found))

    return get_coordinate


def _variable(original: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(original)
    def get(self: Any, key: Any) -> str:
        if key in _VARIABLES and not _inside_torch(_asker(sys._getframe(1))):
            _note_unseen(f"is read from the environment ({key})")
        return original(self, key)

    return get


def _asker(frame: Any) -> Any:
    """Who asks, seen through the functions that only pass the answer on."""
    while frame.f_back is not None and (
        frame.f_code.co_name in ("get_rank", "get_local_rank")
        or frame.f_globals.get("__name__") in _PASSING
    ):
        frame = frame.f_back
    return frame


def _inside_torch(frame: Any) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "torch" or name.startswith("flint.frontends.torch.")


def _counts(frame: Any) -> bool:
    """Whether a comparison may decide what is done: not one of PyTorch's caches."""
    name = str(frame.f_globals.get("__name__", ""))
    return not _inside_torch(frame) or name.startswith("torch.distributed.")


def _ask(answers: Any) -> None:
    mask = np.broadcast_to(np.asarray(answers, bool), math.prod(capture().shape))
    if mask.all() or not mask.any():
        return
    questions = capture().questions
    if len(questions) >= _MOST:
        _note_unseen(f"is compared in more than {_MOST} ways")
        return
    # A question and its opposite are one.
    questions.add(np.packbits(mask ^ mask[0]).tobytes())


def _note_unseen(how: str) -> None:
    capture().unseen.add(f"the own rank {how}{at_user_line()}")
