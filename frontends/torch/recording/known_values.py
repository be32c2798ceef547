"""Values of small integer tensors that a capture knows: token counts of routers above all.

The idea: which expert a token goes to depends on values, and how many rows a rank sends to another
follows from it.  A capture has no values, but programs count the choices in few ways (a histogram,
``bincount``, ``scatter_add`` of ones), and everything that they do with the counts afterwards is
arithmetic on small integers.  So the counts come from a model (``routing.py``), the same on every
rank, and what is computed from them is computed: sums per rank, what arrives from others, where
groups end.  Reading such a value (``.tolist()``) then gives what the model implies, on every rank
the matching part of it, and each use is reported.

    @flint.capture(mesh=(8, 8), axes=("dp", "ep"), setup=build)        # balanced
    @flint.capture(..., routing=(4, 2, 1, 1, 1, 1, 1, 1))              # the first is popular
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import dispatch_mode
from flint.frontends.torch.user_lines import users_line

#: Larger tensors of integers are data, not counts.
_MOST = 1 << 16
#: The same of tensors whose elements are all alike.
_MOST_ALIKE = 1 << 22

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, torch.nn.Buffer)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a tensor's value.

    Attributes:
        value: it, on the CPU; views of one tensor are views of one value.
        origin: which count it follows from; "" when it is exact.
        alike: every rank's is the same.
    """

    value: torch.Tensor
    origin: str = ""
    alike: bool = True


def following() -> AbstractContextManager[Any]:
    """A mode that follows counts; within fake mode, and outside of a recorder."""
    return dispatch_mode(_see)


def value_of(tensor: torch.Tensor) -> tuple[Any, str] | None:
    """The value of a tensor of one element, and which count it follows from; None: not known."""
    known = capture().known_values.get(tensor)
    if known is None:
        return None
    with unset_fake_temporarily():
        return known.value.item(), known.origin


def known_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor's value on the CPU; None: not known."""
    known = capture().known_values.get(tensor)
    return None if known is None else known.value


def know(tensor: torch.Tensor, element: torch.Tensor, origin: str) -> None:
    """Every element of a tensor is this one, which follows from ``origin``; every rank's."""
    if tensor.numel() <= _MOST_ALIKE:
        capture().known_values[tensor] = _Known(element.expand(tensor.shape), origin)


def given(tensor: torch.Tensor) -> None:
    """A real tensor's value is known, every rank's alike, and what is computed from it."""
    if tensor.numel() <= _MOST_ALIKE:
        capture().known_values[tensor] = _Known(tensor)


def _see(op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for kind in types:
        if kind not in _PLAIN:
            return NotImplemented
    known = capture().known_values
    rule = _RULES.get(op)
    if rule is not None:
        return rule(known, op, args, kwargs)
    result = op(*args, **kwargs)
    if known and args:
        _follow(known, op, args, kwargs, result)
    return result


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, list | tuple):
        for part in item:
            yield from _tensors(part)


