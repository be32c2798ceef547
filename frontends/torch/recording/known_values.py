"""Values of small tensors that a capture knows, and the arithmetic on them.

known_value(counts.cumsum(0))       # where all that an op takes is known, it is done
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.schemas import rule_of, tensors_in, written_tensors
from flint.frontends.torch.recording.unwritten import ORIGIN, keeps_marks, marks_of, unwritten

#: Larger tensors of integers are data, not counts.
MOST = 1 << 18
#: The same for tensors whose elements are all equal.
_MOST_ALIKE = 1 << 22
#: The same for marks of a router's choices, which have an element for each token and expert.
MOST_CHOSEN = 1 << 25

#: Ops whose result has no values yet.  Whole numbers in it are marked as unwritten; floats of
#: unknown values are not followed.
_UNSET = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("empty_like", "new_empty", "new_empty_strided")
)


@dataclass(frozen=True, slots=True)
class Known:
    """The knowledge about a tensor's value.

    Attributes:
        value: the value, on the CPU; views of one tensor are views of one value.
        origin: which count it follows from; "" when it is exact.
        alike: it is the same on every rank.
        chosen: it marks a router's choices, or follows from such marks.
        marks: which elements nothing has written, if not all are (``unwritten.py``).
    """

    value: torch.Tensor
    origin: str = ""
    alike: bool = True
    chosen: bool = False
    marks: torch.Tensor | None = None


def known_of(values: Any, tensor: torch.Tensor) -> Known | None:
    """The knowledge about a tensor's value; a real host tensor is its own value."""
    found = read(values, tensor)
    if found is None and is_real(tensor) and tensor.numel() <= MOST:
        return Known(tensor, alike=False)
    return found


def read(values: Any, tensor: torch.Tensor) -> Known | None:
    """What is known of a tensor that is read: unwritten memory in it is 0, and its origin."""
    known: Known | None = values.get(tensor)
    if known is None or known.marks is None:
        return known
    with unset_fake_temporarily():
        is_unwritten = bool(known.marks.any())
    origin = ORIGIN if is_unwritten else known.origin
    return replace(known, origin=origin, marks=None)


def is_followed(tensor: torch.Tensor) -> bool:
    """Floats are only followed in a whole program; what a step function gets stands for others."""
    return capture().begins_group or not tensor.is_floating_point()


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a real integer tensor of the host (of a whole program)."""
    return is_real(tensor) and not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def is_real(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of the host (of a whole program), and its memory has its values."""
    host = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    return host and not is_overwritten(tensor)


def is_overwritten(tensor: torch.Tensor) -> bool:
    """Whether the device has written a real tensor of the host; its memory holds old values."""
    overwritten = capture().overwritten
    return bool(overwritten) and tensor.untyped_storage()._cdata in overwritten


def value_of(tensor: torch.Tensor) -> tuple[Any, str] | None:
    """The value of a tensor of one element and the count that it follows from, if known."""
    known = read(capture().known_values, tensor)
    if known is None:
        return None
    with unset_fake_temporarily():
        return known.value.item(), known.origin


def known_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor's value on the CPU; None if not known."""
    known = read(capture().known_values, tensor)
    return None if known is None else known.value


def know(tensor: torch.Tensor, element: torch.Tensor, origin: str) -> None:
    """Note that all elements of a tensor have this value, from ``origin``, on every rank."""
    if tensor.numel() <= _MOST_ALIKE:
        capture().known_values[tensor] = Known(element.expand(tensor.shape), origin)


def given(tensor: torch.Tensor) -> None:
    """Note that a real tensor's value is known and the same on every rank."""
    if tensor.numel() <= _MOST_ALIKE:
        capture().known_values[tensor] = Known(tensor)


