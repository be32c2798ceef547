"""Known numbers received from other ranks: the values that these are assumed to have sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.communication import reduction_of
from flint.frontends.torch.recording.known_values import Known, forget, is_whole, known_of
from flint.frontends.torch.user_lines import at_user_line


def exchanged(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """An all-to-all: from each rank the part that this rank has for itself."""
    group: Any
    if op.namespace == "c10d":
        result, source, boxed, *splits = (*args, *kwargs.values())[:5]
        kind: Any = dist.ProcessGroup
        group = kind.unbox(boxed)
        forget(values, result)
    else:
        source, *splits, name = (*args, *kwargs.values())[:4]
        c10d: Any = dist.distributed_c10d
        group = c10d._resolve_process_group(name)
    known = values.get(source)
    if known is None or not known.alike or any(len(set(sizes)) > 1 for sizes in splits):
        return
    size = dist.get_world_size(group)
    with unset_fake_temporarily():
        part = known.value.chunk(size)[dist.get_rank(group)]
        value = torch.cat([part] * size)
    values[result] = Known(value, known.origin, alike=False)


def gathered(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """An all-gather: the other ranks are assumed to have the same."""
    source = args[0]
    if op.namespace == "c10d":
        result, source = (*args, *kwargs.values())[:2]
    # One tensor for all ranks, or a list with one for each.
    source, *results = (source[0], *result[0]) if isinstance(source, list) else (source, result)
    known = values.get(source)
    exact = known is not None and known.origin in ("", _THE_SAME)
    for tensor in results:
        forget(values, tensor)
        if known is not None and (known.alike or exact):
            with unset_fake_temporarily():
                each = known.value.flatten()
                value = torch.cat([each] * (tensor.numel() // each.numel())).view(tensor.shape)
            origin = known.origin if known.alike else _THE_SAME
            values[tensor] = Known(value, origin, known.alike)


#: The reduction of equal values of several ranks, from the value and the number of ranks.
_REDUCED: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda value, ranks: value * ranks,
    "product": lambda value, ranks: value**ranks,
    **dict.fromkeys(("avg", "max", "min", "band", "bor"), lambda value, _: value.clone()),
}


def reduced(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Numbers from the host: the other ranks are assumed to have the same."""
    group: Any
    if op.namespace == "c10d":
        tensors, boxed, reduction = (*args, *kwargs.values())[:3]
        kind: Any = dist.ProcessGroup
        group, name = kind.unbox(boxed), reduction_of(reduction)
    else:
        source, name, boxed = (*args, *kwargs.values())[:3]
        c10d: Any = dist.distributed_c10d
        group, tensors = c10d._resolve_process_group(boxed), [source]
        if source is not result and source in values:
            values[result] = values[source]
            tensors = [result]
    for tensor in tensors:
        known = values.get(tensor)
        forget(values, tensor)
        change = _REDUCED.get(name)
        exact = known is not None and known.origin in ("", _THE_SAME)  # not counts of a router
        if known is not None and exact and change is not None:
            with unset_fake_temporarily():
                value = change(known.value, dist.get_world_size(group)).to(known.value.dtype)
            values[tensor] = Known(value, known.origin or _THE_SAME, known.alike)


def broadcast(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The root's value, if it is known there; otherwise it is assumed to equal this rank's."""
    tensors, boxed, root = (*args, *kwargs.values())[:3]
    kind: Any = dist.ProcessGroup
    ranks = dist.get_process_group_ranks(kind.unbox(boxed))
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


def _is_few(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= _FEW and not (tensor.is_floating_point() or tensor.is_complex())


#: Broadcasts of more elements are not passed to other ranks.
_FEW = 1024
#: The functions that follow other ranks' numbers.
_THE_SAME = "other ranks giving the same"


def waited(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """The result of a collective that is waited for."""
    known = values.get(args[0])
    if known is not None:
        values[result] = known
