"""Collectives and messages among dispatched ops.

The idea: two families of ops communicate: ``c10d`` (what ``torch.distributed`` calls; a process
group object, in place, a work to wait for) and ``_c10d_functional`` (what DTensor calls; a group's
name, a fresh result, ``wait_tensor``).  ``_dtensor`` has one more, which is complete when it
returns.  Their meaning is read from their arguments, in one place.

    message(torch.ops.c10d.allreduce_.default, args, {}, groups)   # Message(group=0, "sum", ...)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from flint.frontends.torch.recording.collectives import NAMESPACES
from flint.frontends.torch.recording.recording import Argument, Group

_c10d: Any = dist.distributed_c10d

#: c10d's numbers of reductions (ReduceOp.RedOpType of torch 2.13).
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")


class Groups:
    """Process groups in the order of their first use."""

    def __init__(self) -> None:
        self.used: list[Group] = []
        self._numbers: dict[str, int] = {}

    def number(self, group: Any) -> int:
        """The number of a process group."""
        name = str(group.group_name)
        if name not in self._numbers:
            ranks = tuple(int(rank) for rank in dist.get_process_group_ranks(group))
            self._numbers[name] = len(self.used)
            self.used.append(Group(name, str(group.group_desc), ranks))
        return self._numbers[name]


@dataclass(frozen=True, slots=True)
class Message:
    """The content of a communication op.

    Attributes:
        group: number of its process group.
        queue: the group's own stream that it runs on; None for the current stream.
        reduction, peer, tag: as in ``recording.Op``.
    """

    group: int
    queue: Hashable | None
    reduction: str = ""
    peer: int = -1
    tag: int = 0


def message(
    op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], groups: Groups
) -> Message | None:
    """The communication of an op; None if it does not communicate."""
    if op.namespace not in NAMESPACES:
        return None
    given = dict(zip(_names(op), args, strict=False), **kwargs)
    if op.namespace == "c10d":
        group = next((item for item in map(_group, args) if item is not None), None)
        asynchronous = bool(given.get("async_op", True))
    else:
        group = _c10d._resolve_process_group(given["group_name"])
        asynchronous = op.namespace != "_dtensor"
    if group is None:
        return None
    number = groups.number(group)
    ranks = groups.used[number].ranks
    peer, direction = -1, ""
    for word in ("dst", "src"):
        if op.namespace == "c10d" and isinstance(given.get(word), int):
            peer, direction = ranks[given[word]], word
    reduction = given.get("reduce_op", "")
    if not isinstance(reduction, str):
        reduction = reduction_of(reduction)
    queue: Hashable | None = ("group", number) if asynchronous else None
    if peer >= 0:
        # Messages of one batch are not ordered, but those of one channel are.
        queue = ("channel", number, direction, peer)
    return Message(number, queue, reduction.lower(), peer, int(given.get("tag", 0) or 0))


def works_in(result: Any) -> Iterator[Any]:
    """The works among an op's results, as Python knows them."""
    if isinstance(result, list | tuple):
        for item in result:
            yield from works_in(item)
    elif isinstance(result, torch.ScriptObject):
        try:
            yield dist.Work.unbox(result)
        except RuntimeError:
            return


def plain(item: Any) -> Argument:
    """An object argument as a word."""
    group = _group(item)
    if group is not None:
        return str(group.group_name)
    if isinstance(item, torch.ScriptObject):
        return reduction_of(item) if "ReduceOp" in str(item._type()) else None
    return str(item)


@cache
def _names(op: Any) -> tuple[str, ...]:
    return tuple(item.name for item in op._schema.arguments if not item.kwarg_only)


def _group(item: Any) -> Any:
    if isinstance(item, dist.ProcessGroup):
        return item
    if isinstance(item, torch.ScriptObject) and "ProcessGroup" in str(item._type()):
        unboxed: Any = dist.ProcessGroup.unbox(item)
        return unboxed
    return None


def reduction_of(item: Any) -> str:
    """The word for one of c10d's reductions."""
    code = item.op() if hasattr(item, "op") else item
    try:
        return _REDUCTIONS[int(code)]
    except (TypeError, ValueError, IndexError):
        return str(code).rsplit(".", 1)[-1].lower()
