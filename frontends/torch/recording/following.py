"""Token counts of routers, which are data, from a stated model.

The idea: the expert of a token depends on values, and so does the number of rows that a rank sends
to another.  A capture has no values, but programs count the choices in few ways (a histogram,
``bincount``, ``scatter_add`` of ones), and everything that they do with the counts afterwards is
arithmetic on small integers.  So the counts come from ``flint.graph.routing``, the same on every
rank, and the arithmetic on them is carried out: sums per rank, counts received from others, ends of
groups.  Reading such a value (``.tolist()``) then gives the numbers implied by the model, on every
rank the matching part, and each use is reported.

    @flint.capture(mesh=(8, 8), axes=("dp", "ep"), setup=build)        # balanced
    @flint.capture(..., routing=(4, 2, 1, 1, 1, 1, 1, 1))              # the first is popular
"""

from __future__ import annotations

import cmath
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import Handler, dispatch_mode, run
from flint.frontends.torch.recording.choices import defer, listed, marks
from flint.frontends.torch.recording.following_exchanges import EXCHANGES
from flint.frontends.torch.recording.grouped_products import by_groups
from flint.frontends.torch.recording.known_sizes import UNMARKED, see_sizes
from flint.frontends.torch.recording.known_values import (
    MOST,
    Known,
    all_known,
    follow,
    following_from,
    forget,
    is_followed,
    is_real,
    known_of,
    undefer,
)
from flint.frontends.torch.recording.mask_counts import count
from flint.frontends.torch.recording.picked_rows import picked
from flint.frontends.torch.recording.random_integers import DRAWN
from flint.frontends.torch.recording.right_choices import judge
from flint.frontends.torch.recording.schemas import OWN_PARTS, is_plain, parts_of, tensors_in
from flint.frontends.torch.recording.sparse_rows import MADE, rows_of, sparse_bags
from flint.frontends.torch.recording.unknown_masks import most_set
from flint.frontends.torch.recording.unwritten import unwritten
from flint.frontends.torch.user_lines import users_line


