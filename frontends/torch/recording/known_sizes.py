"""Results whose sizes follow from known values: ``repeat_interleave(counts)``, ``x[mask]``.

Fake tensors refuse such an op, because values decide how large its result is.  If all that decides
is known (a router's counts, what the host gave), the op is done on these values; its result has
the size that they give.  How many elements an unknown mask chooses is assumed.

    see_sizes(values, op, args, kwargs)        # None: they are not known
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import unseen
from flint.frontends.torch.recording.known_values import (
    MOST,
    Known,
    all_known,
    following_from,
    known_of,
    most_elements,
    real_argument,
)
from flint.frontends.torch.recording.schemas import tensors_in
from flint.frontends.torch.recording.unknown_masks import assumed
from flint.frontends.torch.user_lines import at_user_line

_aten = torch.ops.aten


def see_sizes(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Do an op if its result's size follows from known values.

    Args:
        values: what is known of tensors.
        op: that is dispatched; values may decide its result's size.
        args, kwargs: its arguments.

    Returns:
        The result; None if the values are not known, or do not decide here.
    """
    tensors = list(tensors_in((*args, *kwargs.values())))
    if not any(isinstance(item, FakeTensor) for item in tensors):
        return None
    known = all_known(values, op, args, kwargs)
    by_mask = _BY_MASK.get(op)
    if by_mask is None and not known:
        unknown = _UNKNOWN.get(op._schema.name)
        return None if unknown is None else unknown(*args)
    if by_mask is not None:
        result = by_mask(values, op, *args)
        return _noted(values, result, op, args, kwargs, known) if known else result
    with unset_fake_temporarily():
        real = _real(values, op, args, kwargs)
    results = [_empty(item.dtype, item.shape, tensors[0].device) for item in tensors_in(real)]
    _report(known)
    for result, value in zip(results, tensors_in(real), strict=True):
        if value.numel() <= most_elements(known):
            values[result] = following_from(known, value)
    return results[0] if isinstance(real, torch.Tensor) else tuple(results)


def _real(values: Any, op: Any, args: Any, kwargs: Any) -> Any:
    named = {name: real_argument(values, item) for name, item in kwargs.items()}
    return op(*real_argument(values, list(args)), **named)


def _noted(values: Any, result: Any, op: Any, args: Any, kwargs: Any, known: list[Known]) -> Any:
    """A result of known tensors, of which the value is known, too."""
    if result is not None and result.numel() <= most_elements(known):
        with unset_fake_temporarily():
            value = _real(values, op, args, kwargs)
        values[result] = following_from(known, value)
    return result


def _empty(dtype: torch.dtype, shape: Any, device: torch.device) -> torch.Tensor:
    """A new fake tensor, also of the host, whose tensors are real in a whole program."""
    with capture().fake_mode, unseen():
        return torch.empty(shape, dtype=dtype, device=device)


def _report(known: list[Known]) -> None:
    origin = next((item.origin for item in known if item.origin), "")
    if origin:
        capture().assume(f"a tensor's size{at_user_line()} depends on {origin}")


def _indexed(values: Any, op: Any, tensor: torch.Tensor, indices: Any) -> Any:
    """``tensor[mask]``: each mask selects the places where it is true."""
    if not any(_is_mask(index) for index in indices):
        return None
    places: list[torch.Tensor | None] = []
    for index in indices:
        if not _is_mask(index):
            places.append(index)
            continue
        count = _count(values, index, index.shape)
        if count is None:
            return None
        place = _empty(torch.int64, (count,), index.device)
        places += [place] * index.dim()
    return op(tensor, places)


def _is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _selected(values: Any, op: Any, tensor: torch.Tensor, mask: torch.Tensor) -> Any:
    count = _count(values, mask, np.broadcast_shapes(tensor.shape, mask.shape))
    return None if count is None else _empty(tensor.dtype, (count,), tensor.device)


def _count(values: Any, mask: torch.Tensor, shape: Any) -> int | None:
    """How many elements of a shape a mask chooses; None: not known, and not assumed."""
    known = known_of(values, mask)
    if known is None:
        return assumed(mask if mask.shape == shape else None, math.prod(shape))
    _report([known])
    with unset_fake_temporarily():
        return int(known.value.expand(shape).count_nonzero())


def _places(tensor: torch.Tensor) -> Any:
    """``nonzero``: a row of each place, which are the first ones."""
    count = assumed(tensor, tensor.numel())
    if count is None:
        return None
    result = _empty(torch.int64, (count, tensor.dim()), tensor.device)
    if 0 < result.numel() <= MOST:
        with unset_fake_temporarily():
            places = torch.unravel_index(torch.arange(count), tensor.shape)
            first = torch.stack(places, 1)
        origin = f"which elements a mask chooses{at_user_line()}: assumed to be the first ones"
        capture().known_values[result] = Known(first, origin)
    return result


def _kept(boxes: torch.Tensor, *_: Any) -> Any:
    """Boxes that no better one overlaps."""
    count = assumed(None, boxes.shape[0])
    return None if count is None else _empty(torch.int64, (count,), boxes.device)


def _distinct(
    tensor: torch.Tensor, _: Any = True, inverse: bool = False, counts: bool = False
) -> Any:
    """``unique``: the different items, the one that each is, and how many of each there are."""
    count = assumed(None, tensor.numel())
    if count is None:
        return None
    sizes = tensor.shape if inverse else (0,), (count if counts else 0,)
    made = (_empty(torch.int64, size, tensor.device) for size in sizes)
    return _empty(tensor.dtype, (count,), tensor.device), *made


def _runs(
    tensor: torch.Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Any:
    """``unique_consecutive``, which is the same of each run of equal items."""
    return None if dim is not None else _distinct(tensor, True, inverse, counts)


#: Op of a tensor of data -> its result, if its mask is known.
_BY_MASK: Mapping[Any, Callable[..., Any]] = {
    _aten.index.Tensor: _indexed,
    _aten.masked_select.default: _selected,
}
#: Name of an op -> its result, if what decides is not known.
_UNKNOWN: Mapping[str, Callable[..., Any]] = {
    "aten::nonzero": _places,
    "aten::_unique2": _distinct,
    "aten::unique_consecutive": _runs,
    "torchvision::nms": _kept,
}
#: Namespaces with such ops that PyTorch does not mark.
UNMARKED = ("torchvision",)
