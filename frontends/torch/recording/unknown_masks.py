"""How many elements a mask of unknown values chooses: ``scores > 0.5``, boxes that overlap.

The idea: it may choose any number of them, and the capture needs one.  All of them are an upper
bound; a user may know better (``--mask-share``).  Masks that a program makes by writing into zeros
choose as many as it writes.

    keep = (scores > 0.5).nonzero()          # as many rows as scores
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[keep[:256]] = True
    boxes[mask]                              # 256 rows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import known_of
from flint.frontends.torch.user_lines import at_user_line

_aten = torch.ops.aten


def assumed(mask: torch.Tensor | None, elements: int) -> int | None:
    """How many elements are chosen, which is reported.

    Args:
        mask: that chooses them; None: something else does, such as overlaps of boxes.
        elements: how many there are.

    Returns:
        The number; None in a step function, whose sizes must be known.
    """
    if not capture().begins_group:
        return None
    at = at_user_line()
    written = None if mask is None else most_set_of(mask)
    share, is_stated = share_at(at)
    if written is not None and not is_stated:
        capture().assume(f"a mask{at} is assumed to choose as many elements as were set in it")
        return min(written, elements)
    words = "all of them, an upper bound" if share == 1.0 else f"{share:.3g} of them"
    capture().assume(
        f"values that are not known choose elements{at}: assumed to be {words} (--mask-share)"
    )
    return math.ceil(share * elements)


def share_at(at: str) -> tuple[float, bool]:
    """The share of its elements that a mask chooses, and whether it is stated for this line.

    Args:
        at: the line, as ``at_user_line`` words it.
    """
    shares = capture().mask_shares
    stated = shares.at(at.removeprefix(" at "))
    return (shares.usual, False) if stated is None else (stated, True)


def most_set(op: Any, args: Any) -> int | None:
    """The most elements of an op's result that are not zero, before it is done.

    Returns:
        The number; None if nothing is known about it.
    """
    rule = _RULES.get(op) if capture().begins_group else None
    capture_ = capture()
    if rule is None or not (capture_.deferred or capture_.most_set or rule is _put):
        return None
    return rule(op, args)


def most_set_of(tensor: Any) -> int | None:
    """The most elements of a tensor that are not zero."""
    if not isinstance(tensor, torch.Tensor):
        return None
    noted: int | None = capture().most_set.get(tensor)
    if noted is not None:
        return noted
    filled = capture().deferred.get(tensor)
    if filled is not None and not filled.origin and tensor.numel():
        with unset_fake_temporarily():
            return None if bool(filled.make().flatten()[0]) else 0
    known = known_of(capture().known_values, tensor)
    return None if known is None else _count(known.value)


def _count(value: torch.Tensor) -> int:
    with unset_fake_temporarily():
        return int(value.count_nonzero())


def _written(op: Any, args: Any) -> int | None:
    """Places of a tensor that are set, in addition to those before."""
    before = most_set_of(args[0])
    return None if before is None else before + int(args[2].numel())


def _filled(op: Any, args: Any) -> int | None:
    before, (tensor, dim, index, *_) = most_set_of(args[0]), args
    if before is None or not tensor.dim():
        return None
    return before + int(index.numel() * (tensor.numel() // max(tensor.shape[dim], 1)))


def _put(op: Any, args: Any) -> int | None:
    """``x[index] = value``; a mask among the indices sets what it chooses."""
    tensor, indices, values = args[:3]
    left_over = _overwritten(tensor, indices, values)
    if left_over is not None:
        return left_over
    before, dim = most_set_of(tensor), 0
    places: set[tuple[int, ...]] = set()
    left: list[int] = []
    for index in indices:
        if index is None:
            left.append(tensor.shape[dim])
        elif index.dtype in (torch.bool, torch.uint8):
            places.add((_chosen(index),))
            dim += index.dim() - 1
        elif index.dim():
            places.add(tuple(index.shape))
        dim += 1
    if before is None or len(places) > 1:
        return None
    each = math.prod(next(iter(places), ()))
    return before + int(each * math.prod((*left, *tensor.shape[dim:])))


def _chosen(mask: torch.Tensor) -> int:
    """The most elements that a mask chooses."""
    most = most_set_of(mask)
    return mask.numel() if most is None else most


def _overwritten(tensor: Any, indices: Any, values: Any) -> int | None:
    """``mask[candidates] = scores > 0.5``, of which mask and candidates are known."""
    known = known_of(capture().known_values, tensor)
    place = known_of(capture().known_values, indices[0]) if len(indices) == 1 else None
    if known is None or place is None or place.value.dtype != torch.bool:
        return None
    places = _count(place.value)
    if place.value.shape != known.value.shape or values.numel() not in (1, places):
        return None
    set_there = most_set_of(values)
    if set_there is None:
        set_there = math.ceil(capture().mask_shares.usual * values.numel())
    with unset_fake_temporarily():
        left = _count(known.value.bool() & ~place.value)
    return left + set_there * places // max(int(values.numel()), 1)


def _same(op: Any, args: Any) -> int | None:
    """The same elements in another form, or some of them."""
    return most_set_of(args[0])


def _compared(op: Any, args: Any) -> int | None:
    """A comparison with a number: if it does not hold of zero, only for elements that are set."""
    before = most_set_of(args[0])
    if before is None:
        return None
    with unset_fake_temporarily():
        return None if bool(op(torch.zeros(()), args[1])) else before


def _either(op: Any, args: Any) -> int | None:
    first, second = map(most_set_of, args[:2])
    if first is None or second is None or not _alike(args):
        return None
    return first + second


def _joined(op: Any, args: Any) -> int | None:
    every = [most_set_of(part) for part in args[0]]
    known = [most for most in every if most is not None]
    return sum(known) if len(known) == len(every) else None


def _both(op: Any, args: Any) -> int | None:
    known = [most for most in map(most_set_of, args[:2]) if most is not None]
    return min(known, default=None) if _alike(args) else None


def _alike(args: Any) -> bool:
    """Whether the first two arguments, of which either may be a number, are of one shape."""
    first, second = (getattr(item, "shape", None) for item in args[:2])
    return first is not None and first == second


#: Op -> the function that gives the most elements of its result that are not zero.
_RULES: Mapping[Any, Callable[[Any, Any], int | None]] = {
    **dict.fromkeys(
        (_aten.index_put.default, _aten.index_put_.default), _put
    ),
    **dict.fromkeys(
        (
            _aten.index_fill.int_Scalar, _aten.index_fill_.int_Scalar,
            _aten.index_fill.int_Tensor, _aten.index_fill_.int_Tensor,
        ),
        _filled,
    ),
    **dict.fromkeys(
        (
            _aten.scatter.value, _aten.scatter_.value, _aten.scatter.src, _aten.scatter_.src,
        ),
        _written,
    ),
    **dict.fromkeys(
        (
            _aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.view.default,
            _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default,
            _aten.squeeze.dim, _aten.squeeze.default, _aten.squeeze.dims, _aten.t.default,
            _aten.transpose.int, _aten.permute.default, _aten.slice.Tensor, _aten.select.int,
            _aten.alias.default,
        ),
        _same,
    ),
    **dict.fromkeys(
        tuple(getattr(_aten, name).Scalar for name in ("eq", "ne", "gt", "ge", "lt", "le")),
        _compared,
    ),
    **dict.fromkeys(
        (_aten.bitwise_or.Tensor, _aten.logical_or.default, _aten.add.Tensor), _either
    ),
    **dict.fromkeys((_aten.cat.default, _aten.stack.default), _joined),
    **dict.fromkeys(
        (_aten.bitwise_and.Tensor, _aten.logical_and.default, _aten.mul.Tensor), _both
    ),
}  # fmt: skip
