"""Known numbers received from other ranks: the values that these are assumed to have sent.

The idea: the other ranks are assumed to have the same numbers as this one, unless these follow
from the rank.  So a sum is a multiple, a gather repeats, and an all-to-all brings from each rank
the part that this one has for itself.
Real tensors of the host get these values; where none is known their memory no longer counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.communication import reduction_of
from flint.frontends.torch.recording.following_messages import (
    THE_SAME,
    broadcast,
    group_of,
    receive,
    received,
    sent,
)
from flint.frontends.torch.recording.held_numbers import of_members
from flint.frontends.torch.recording.known_values import Known, is_real, read
from flint.frontends.torch.user_lines import at_user_line


def _held(values: Any, tensor: torch.Tensor, marked: bool = False) -> Known | None:
    """What this rank knows about a tensor that it sends; not counts of a router, unless all ranks
    have the same of these.

    Args:
        marked: with the marks of what nothing has written.
    """
    known: Known | None = values.get(tensor) if marked else read(values, tensor)
    if known is None:
        return Known(tensor, alike=False) if is_real(tensor) else None
    return known if known.alike or known.origin in ("", THE_SAME) else None


def _exchanged(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """An all-to-all: from each rank the part that this rank has for itself."""
    if op.namespace == "c10d":
        result, source, group, *splits = (*args, *kwargs.values())[:5]
    else:
        source, *splits, group = (*args, *kwargs.values())[:4]
    ranks, known, value = group_of(group), _held(values, source), None
    if known is not None and not any(len(set(sizes)) > 1 for sizes in splits):
        if not known.alike:
            capture().assume(
                f"numbers are exchanged{at_user_line()}: each rank is assumed to send what this "
                "one has for itself"
            )
        with unset_fake_temporarily():
            part = known.value.flatten().chunk(ranks.size())[ranks.rank()]
            value = torch.cat([part] * ranks.size())
    receive(values, result, known, value)


def _exchanged_parts(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The same of a tensor to each rank and one from each."""
    results, sources, group = (*args, *kwargs.values())[:3]
    known = _held(values, sources[group_of(group).rank()])
    for tensor in results:
        receive(values, tensor, known, known and known.value)


def _gathered(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """A gather, for one rank or for all."""
    source, _, boxed = (*args, *kwargs.values())[:3]
    if op.namespace == "c10d":
        result, source, boxed = (*args, *kwargs.values())[:3]
    # One tensor for all ranks, or a list with one for each.
    source, *results = (
        (source[0], *(result[0] if result else ()))
        if isinstance(source, list)
        else (source, result)
    )
    known, each = _held(values, source, marked=True), _of_members(source, boxed)
    if each is not None and results:
        if len(results) == 1:
            with unset_fake_temporarily():
                each = [torch.stack(each)]
        for tensor, item in zip(results, each, strict=True):
            _receive_own(values, tensor, item)
        return
    for tensor in results:
        times = tensor.numel() // max(1, source.numel())
        with unset_fake_temporarily():
            value, marks = (
                None if part is None else part.flatten().repeat(times)
                for part in ((known.value, known.marks) if known is not None else (None, None))
            )
        receive(values, tensor, known, value, marks)


def _of_members(source: torch.Tensor, boxed: Any) -> list[torch.Tensor] | None:
    """What the ranks of a group send, if that follows from the rank."""
    return of_members(source, dist.get_process_group_ranks(group_of(boxed)))


def _receive_own(values: Any, tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Note what a tensor holds that follows from the ranks of its group."""
    receive(values, tensor, Known(value), value)
    if tensor in values:
        values[tensor] = replace(values[tensor], alike=False)


#: The reduction of equal values of several ranks, from the value and the number of ranks.
_REDUCED: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda value, ranks: value * ranks,
    "product": lambda value, ranks: value**ranks,
    **dict.fromkeys(("avg", "max", "min", "band", "bor"), lambda value, _: value.clone()),
}


#: The same of values that differ, of all ranks.
_COMBINED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda each: each.sum(0), "product": lambda each: each.prod(0),
    "max": lambda each: each.amax(0), "min": lambda each: each.amin(0),
}  # fmt: skip


def _reduce(values: Any, tensor: Any, known: Known | None, name: str, ranks: int) -> None:
    change, value = _REDUCED.get(name), None
    exact = known is not None and known.origin in ("", THE_SAME)  # not counts of a router
    if known is not None and exact and change is not None:
        with unset_fake_temporarily():
            value = change(known.value, ranks).to(known.value.dtype)
        known = Known(value, known.origin or THE_SAME, known.alike)
    receive(values, tensor, known, value)


def _reduced(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Numbers of all ranks, reduced."""
    if op.namespace == "c10d":
        tensors, boxed, reduction = (*args, *kwargs.values())[:3]
        group, name = group_of(boxed), reduction_of(reduction)
        pairs = [(tensor, tensor) for tensor in tensors]
    else:
        source, name, boxed = (*args, *kwargs.values())[:3]
        group, pairs = group_of(boxed), [(source, result)]
    for source, tensor in pairs:
        each = _of_members(source, boxed)
        if each is not None and name in _COMBINED:
            with unset_fake_temporarily():
                value = _COMBINED[name](torch.stack(each)).to(each[0].dtype)
            _receive_own(values, tensor, value)
        else:
            _reduce(values, tensor, _held(values, source), name, group.size())


def _reduced_parts(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The same, of which each rank gets a part."""
    if op.namespace == "c10d":
        result, source, boxed, reduction = (*args, *kwargs.values())[:4]
        name = reduction_of(reduction)
    else:
        source, name, _, boxed = (*args, *kwargs.values())[:4]
    group, part = group_of(boxed), None
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
    receive(values, tensor, own, own and own.value)


def _waited(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """The result of a collective that is waited for."""
    known = values.get(args[0])
    if known is not None:
        values[result] = known


_functional, _c10d = torch.ops._c10d_functional, torch.ops.c10d

#: Op -> the function that notes the values of what it gives.
EXCHANGES: Mapping[Any, Callable[[Any, Any, Any, Any, Any], None]] = {
    _functional.wait_tensor.default: _waited,
    _c10d.broadcast_.default: broadcast,
    _c10d.scatter_.default: _scattered,
    _c10d.send.default: sent,
    _c10d.alltoall_.default: _exchanged_parts,
    **dict.fromkeys(
        (_c10d.alltoall_base_.default, _functional.all_to_all_single.default), _exchanged
    ),
    **dict.fromkeys((_c10d.recv_.default, _c10d.recv_any_source_.default), received),
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
