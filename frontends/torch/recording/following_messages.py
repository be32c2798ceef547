"""Known numbers in messages and broadcasts: those of their sender, another rank.

The idea: where ranks are recorded at the same time, a rank gives the few integers that it sends to
those that receive them (what the next messages look like); elsewhere the sender's values are taken
to be those of the recorded rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import (
    Known,
    forget,
    is_real,
    is_whole,
    known_of,
)
from flint.frontends.torch.user_lines import at_user_line

#: The function that numbers follow from which other ranks gave.
THE_SAME = "other ranks giving the same"
#: Why numbers are known that another rank has sent.
_ROOTS = "the sender's are assumed to be those of the recorded rank"
#: Broadcasts of more elements are not passed to other ranks, nor messages of more.
_FEW, _FORM = 1024, 256
#: Broadcasts of more bytes; they may be a pickled object, of which others know nothing.
_BYTES = 1 << 16


def receive(
    values: Any, tensor: torch.Tensor, sent: Known | None, value: Any = None, marks: Any = None
) -> None:
    """Note what a tensor holds after a collective.

    Args:
        sent: what follows from this; None if nothing is known.
        value: what it is.
        marks: which elements nothing has written, if not all are.
    """
    forget(values, tensor)
    held = capture().held
    for item in (tensor, *(held.sharing(tensor) if held else ())):
        held.pop(item, None)
    fits = sent is not None and value is not None and value.numel() == tensor.numel()
    if is_real(tensor):
        if fits:
            with unset_fake_temporarily():
                tensor.copy_(value.view(tensor.shape))
        else:
            storage = tensor.untyped_storage()
            capture().overwritten[storage._cdata] = storage
    elif fits and sent is not None and (_is_followed(tensor) or not tensor.is_floating_point()):
        with unset_fake_temporarily():
            value = value.to(tensor.dtype).view(tensor.shape)
            marks = None if marks is None else marks.view(tensor.shape)
        origin = sent.origin if sent.alike else sent.origin or THE_SAME
        values[tensor] = Known(value, origin, sent.alike, marks=marks)


def _is_followed(tensor: torch.Tensor) -> bool:
    """Whether floats are few enough to be the program's own (a count), not data of a layer."""
    return capture().begins_group and tensor.numel() <= _FEW


def group_of(boxed: Any) -> Any:
    """A process group from an op's argument."""
    c10d: Any = dist.distributed_c10d
    kind: Any = dist.ProcessGroup
    return c10d._resolve_process_group(boxed) if isinstance(boxed, str) else kind.unbox(boxed)


def sent(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A message to another rank, which may ask for a few numbers in it."""
    tensors, boxed, to = (*args, *kwargs.values())[:3]
    ranks = dist.get_process_group_ranks(group_of(boxed))
    for tensor in filter(_is_form, tensors):
        _message((dist.get_rank(), ranks[to]), known_of(values, tensor))


def received(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A message from another rank: a few numbers are those that it sends, others are not known."""
    tensors, boxed, sender = (*args, *kwargs.values())[:3]
    for tensor in tensors:
        receive(values, tensor, None)
        if op is not torch.ops.c10d.recv_.default or not _is_form(tensor):
            continue
        ranks = dist.get_process_group_ranks(group_of(boxed))
        sent = _message((ranks[sender], dist.get_rank()), None)
        if sent is None or len(sent) != tensor.numel():
            continue
        with unset_fake_temporarily():
            value = torch.tensor(sent, dtype=tensor.dtype).view(tensor.shape)
        capture().overwritten.pop(tensor.untyped_storage()._cdata, None)
        receive(values, tensor, Known(value, alike=False), value)


def _message(ends: tuple[int, int], held: Known | None) -> Any:
    """The numbers in a message between two ranks, if they are known."""
    peers = capture().peers
    if peers is None:
        return None
    with unset_fake_temporarily():
        numbers = None if held is None else held.value.flatten().tolist()
    return peers.broadcast(ends, ends[0], numbers)


def _is_form(tensor: torch.Tensor) -> bool:
    """Whether a message may say what the next ones are: kinds, numbers of dims, sizes."""
    return tensor.numel() <= _FORM and _is_few(tensor)


def broadcast(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The root's value, if it is known there; otherwise it is assumed to equal this rank's."""
    tensors, boxed, root = (*args, *kwargs.values())[:3]
    ranks = dist.get_process_group_ranks(group_of(boxed))
    for tensor in (item for item in tensors if not _is_few(item)):
        keep(values, values.get(tensor), tensor, group_of(boxed).rank() == root)
    peers = capture().peers
    if peers is None:
        return
    for tensor in filter(_is_few, tensors):
        known = known_of(values, tensor)
        with unset_fake_temporarily():
            held = None if known is None else known.value.flatten().tolist()
        sent = peers.broadcast(ranks, ranks[root], held)
        if sent is None and held is not None:
            capture().assume(
                f"integers are broadcast{at_user_line()} from a rank whose values are unknown: "
                "assumed to be those of the recorded rank"
            )
        if sent is None or sent == held or len(sent) != tensor.numel():
            continue
        with unset_fake_temporarily():
            value = torch.tensor(sent, dtype=tensor.dtype).view(tensor.shape)
            if is_whole(tensor):
                tensor.copy_(value)
                continue
        forget(values, tensor)
        values[tensor] = Known(value, alike=len(ranks) == dist.get_world_size())


def keep(values: Any, known: Known | None, tensor: torch.Tensor, is_root: bool) -> None:
    """Keep what is known of a tensor that was broadcast, from the root or as that of the root."""
    if known is not None:
        origin = "" if is_root else f"values broadcast{at_user_line()}: {_ROOTS}"
        values[tensor] = Known(known.value, known.origin or origin, marks=known.marks)


def _is_few(tensor: torch.Tensor) -> bool:
    most = _BYTES if tensor.dtype is torch.uint8 else _FEW
    return tensor.numel() <= most and not (tensor.is_floating_point() or tensor.is_complex())
