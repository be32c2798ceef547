"""Integers and bools in memory that nothing has written: 0, with a warning where one is used.

The idea: ``torch.empty`` of integers is written before it is read (an inverse permutation), as a
rule.  So beside its known value, zeros, are marks of the elements that nothing has written.  A view
has a view of the marks, and an op that only writes takes those of the elements that it writes away.
What is read with a mark follows from unwritten memory.

    places = torch.empty_like(order); places[order] = torch.arange(8)      # has no mark any more
    counts = torch.empty(4, dtype=torch.int64); counts[:2] = 5
    counts.sum().item()                                                    # 10, which is reported
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_aten = torch.ops.aten

#: The origin of what is read of such memory.
ORIGIN = "memory that nothing has written, taken as 0"

#: Ops that write their first operand without reading it -> which argument has the new elements.
_WRITERS: Mapping[Any, int] = {
    _aten.zero_.default: 1,  # it has none
    **dict.fromkeys((_aten.copy_.default, _aten.fill_.Scalar, _aten.fill_.Tensor), 1),
    **dict.fromkeys(
        (
            _aten.masked_fill_.Scalar, _aten.masked_fill_.Tensor, _aten.masked_scatter_.default,
            _aten.index_put_.default,
        ),
        2,
    ),
    **dict.fromkeys(
        (
            _aten.index_copy_.default, _aten.index_fill_.int_Scalar, _aten.index_fill_.int_Tensor,
            _aten.scatter_.src, _aten.scatter_.value,
        ),
        3,
    ),
}  # fmt: skip


def unwritten(value: torch.Tensor) -> torch.Tensor:
    """The marks of new memory, a real tensor, whose elements become 0."""
    value.zero_()
    return torch.ones_like(value, dtype=torch.bool)


def keeps_marks(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether an op leaves the marks in its first operand: it is a view of it, or only writes."""
    if op is _aten.index_put_.default:
        return len(args) < 4 or not args[3]  # it accumulates
    if op is _aten.view.dtype:
        return False
    return op in _WRITERS or bool(getattr(op, "is_view", False))


def marks_of(op: Any, marks: torch.Tensor, args: tuple[Any, ...], kwargs: Any) -> Any:
    """The marks of what such an op gives, from those of its first operand.

    Args:
        args: the real arguments.
    """
    place = _WRITERS.get(op, len(args))
    new = [
        torch.zeros_like(item, dtype=torch.bool) if isinstance(item, torch.Tensor) else False
        for item in args[place : place + 1]
    ]
    return op(marks, *args[1:place], *new, *args[place + 1 :], **kwargs)
