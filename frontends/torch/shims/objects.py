"""Python objects of other ranks.

``all_gather_object`` and similar functions pickle objects into tensors and read sizes from them.
Here an object that one rank sends to others is obtained from that rank, like whole numbers
(``stage_shapes.py``); an object that each rank sends to all is assumed to equal this rank's, except
for numbers that follow from the rank.  Each is an object of its own, as what is unpickled is.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import pickle  # noqa: TID251  # the program's own objects, within its processes
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.utils._pytree import tree_flatten, tree_unflatten

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import replace
from flint.frontends.torch.shims.own_calls import at_rank, follows
from flint.frontends.torch.user_lines import at_user_line

#: The most bytes of pickled objects that are passed to other ranks.
_MOST = 1 << 20
#: The most items of objects that are copied for other ranks; beyond, all ranks' are one object.
_COPIED = 1 << 20


def apply() -> None:
    """Give other ranks the objects of this one, or obtain theirs."""
    functions: tuple[Callable[..., Any], ...] = (
        all_gather_object, gather_object, broadcast_object_list, scatter_object_list,
        send_object_list, recv_object_list,
    )  # fmt: skip
    for function in functions:
        for module in (dist, distributed_c10d):
            replace(module, function.__name__, function)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """As ``torch.distributed.all_gather_object``."""
    _assume(": other ranks are assumed to hold the same objects")
    object_list[:] = _of_each(obj, _ranks(group)[: len(object_list)])


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: Any = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """As ``torch.distributed.gather_object``."""
    if object_gather_list is not None:
        all_gather_object(object_gather_list, obj, group)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """As ``torch.distributed.broadcast_object_list``."""
    ranks = _ranks(group)
    sent = _sent(ranks, _root(ranks, src, group_src), object_list)
    if sent is not None:
        object_list[:] = sent


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """As ``torch.distributed.scatter_object_list``."""
    ranks = _ranks(group)
    sent = _sent(ranks, _root(ranks, src, group_src), scatter_object_input_list)
    own = ranks.index(dist.get_rank())
    scatter_object_output_list[0] = _copied(sent[own]) if sent is not None else None


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
    group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """As ``torch.distributed.send_object_list``."""
    own = dist.get_rank()
    _sent((own, _root(_ranks(group), dst, group_dst)), own, object_list)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """As ``torch.distributed.recv_object_list``.

    Raises:
        FlintError: the sender does not know what it sends, or is not named.
    """
    if src is None and group_src is None:
        raise FlintError(
            f"objects are received{at_user_line()} from any rank: name the sender (src=)"
        )
    sender = _root(_ranks(group), src, group_src)
    sent = _sent((sender, dist.get_rank()), sender, None)
    if sent is None:
        raise FlintError(f"what rank {sender} sends is not known{at_user_line()}")
    object_list[:] = sent
    return sender


def _ranks(group: Any) -> list[int]:
    return list(dist.get_process_group_ranks(group or dist.group.WORLD))


def _root(ranks: Sequence[int], root: int | None, place: int | None) -> int:
    return int(ranks[place] if place is not None else root or 0)


def _sent(ranks: Sequence[int], root: int, held: list[Any] | None) -> list[Any] | None:
    """The root's objects: copies of them, or this rank's objects if they are unknown.

    Args:
        ranks: of the group.
        root: the rank that sends.
        held: the objects that this rank passes for sending or receiving.
    """
    peers = capture().peers
    is_root = root == dist.get_rank()
    text = None if peers is None else peers.broadcast(ranks, root, _text(held) if is_root else None)
    if is_root or text is None:
        _assume("" if is_root else ": other ranks are assumed to hold the same objects")
        return held
    _assume("")
    found: list[Any] = pickle.loads(base64.b64decode(text))
    return found


def _text(held: list[Any] | None) -> str | None:
    """Objects as text; None if they cannot be pickled, or are large."""
    with contextlib.suppress(Exception):  # whatever the objects' own code raises
        data = pickle.dumps(held)
        if len(data) <= _MOST:
            return base64.b64encode(data).decode()
    return None


def _of_each(obj: Any, ranks: Sequence[int]) -> list[Any]:
    """An object as each rank holds it: what follows from the rank in it is that rank's."""
    leaves, structure = tree_flatten(obj)
    if (len(leaves) + 1) * len(ranks) > _COPIED and not any(map(follows, leaves)):
        return [obj] * len(ranks)
    return [
        tree_unflatten([_copied(at_rank(leaf, rank)) for leaf in leaves], structure)
        for rank in ranks
    ]


def _copied(obj: Any) -> Any:
    """An object that equals another one, or the same where its class cannot be copied."""
    with contextlib.suppress(Exception):  # whatever the objects' own code raises
        return copy.deepcopy(obj)
    return obj


def _assume(more: str) -> None:
    capture().assume(
        f"Python objects are exchanged{at_user_line()}{more}; the messages are left out"
    )
