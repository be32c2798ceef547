"""Values of tensors as their elements lie in memory, which is what a kernel's indices are of.

memory = memory_of(tensor, known, 0)        # of a tensor that is read
memory.elements[index]
known_in(tensor, memory, origins)           # of one that is written
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.recording.known_values import Known, following_from, own_elements


@dataclass(slots=True)
class Memory:
    """A buffer in memory.

    Attributes:
        elements: as they lie there.
        is_set: which of them are known.
        sources: numbers of the tensors that they follow from.
    """

    elements: torch.Tensor
    is_set: torch.Tensor
    sources: frozenset[int] = frozenset()


def memory_of(tensor: torch.Tensor, known: Known, number: int) -> Memory:
    """The memory of a tensor of known value, which is a source of this number."""
    dims = _dims(tensor)
    span = _span(dims)
    elements = torch.zeros(span, dtype=tensor.dtype)
    is_set = torch.zeros(span, dtype=torch.bool)
    value = known.value[tuple(slice(size) for size, _ in dims)]
    _laid_out(elements, dims).copy_(value)
    _laid_out(is_set, dims).fill_(True)
    if known.marks is not None:
        _laid_out(is_set, dims).logical_and_(~known.marks)
    return Memory(elements, is_set, frozenset((number,)))


def known_in(tensor: torch.Tensor, memory: Memory, origins: list[Known]) -> Known:
    """What is known of a tensor, from its memory."""
    dims = _dims(tensor)
    span = _span(dims)
    elements, is_set = memory.elements, memory.is_set
    if span > elements.numel():
        elements, is_set = (torch.cat([item, item.new_zeros(span - item.numel())])
                            for item in (elements, is_set))  # fmt: skip
    value = _laid_out(elements, dims).expand(tensor.shape)
    marks = ~_laid_out(is_set, dims)
    return replace(following_from(origins, value), marks=marks if bool(marks.any()) else None)


def _dims(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides; of a dim whose elements share memory, one element."""
    return [(size if step else min(size, 1), step) for size, step in
            zip(tensor.shape, tensor.stride(), strict=True)]  # fmt: skip


def _span(dims: list[tuple[int, int]]) -> int:
    """How many elements lie between the first one and the last, with these."""
    is_empty = any(size == 0 for size, _ in dims)
    return 0 if is_empty else 1 + sum((size - 1) * step for size, step in dims)


def _laid_out(elements: torch.Tensor, dims: list[tuple[int, int]]) -> torch.Tensor:
    return elements.as_strided([size for size, _ in dims], [step for _, step in dims])


def before(tensor: torch.Tensor) -> dict[int, tuple[torch.Tensor, Known]]:
    """What is known of a tensor that a kernel will write, and of those that share its memory; empty
    if one element of it stands for several.
    """
    values = capture().known_values
    if tensor not in values or not own_elements(values, tensor):
        return {}
    return {id(item): (item, values[item]) for item in values.sharing(tensor)}


def note(tensor: torch.Tensor, known: Known, known_before: Any) -> None:
    """Note what is known of a tensor that a kernel has written.

    Args:
        known_before: what ``before`` has returned.
    """
    values = capture().known_values
    _, old = known_before.get(id(tensor), (tensor, None))
    if old is None:
        if known.marks is None:
            values[tensor] = known
        return
    with_real_tensors(_rewrite)(old, known)
    for item, other in known_before.values():
        values[item] = other
    values[tensor] = replace(known, value=old.value, marks=old.marks)


def _rewrite(old: Known, new: Known) -> None:
    old.value.copy_(new.value)
    if old.marks is not None:
        old.marks.copy_(torch.zeros_like(old.marks) if new.marks is None else new.marks)