def follow(values: Any, op: Any, args: Any, kwargs: Any, result: Any, known: list[Known]) -> None:
    """Run an op on known values if all inputs are known; forget overwritten values.

    Args:
        known: the knowledge about all inputs, before the op.
    """
    written = list(_written(op, args, kwargs))
    is_known = bool(known) and torch.Tag.nondeterministic_seeded not in op.tags
    is_known = is_known and not (op in _UNSET and result.is_floating_point())
    most = most_elements(known)
    is_known = is_known and any(item.numel() <= most for item in (*written, *tensors_in(result)))
    if not is_known or not all(own_elements(values, item) for item in written):
        for tensor in written:
            forget(values, tensor)
        return
    for tensor in written:  # a real tensor of the host gets the value here
        capture().overwritten.pop(tensor.untyped_storage()._cdata, None)
    with unset_fake_temporarily():
        real = (
            real_argument(values, args),
            {key: real_argument(values, x) for key, x in kwargs.items()},
        )
        computed = op(*real[0], **real[1])
        if op in _UNSET:
            values[result] = Known(computed, marks=unwritten(computed))
            return
        marked = () if known[0].marks is None else marks_of(op, known[0].marks, *real)
        for item in _outs(op, kwargs):
            marks = values[item].marks if item in values else None
            if marks is not None:
                marks.zero_()
    parts = zip_longest(tensors_in(result), tensors_in(computed), tensors_in(marked))
    for tensor, value, marks in parts:
        if value.numel() <= most:
            values[tensor] = replace(following_from(known, value), marks=marks)


def most_elements(known: list[Known]) -> int:
    """The most elements of a result that is followed."""
    return MOST_CHOSEN if any(item.chosen for item in known) else MOST


def following_from(known: list[Known], value: torch.Tensor) -> Known:
    """The knowledge about a result of known tensors."""
    origin = next((item.origin for item in known if item.origin), "")
    alike, chosen = all(item.alike for item in known), any(item.chosen for item in known)
    return Known(value, origin, alike, chosen)


def all_known(values: Any, op: Any, args: Any, kwargs: Any) -> list[Known]:
    """The knowledge about all tensors that an op takes; empty if one of them is not known."""
    found: list[Known] = []
    unread = list(_outs(op, kwargs))
    if args and keeps_marks(op, args):
        unread.append(args[0])
    for tensor in tensors_in((*args, *kwargs.values())):
        is_unread = any(tensor is item for item in unread)
        known = values.get(tensor) if is_unread else None
        known = known or known_of(values, tensor)
        if known is None:
            return []
        found.append(known)
    return found


def _outs(op: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an op writes as a whole: ``torch.cumsum(counts, 0, out=ends)``."""
    for name in rule_of(op).written_kwargs:
        yield from tensors_in(kwargs.get(name))


def own_elements(values: Any, tensor: torch.Tensor) -> bool:
    """Whether a known value has an element for each of the tensor's; where one element serves all,
    it cannot be written."""
    known = values.get(tensor)
    if known is None:
        return True
    return bool(known.value.untyped_storage().nbytes() >= tensor.untyped_storage().nbytes())


def _written(op: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an op writes; for ops of c10d, all arguments."""
    yield from (
        tensors_in(args)
        if op.namespace == "c10d"
        else written_tensors(rule_of(op), args, kwargs, [])
    )


def undefer(op: Any, args: Any, kwargs: Any) -> None:
    """What an op writes has another value than the deferred one."""
    if op._schema.is_mutable or op.namespace == "c10d":
        for tensor in _written(op, args, kwargs):
            for noted in (capture().deferred, capture().most_set):
                for other in noted.sharing(tensor):
                    del noted[other]


def forget(values: Any, tensor: torch.Tensor) -> None:
    """A tensor is written: it and the tensors that share its storage are no longer known."""
    for other in values.sharing(tensor):
        del values[other]


def real_argument(values: Any, item: Any) -> Any:
    """An argument of known tensors, with their values in place of them, on the CPU."""
    if isinstance(item, torch.Tensor):
        known = values.get(item) or known_of(values, item)
        assert known is not None
        return known.value
    if isinstance(item, torch.device):
        return torch.device("cpu")
    if isinstance(item, list | tuple):
        return type(item)(real_argument(values, part) for part in item)
    return item
