"""Known numbers received from other ranks: the values that these are assumed to have sent.

The idea: the other ranks are assumed to have the same numbers as this one.  So a sum is a multiple,
a gather repeats, and an all-to-all brings from each rank the part that this one has for itself.
Real tensors of the host get these values; where none is known their memory no longer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.communication import reduction_of
from flint.frontends.torch.recording.known_values import (
    Known,
    forget,
    is_real,
    is_whole,
    known_of,
    read,
)
from flint.frontends.torch.user_lines import at_user_line

#: The function that numbers follow from which other ranks gave.
_THE_SAME = "other ranks giving the same"
#: Why numbers are known that another rank has sent.
_ROOTS = "the sender's are assumed to be those of the recorded rank"
#: Broadcasts of more elements are not passed to other ranks, nor messages of more.
_FEW, _FORM = 1024, 256


def _held(values: Any, tensor: torch.Tensor) -> Known | None:
    """What this rank knows about a tensor that it sends; not counts of a router, unless all ranks
    have the same of these."""
    known = read(values, tensor)
    if known is None:
        return Known(tensor, alike=False) if is_real(tensor) else None
    return known if known.alike or known.origin in ("", _THE_SAME) else None


def _receive(values: Any, tensor: torch.Tensor, sent: Known | None, value: Any = None) -> None:
    """Note what a tensor holds after a collective.

    Args:
        sent: what follows from this; None if nothing is known.
        value: what it is.
    """
    forget(values, tensor)
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
        origin = sent.origin if sent.alike else sent.origin or _THE_SAME
        values[tensor] = Known(value, origin, sent.alike)


def _is_followed(tensor: torch.Tensor) -> bool:
    """Whether floats are few enough to be the program's own (a count), not data of a layer."""
    return capture().begins_group and tensor.numel() <= _FEW


def _group(boxed: Any) -> Any:
    """A process group from an op's argument."""
    c10d: Any = dist.distributed_c10d
    kind: Any = dist.ProcessGroup
    return c10d._resolve_process_group(boxed) if isinstance(boxed, str) else kind.unbox(boxed)


