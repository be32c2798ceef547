"""Integers in memory that nothing has written: 0, which is reported where it decides something.

The idea: ``torch.empty`` of integers is written before it is read (an inverse permutation), as a
rule.  So its known value holds marks, numbers that no program uses, and an op that only writes
keeps those of other elements.  What is read with a mark in it is 0, and follows from unwritten
memory.

    places = torch.empty_like(order); places[order] = torch.arange(8)      # has no mark any more
    counts = torch.empty(4, dtype=torch.int64); counts[:2] = 5
    counts.sum().item()                                                    # 10, which is reported
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

_aten = torch.ops.aten

#: The origin of what is read of such memory.
ORIGIN = "memory that nothing has written, taken as 0"

_MARKS = {
    torch.int16: -0x7A3B,
    torch.int32: -0x7A3B5C1D,
    torch.int64: -0x7A3B5C1D2E4F6071,
}

#: Ops that write their first operand without reading it.
_WRITERS = frozenset(
    (
        _aten.copy_.default, _aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default,
        _aten.index_copy_.default, _aten.index_fill_.int_Scalar, _aten.index_fill_.int_Tensor,
        _aten.masked_fill_.Scalar, _aten.masked_fill_.Tensor, _aten.masked_scatter_.default,
        _aten.scatter_.src, _aten.scatter_.value,
    )
)  # fmt: skip


def marked(value: torch.Tensor) -> bool:
    """Mark new memory, a real tensor; whether its type has a mark (others hold 0)."""
    mark = _MARKS.get(value.dtype)
    value.fill_(mark or 0)
    return mark is not None


def cleared(value: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """A value with 0 in place of its marks, and whether it had any; written in place, so that
    views of it have the same."""
    mark = _MARKS.get(value.dtype)
    if mark is None:
        return value, False
    with unset_fake_temporarily():
        marks = value == mark
        if not bool(marks.any()):
            return value, False
        is_repeated = 0 in value.stride() and value.numel() > 1
        return (value.masked_fill(marks, 0) if is_repeated else value.masked_fill_(marks, 0)), True


def keeps_marks(op: object, args: tuple[object, ...]) -> bool:
    """Whether an op leaves the marks in its first operand: it is a view of it, or only writes."""
    if op is _aten.index_put_.default:
        return len(args) < 4 or not args[3]  # it accumulates
    if op is _aten.view.dtype:
        return False
    return op in _WRITERS or bool(getattr(op, "is_view", False))