def _follow(values: Any, op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Do an op on known values where all that it takes is known; forget what it overwrites."""
    taken = [*_tensors(args), *_tensors(tuple(kwargs.values()))]
    found = [values.get(item) for item in taken]
    nondeterministic = torch.Tag.nondeterministic_seeded in op.tags
    written = list(_written(op, args, kwargs))
    apart = all(_own_elements(values, tensor) for tensor in written)
    if op.namespace != "aten" or nondeterministic or not all(found) or not found or not apart:
        for tensor in written:
            _forget(values, tensor)
        return
    known = [item for item in found if item is not None]
    with unset_fake_temporarily():
        computed = op(*_real(values, args), **{key: _real(values, x) for key, x in kwargs.items()})
    origin = next((item.origin for item in known if item.origin), "")
    alike = all(item.alike for item in known)
    for tensor, value in zip(_tensors(result), _tensors(computed), strict=True):
        if value.numel() <= _MOST:
            values[tensor] = _Known(value, origin, alike)


def _own_elements(values: Any, tensor: torch.Tensor) -> bool:
    """Whether a known value has an element of its own for each of the tensor's storage, or one
    stands for all, which then cannot be written."""
    known = values.get(tensor)
    if known is None:
        return True
    return bool(known.value.untyped_storage().nbytes() >= tensor.untyped_storage().nbytes())


def _written(op: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """What an op writes."""
    if op.namespace == "c10d":  # its schemas do not tell
        yield from _tensors(args)
    elif op._schema.is_mutable:
        given = dict(zip((item.name for item in op._schema.arguments), args, strict=False))
        for item in op._schema.arguments:
            if item.alias_info is not None and item.alias_info.is_write:
                yield from _tensors(given.get(item.name, kwargs.get(item.name)))


def _forget(values: Any, tensor: torch.Tensor) -> None:
    """A tensor is written: neither it nor what shares its storage is known any more."""
    storage = tensor.untyped_storage()._cdata
    for other in list(values.keys()):
        if other.untyped_storage()._cdata == storage:
            del values[other]


def _real(values: Any, item: Any) -> Any:
    """An argument with values in place of tensors, on the CPU."""
    if isinstance(item, torch.Tensor):
        return values[item].value
    if isinstance(item, torch.device):
        return torch.device("cpu")
    if isinstance(item, list | tuple):
        return type(item)(_real(values, part) for part in item)
    return item


# Where values come from.


def _made(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Integers that the program makes from Python numbers."""
    result = op(*args, **kwargs)
    if result.numel() <= _MOST and not result.dtype.is_floating_point:
        with unset_fake_temporarily():
            if next(_tensors(args), None) is None:
                plain = {**kwargs, "device": torch.device("cpu"), "pin_memory": None}
                value = op(*args, **plain)
            else:  # zeros_like and its like: only the form of its argument counts
                like = torch.empty(result.shape, dtype=result.dtype)
                value = op(like, *args[1:])
        values[result] = _Known(value)
    return result


def _counted(values: Any, result: torch.Tensor, choices: int) -> torch.Tensor:
    """A result that counts choices: the model's counts."""
    file, line = users_line(sys._getframe(1))
    at = f"{os.path.basename(file)}:{line}" if file else "an unknown line"
    routing = capture().routing
    counts = routing.counts(choices, result.numel())
    origin = (
        f"{routing.name} routing: {choices} choices among {result.numel()} experts, counted at {at}"
    )
    with unset_fake_temporarily():
        value = torch.tensor(counts).to(result.dtype)
    values[result] = _Known(value, origin)
    return result


def _histc(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    return _counted(values, result, args[0].numel())


def _bincount(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Its length is data, unless the program says how many there are at least, and means it."""
    given = dict(zip(("self", "weights", "minlength"), args, strict=False), **kwargs)
    size = int(given.get("minlength") or 0)
    if given.get("weights") is not None or size == 0:
        return op(*args, **kwargs)
    result = torch.empty(size, dtype=torch.int64, device=args[0].device)
    return _counted(values, result, args[0].numel())


def _scatter_add(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Ones added to zeros, each at a place that is not known."""
    target, _, index, source = (*args, *kwargs.values())[:4]
    before, added = values.get(target), values.get(source)
    result = op(*args, **kwargs)
    counts = False
    if target.dim() == 1 and index not in values and before is not None and added is not None:
        with unset_fake_temporarily():
            counts = not bool(before.value.any()) and bool((added.value == 1).all())
    if op._schema.is_mutable:
        _forget(values, target)
    return _counted(values, result, index.numel()) if counts else result


# What arrives from other ranks, whose counts are the same.


def _all_to_all(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    source, received, sent, name = (*args, *kwargs.values())[:4]
    c10d: Any = dist.distributed_c10d
    group = c10d._resolve_process_group(name)
    _exchanged(values, result, source, group, received, sent)
    return result


def _all_to_all_in_place(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    target, source, boxed, received, sent = (*args, *kwargs.values())[:5]
    _forget(values, target)
    group: Any = dist.ProcessGroup
    _exchanged(values, target, source, group.unbox(boxed), received, sent)
    return result


def _exchanged(
    values: Any, result: torch.Tensor, source: torch.Tensor, group: Any, *splits: Any
) -> None:
    known = values.get(source)
    if known is None or not known.alike or any(len(set(sizes)) > 1 for sizes in splits):
        return
    size = dist.get_world_size(group)
    with unset_fake_temporarily():
        part = known.value.chunk(size)[dist.get_rank(group)]
        value = torch.cat([part] * size)
    values[result] = _Known(value, known.origin, alike=False)


def _all_gather(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    _gathered(values, result, args[0])
    return result


def _all_gather_in_place(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    target, source = (*args, *kwargs.values())[:2]
    _forget(values, target)
    _gathered(values, target, source)
    return result


def _gathered(values: Any, result: torch.Tensor, source: torch.Tensor) -> None:
    known = values.get(source)
    if known is not None and known.alike:
        with unset_fake_temporarily():
            each = known.value.flatten()
            value = torch.cat([each] * (result.numel() // each.numel())).view(result.shape)
        values[result] = _Known(value, known.origin)


def _lifted(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Integers that the program gives: ``torch.tensor([2, 1])``; maybe others on other ranks."""
    result = op(*args, **kwargs)
    given = args[0]
    if type(given) is torch.Tensor and not given.is_floating_point() and given.numel() <= _MOST:
        with unset_fake_temporarily():
            values[result] = _Known(given.clone(), alike=False)
    return result


def _waited(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    result = op(*args, **kwargs)
    known = values.get(args[0])
    if known is not None:
        values[result] = known
    return result


_aten, _functional, _c10d = torch.ops.aten, torch.ops._c10d_functional, torch.ops.c10d

_RULES: Mapping[Any, Callable[[Any, Any, Any, Any], Any]] = {
    **dict.fromkeys(
        (
            _aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.zeros.default,
            _aten.ones.default, _aten.full.default, _aten.zeros_like.default,
            _aten.ones_like.default,
        ),
        _made,
    ),
    _aten.lift_fresh.default: _lifted,
    _aten.histc.default: _histc,
    _aten.bincount.default: _bincount,
    _aten.scatter_add.default: _scatter_add,
    _aten.scatter_add_.default: _scatter_add,
    _functional.all_to_all_single.default: _all_to_all,
    _functional.all_gather_into_tensor.default: _all_gather,
    _functional.wait_tensor.default: _waited,
    _c10d.alltoall_base_.default: _all_to_all_in_place,
    _c10d._allgather_base_.default: _all_gather_in_place,
}  # fmt: skip