def _exchanged(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """An all-to-all: from each rank the part that this rank has for itself."""
    if op.namespace == "c10d":
        result, source, group, *splits = (*args, *kwargs.values())[:5]
    else:
        source, *splits, group = (*args, *kwargs.values())[:4]
    ranks, known, value = _group(group), _held(values, source), None
    if known is not None and not any(len(set(sizes)) > 1 for sizes in splits):
        if not known.alike:
            capture().assume(
                f"numbers are exchanged{at_user_line()}: each rank is assumed to send what this "
                "one has for itself"
            )
        with unset_fake_temporarily():
            part = known.value.flatten().chunk(ranks.size())[ranks.rank()]
            value = torch.cat([part] * ranks.size())
    _receive(values, result, known, value)


def _exchanged_parts(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The same of a tensor to each rank and one from each."""
    results, sources, group = (*args, *kwargs.values())[:3]
    known = _held(values, sources[_group(group).rank()])
    for tensor in results:
        _receive(values, tensor, known, known and known.value)


def _gathered(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A gather, for one rank or for all."""
    source = args[0]
    if op.namespace == "c10d":
        result, source = (*args, *kwargs.values())[:2]
    # One tensor for all ranks, or a list with one for each.
    source, *results = (
        (source[0], *(result[0] if result else ()))
        if isinstance(source, list)
        else (source, result)
    )
    known = _held(values, source)
    for tensor in results:
        value = None
        if known is not None:
            with unset_fake_temporarily():
                value = known.value.flatten().repeat(tensor.numel() // max(1, source.numel()))
        _receive(values, tensor, known, value)


#: The reduction of equal values of several ranks, from the value and the number of ranks.
_REDUCED: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda value, ranks: value * ranks,
    "product": lambda value, ranks: value**ranks,
    **dict.fromkeys(("avg", "max", "min", "band", "bor"), lambda value, _: value.clone()),
}


def _reduce(values: Any, tensor: Any, known: Known | None, name: str, ranks: int) -> None:
    change, value = _REDUCED.get(name), None
    exact = known is not None and known.origin in ("", _THE_SAME)  # not counts of a router
    if known is not None and exact and change is not None:
        with unset_fake_temporarily():
            value = change(known.value, ranks).to(known.value.dtype)
        known = Known(value, known.origin or _THE_SAME, known.alike)
    _receive(values, tensor, known, value)


def _reduced(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Numbers of all ranks, reduced."""
    if op.namespace == "c10d":
        tensors, boxed, reduction = (*args, *kwargs.values())[:3]
        group, name = _group(boxed), reduction_of(reduction)
        pairs = [(tensor, tensor) for tensor in tensors]
    else:
        source, name, boxed = (*args, *kwargs.values())[:3]
        group, pairs = _group(boxed), [(source, result)]
    for source, tensor in pairs:
        _reduce(values, tensor, _held(values, source), name, group.size())


def _reduced_parts(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The same, of which each rank gets a part."""
    if op.namespace == "c10d":
        result, source, boxed, reduction = (*args, *kwargs.values())[:4]
        name = reduction_of(reduction)
    else:
        source, name, _, boxed = (*args, *kwargs.values())[:4]
    group, part = _group(boxed), None
    if isinstance(source, list):
        result, source = result[0], source[0][group.rank()]
        part = _held(values, source)
    elif (whole := _held(values, source)) is not None:
        with unset_fake_temporarily():
            own = whole.value.flatten().chunk(group.size())[group.rank()]
        part = Known(own, whole.origin, whole.alike)
    _reduce(values, result, part, name, group.size())


def _scattered(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A part from the root, whose values only the root knows."""
    (tensor,), sources, _, root = (*args, *kwargs.values())[:4]
    own = _held(values, sources[0][root]) if sources else None
    _receive(values, tensor, own, own and own.value)


def _sent(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A message to another rank, which may ask for a few numbers in it."""
    tensors, boxed, to = (*args, *kwargs.values())[:3]
    ranks = dist.get_process_group_ranks(_group(boxed))
    for tensor in filter(_is_form, tensors):
        _message((dist.get_rank(), ranks[to]), known_of(values, tensor))


def _received(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A message from another rank: a few numbers are those that it sends, others are not known."""
    tensors, boxed, sender = (*args, *kwargs.values())[:3]
    for tensor in tensors:
        _receive(values, tensor, None)
        if op is not _c10d.recv_.default or not _is_form(tensor):
            continue
        ranks = dist.get_process_group_ranks(_group(boxed))
        sent = _message((ranks[sender], dist.get_rank()), None)
        if sent is None or len(sent) != tensor.numel():
            continue
        with unset_fake_temporarily():
            value = torch.tensor(sent, dtype=tensor.dtype).view(tensor.shape)
        capture().overwritten.pop(tensor.untyped_storage()._cdata, None)
        _receive(values, tensor, Known(value, alike=False), value)


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


def _broadcast(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The root's value, if it is known there; otherwise it is assumed to equal this rank's."""
    tensors, boxed, root = (*args, *kwargs.values())[:3]
    ranks = dist.get_process_group_ranks(_group(boxed))
    for tensor in (item for item in tensors if not _is_few(item)):
        keep(values, values.get(tensor), tensor, _group(boxed).rank() == root)
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
    return tensor.numel() <= _FEW and not (tensor.is_floating_point() or tensor.is_complex())


def _waited(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """The result of a collective that is waited for."""
    known = values.get(args[0])
    if known is not None:
        values[result] = known


_functional, _c10d = torch.ops._c10d_functional, torch.ops.c10d

#: Op -> the function that notes the values of what it gives.
EXCHANGES: Mapping[Any, Callable[[Any, Any, Any, Any, Any], None]] = {
    _functional.wait_tensor.default: _waited,
    _c10d.broadcast_.default: _broadcast,
    _c10d.scatter_.default: _scattered,
    _c10d.send.default: _sent,
    _c10d.alltoall_.default: _exchanged_parts,
    **dict.fromkeys(
        (_c10d.alltoall_base_.default, _functional.all_to_all_single.default), _exchanged
    ),
    **dict.fromkeys((_c10d.recv_.default, _c10d.recv_any_source_.default), _received),
    **dict.fromkeys(
        (
            _c10d._allgather_base_.default, _c10d.allgather_.default, _c10d.gather_.default,
            _functional.all_gather_into_tensor.default,
        ),
        _gathered,
    ),
    **dict.fromkeys(
        (
            _c10d.allreduce_.default, _c10d.allreduce_coalesced_.default, _c10d.reduce_.default,
            _functional.all_reduce.default, _functional.all_reduce_.default,
        ),
        _reduced,
    ),
    **dict.fromkeys(
        (
            _c10d._reduce_scatter_base_.default, _c10d.reduce_scatter_.default,
            _functional.reduce_scatter_tensor.default,
        ),
        _reduced_parts,
    ),
}  # fmt: skip