def following(below: Handler = run) -> Handler:
    """The handler that follows counts, of a dispatch mode within fake mode, and below a recorder.

    Args:
        below: sees every op next.
    """

    def see(op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _see(see, below, op, types, args, kwargs)

    return see


def _see(
    again: Handler, below: Handler, op: Any, types: Any, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    for kind in types:
        if not is_plain(kind):
            watch = capture().watch
            if watch is not None:
                for tensor in tensors_in((*args, *kwargs.values())):
                    watch(tensor)
            return NotImplemented
    parts = by_groups(op, args, kwargs) or sparse_bags(op, args, kwargs) or OWN_PARTS.get(op)
    if parts is None and torch.is_inference_mode_enabled():
        parts = parts_of(op, "PrivateUse1")
    if parts is not None:
        with dispatch_mode(again):
            return parts(*args, **kwargs)
    values = capture().known_values
    sized = torch.Tag.dynamic_output_shape in op.tags or op.namespace in UNMARKED
    if (sized or op in _INSTEAD) and all(map(is_real, tensors_in((*args, *kwargs.values())))):
        return below(op, types, args, kwargs)  # of the host
    if sized:
        with dispatch_mode(below), listed(values, op, args):
            found = see_sizes(values, op, args, kwargs)
        if found is not None:
            judge(op, args, kwargs, found)
            return found
    if op in _INSTEAD:
        with dispatch_mode(below):
            return _INSTEAD[op](values, op, args, kwargs)
    marked, most = marks(op, args, kwargs), most_set(op, args)
    rule, known = _RULES.get(op), None
    if op._schema.is_mutable and op.namespace == "aten":
        known = all_known(values, op, args, kwargs)
    result = below(op, types, args, kwargs)
    if op.namespace == "aten" and _is_real(result, args):
        return result  # of the host, which need not be followed
    if rule is not None:
        rule(values, op, args, kwargs, result)
    elif args:
        if known is None:
            known = all_known(values, op, args, kwargs) if op.namespace == "aten" else []
        follow(values, op, args, kwargs, result, known)
    undefer(op, args, kwargs)
    if marked is not None:
        values[result] = marked
    if most is not None:
        capture().most_set[result] = most
    defer(op, args, kwargs, result)
    judge(op, args, kwargs, result)
    if op.namespace == "aten":
        count(op, args, result)
    return result


def _is_real(result: Any, args: Any) -> bool:
    """Whether an op gave a tensor of the host, or wrote nothing but such, from the host."""
    if result is None:
        return all(map(is_real, tensors_in(args)))
    return isinstance(result, torch.Tensor) and is_real(result)


# Where values come from.


def _made(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """Numbers that the program makes from Python's; infinities make masks."""
    infinite = op is _aten.full.default and cmath.isinf(args[1])
    if result.numel() > MOST or not (infinite or is_followed(result)):
        return
    with unset_fake_temporarily():
        if next(tensors_in(args), None) is None:
            plain = {**kwargs, "device": torch.device("cpu"), "pin_memory": None}
            value = op(*args, **plain)
        else:  # zeros_like and similar ops: only the form of the argument counts
            like = torch.empty(result.shape, dtype=result.dtype)
            value = op(like, *args[1:])
        if op in _ALIKE and value.numel() > _OWN_ELEMENTS and value.is_floating_point():
            value = value.flatten()[:1].clone().expand(value.shape)  # states begin as zeros
    values[result] = Known(value)


def _unset(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """Whole numbers that are not set yet."""
    whole = not (result.is_floating_point() or result.is_complex())
    if whole and result.numel() <= MOST:
        with unset_fake_temporarily():
            value = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
            values[result] = Known(value, marks=unwritten(value))


def _placed(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """A tensor gets other memory (``torch.load`` makes an empty one first): another tensor's, whose
    value it has, or a storage's, whose value is not known."""
    values.pop(result, None)
    known = values.get(args[1]) if op is _aten.set_.source_Tensor else None
    if known is not None:
        values[result] = known


def _lifted(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """Numbers stated by the program: ``torch.tensor([2, 1])``; possibly others on other ranks."""
    given = args[0]
    if type(given) is torch.Tensor and is_followed(given) and given.numel() <= MOST:
        with unset_fake_temporarily():
            values[result] = Known(given.clone(), alike=False)


def _counted(values: Any, result: torch.Tensor, choices: int) -> torch.Tensor:
    """A result that counts choices: the counts of the model."""
    file, line = users_line(sys._getframe(1))
    at = f"{os.path.basename(file)}:{line}" if file else "an unknown line"
    routing = capture().routing
    counts = routing.counts(choices, result.numel())
    origin = (
        f"{routing.name} routing: {choices} choices among {result.numel()} experts, counted at {at}"
    )
    with unset_fake_temporarily():
        value = torch.tensor(counts).to(result.dtype)
    values[result] = Known(value, origin)
    return result


def _histc(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    _counted(values, result, args[0].numel())


def _bincount(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Its length is data, unless the program states a minimum, which is then the length."""
    given = dict(zip(("self", "weights", "minlength"), args, strict=False), **kwargs)
    size = int(given.get("minlength") or 0)
    if given.get("weights") is not None or size == 0:
        return op(*args, **kwargs)
    result = torch.empty(size, dtype=torch.int64, device=args[0].device)
    return _counted(values, result, args[0].numel())


def _scatter_add(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Ones added to zeros, each at an unknown place; numbers at known places are added."""
    target, _, index, source = (*args, *kwargs.values())[:4]
    before, added = values.get(target), values.get(source)
    known = all_known(values, op, args, kwargs)
    result = op(*args, **kwargs)
    if known:
        follow(values, op, args, kwargs, result, known)
        return result
    counts = False
    if target.dim() == 1 and index not in values and before is not None and added is not None:
        with unset_fake_temporarily():
            counts = not bool(before.value.any()) and bool((added.value == 1).all())
    if op._schema.is_mutable:
        forget(values, target)
    return _counted(values, result, index.numel()) if counts else result


_aten = torch.ops.aten

#: Op -> what decides its result, whatever the other operand is: a text ends at its greatest length
#: or at a word that is data.
_DECIDING: Mapping[Any, bool] = {
    _aten.bitwise_or.Tensor: True, _aten.logical_or.default: True,
    _aten.bitwise_and.Tensor: False, _aten.logical_and.default: False,
}  # fmt: skip


def _decided(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """A result of known operands, or of one that decides all of it alone."""
    known = all_known(values, op, args, kwargs)
    follow(values, op, args, kwargs, result, known)
    decides = _DECIDING[op]
    if known or result.numel() > MOST or (decides and result.dtype != torch.bool):
        return
    for item in filter(None, (known_of(values, operand) for operand in args)):
        with unset_fake_temporarily():
            if bool((item.value.bool() == decides).all()):
                value = torch.full(result.shape, decides, dtype=result.dtype)
                values[result] = following_from([item], value)


#: Ops whose result has the same number everywhere, and the most elements of one in floats of which
#: each has a place of its own, so that a part may be written.
_ALIKE = tuple(
    getattr(_aten, name).default for name in ("zeros", "ones", "zeros_like", "ones_like")
)
_OWN_ELEMENTS = 1 << 12

#: Op -> the function that notes the value of its result.
_RULES: Mapping[Any, Callable[[Any, Any, Any, Any, Any], None]] = {
    **dict.fromkeys(
        (
            _aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.zeros.default,
            _aten.ones.default, _aten.full.default, _aten.zeros_like.default,
            _aten.ones_like.default,
        ),
        _made,
    ),
    **dict.fromkeys((_aten.empty.memory_format, _aten.empty_strided.default), _unset),
    _aten.lift_fresh.default: _lifted,
    _aten.histc.default: _histc,
    **dict.fromkeys(
        (
            _aten.set_.source_Storage, _aten.set_.source_Storage_storage_offset,
            _aten.set_.source_Tensor,
        ),
        _placed,
    ),
    **dict.fromkeys(_DECIDING, _decided),
    **dict.fromkeys((_aten.index.Tensor, _aten.index_select.default), picked),
    **DRAWN,
    **EXCHANGES,
}  # fmt: skip

#: Op -> its replacement.
_INSTEAD: Mapping[Any, Callable[[Any, Any, Any, Any], Any]] = {
    MADE: rows_of,
    _aten.bincount.default: _bincount,
    _aten.scatter_add.default: _scatter_add,
    _aten.scatter_add_.default: _scatter_add,
}
