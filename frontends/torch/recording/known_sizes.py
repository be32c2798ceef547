"""Results whose sizes follow from known values: ``repeat_interleave(counts)``, ``x[mask]``.

Fake tensors refuse such an op, because values decide how large its result is.  If all that decides
is known (a router's counts, what the host gave), the op is done on these values; its result has
the size that they give.

    see_sizes(values, op, args, kwargs)        # None: they are not known
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import (
    MOST,
    Known,
    all_known,
    known_of,
    real_argument,
)
from flint.frontends.torch.recording.schemas import tensors_in
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
    known = all_known(values, args, kwargs)
    if known:
        return _computed(values, op, args, kwargs, tensors[0].device, known)
    by_mask = _BY_MASK.get(op)
    return None if by_mask is None else by_mask(values, op, *args)


def _computed(
    values: Any, op: Any, args: Any, kwargs: Any, device: torch.device, known: list[Known]
) -> Any:
    with unset_fake_temporarily():
        real = op(
            *real_argument(values, list(args)),
            **{name: real_argument(values, item) for name, item in kwargs.items()},
        )
    origin = _told(known)
    alike = all(item.alike for item in known)
    results = []
    for value in tensors_in(real):
        results.append(torch.empty(value.shape, dtype=value.dtype, device=device))
        if value.numel() <= MOST:
            values[results[-1]] = Known(value, origin, alike)
    return results[0] if isinstance(real, torch.Tensor) else tuple(results)


def _told(known: list[Known]) -> str:
    origin = next((item.origin for item in known if item.origin), "")
    if origin:
        capture().assume(f"a tensor's size{at_user_line()} depends on {origin}")
    return origin


def _indexed(values: Any, op: Any, tensor: torch.Tensor, indices: Any) -> Any:
    """``tensor[mask]``: each mask selects the places where it is true."""
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            places.append(index)
            continue
        known = known_of(values, index)
        if known is None:
            return None
        _told([known])
        with unset_fake_temporarily():
            count = int(known.value.count_nonzero())
        places += [
            torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())
        ]
    return op(tensor, places)


def _selected(values: Any, op: Any, tensor: torch.Tensor, mask: torch.Tensor) -> Any:
    known = known_of(values, mask)
    if known is None:
        return None
    _told([known])
    with unset_fake_temporarily():
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        count = int(known.value.expand(shape).count_nonzero())
    return tensor.new_empty(count)


#: Op of a tensor of data -> its result, if its mask is known.
_BY_MASK = {_aten.index.Tensor: _indexed, _aten.masked_select.default: _selected}
