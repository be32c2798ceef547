"""How many elements a mask of unknown values is said to have, where the program counts them.

The idea: ``keep.nonzero()`` has as many rows as the mask is assumed to choose
(``unknown_masks.py``), so ``keep.sum().item()`` reads that number.  The most that a sum of marks
can be follows from how many there are; it is needed only where the sum is read.

    keep = scores > 0.5
    int(keep.sum()), len(keep.nonzero())            # the same
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.schemas import flat, tensors_in
from flint.frontends.torch.recording.unknown_masks import most_set_of, share_at

_aten = torch.ops.aten
_Most = tuple[int, int | None]


def read_count(tensor: torch.Tensor, at: str) -> int | None:
    """The number that a sum of an unknown mask's marks is assumed to be, which is reported.

    Args:
        tensor: an integer that the program reads.
        at: the line, as ``at_user_line`` words it.
    """
    most: _Most | None = capture().counted.get(tensor)
    if most is None:
        return None
    marks, written = most
    share, is_stated = share_at(at)
    if written is not None and not is_stated:
        words, count = "as many elements as were set in it", written
    else:
        words = "all elements, an upper bound" if share == 1.0 else f"{share:.3g} of its elements"
        count = math.ceil(share * marks)
    capture().assume(
        f"how many elements a mask chooses is read{at}: assumed to be {words} (--mask-share)"
    )
    return count


def count(op: Any, args: Any, result: Any) -> None:
    """Note what an op makes of marks, after it was done."""
    if not (capture().begins_group and args):
        return
    if op._schema.is_mutable:
        if isinstance(args[0], torch.Tensor):
            capture().counted.pop(args[0], None)
        return
    rule = _RULES.get(op)
    for tensor in () if rule is None else flat(result):
        found = None if tensor.is_floating_point() else rule(args, tensor)  # type: ignore[misc]
        if found is not None:
            capture().counted[tensor] = found


def _marks(tensor: Any) -> _Most | None:
    """The most that an element of marks or of sums can be, and what was written into all."""
    if not isinstance(tensor, torch.Tensor):
        return None
    noted: _Most | None = capture().counted.get(tensor)
    return (1, most_set_of(tensor)) if noted is None and tensor.dtype == torch.bool else noted


def _same(args: Any, _: Any) -> _Most | None:
    return _marks(args[0])


def _summed(args: Any, result: Any) -> _Most | None:
    found = _marks(args[0])
    if found is None:
        return None
    most, written = found
    each = args[0].numel() // max(result.numel(), 1)
    return most * each, None if written is None else min(written, most * each)


def _added(args: Any, _: Any) -> _Most | None:
    every = [_marks(item) for item in tensors_in(args)]
    if len(every) != 2 or None in every:
        return None
    (one, first), (other, second) = every  # type: ignore[misc]  # neither is None
    return one + other, None if first is None or second is None else first + second


#: Op -> the function that gives the most that an element of its result can be.
_RULES: Mapping[Any, Callable[[Any, Any], _Most | None]] = {
    **dict.fromkeys(
        (
            _aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.view.default,
            _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default,
            _aten.squeeze.dim, _aten.squeeze.default, _aten.squeeze.dims, _aten.alias.default,
            _aten.t.default, _aten.transpose.int, _aten.permute.default, _aten.select.int,
            _aten.slice.Tensor, _aten.unbind.int,
            # the longest of several is no longer than the most that each can be
            _aten.max.default, _aten.amax.default, _aten.min.default, _aten.amin.default,
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            _aten.sum.default, _aten.sum.dim_IntList, _aten.count_nonzero.default,
            _aten.count_nonzero.dim_IntList,
        ),
        _summed,
    ),
    _aten.add.Tensor: _added,
}  # fmt: skip
