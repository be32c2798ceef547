"""Tables with an item for each rank: ``sizes[rank]``, ``table.get(rank)``, ``parts[rank::world]``.

The idea: Python reads a list or a dict by the number, without a comparison.  The items that other
ranks read are in the same table: numbers make a number that knows its value on every rank, and
ranks that read items of other forms are distinguished.  Tensors of one form, groups, and devices
that differ in their numbers only are alike.

    OwnRank(0, np.arange(4)).followed_at([8, 8, 16, 8])     # 8 here, and 16 on rank 2
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from flint.frontends.torch.context import capture
from flint.frontends.torch.evidence import Kinds
from flint.frontends.torch.modes import without_modes
from flint.frontends.torch.recording.held_numbers import Held
from flint.frontends.torch.recording.known_values import known_of
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_calls import spread
from flint.frontends.torch.shims.own_parts import MOST_ELEMENTS
from flint.frontends.torch.shims.own_questions import FEW_VALUES, note_values
from flint.frontends.torch.shims.own_tensors import is_small, keep
from flint.frontends.torch.shims.own_values import OwnText, OwnWhole, everywhere, own
from flint.frontends.torch.shims.own_words import OwnWords
from flint.frontends.torch.user_lines import at_user_line

#: Larger tensors and arrays are data, not tables; so are longer parts of lists.
_MOST, _MOST_OF_PART = 1 << 16, 64
#: Up to this many numbers of a part of a list, or of a loop, are followed one by one.
_MOST_FOLLOWED = 16

_ITEM = "picks an item that differs among ranks"
_TIMES = "is a number of rounds"
_WRITTEN = "is the place where a list is written"
_PART = "picks a part of a list that differs among ranks"

#: What another rank reads that is not there.
_MISSING = object()
#: The form of groups and meshes: those that a rank is not in look unlike its own.
_GROUP = "group"


def _looked_up(index: Any, container: Any) -> Any:
    """``container[index]``."""
    kind: Any = type(container)
    read = _READERS.get(getattr(kind, "__getitem__", None))
    if read is None:
        if not isinstance(container, torch.Tensor):
            note_values(_values(index), _ITEM)
        return container[index]
    item = container[_plain(index)]
    return _among(item, index, functools.partial(read, container))


def _looked_up_or(index: Any, get: Any, default: Any = None) -> Any:
    """``container.get(index, default)``, from the bound method."""
    container: Any = getattr(get, "__self__", None)
    if getattr(type(container), "get", None) is not dict.get:
        return get(index, default)
    item = get(_plain(index), default)
    return _among(item, index, lambda at: dict.get(container, at, default))


def _part_of(_: Any, container: Any, part: slice) -> Any:
    """``container[part]``."""
    found = container[part]
    kind = getattr(type(container), "__getitem__", None)
    if kind not in (*_LISTS, range.__getitem__, np.ndarray.__getitem__):
        return found
    ends = [_at_each(end) for end in (part.start, part.stop, part.step)]
    parts: dict[tuple[Any, ...], int] = {}
    which = np.array([parts.setdefault(key, len(parts)) for key in zip(*ends, strict=True)])
    others: list[Sequence[Any]] = [() if key[2] == 0 else container[slice(*key)] for key in parts]
    lengths = {len(each) for each in others}
    followed = len(lengths) == 1 and 0 < len(found) <= _MOST_FOLLOWED
    if kind in _LISTS and followed and _are_numbers(*others):
        return type(container)(
            own(item, np.array(column)[which])
            for item, column in zip(found, zip(*others, strict=True), strict=True)
        )
    if followed and isinstance(found, np.ndarray) and found.dtype.kind in "biuf":
        return spread(found, Held(which, tuple(map(_copied, others))))
    tensors = kind in _LISTS and any(isinstance(item, torch.Tensor) for item in found[:1])
    forms = [
        _form_of(each) if tensors or len(each) <= _MOST_OF_PART else len(each) for each in others
    ]
    if len(set(forms)) > FEW_VALUES and not tensors:
        forms = [len(each) for each in others]  # data, of which every rank has its own
    _distinguish(forms, which, _PART)
    return found


def _picked_of(items: Any, ends: tuple[Any, ...]) -> Iterator[Any]:
    """``islice(items, *ends)``: of a list as a part of it; else parameters tell ranks apart."""
    part = slice(*ends)
    if isinstance(items, list | tuple | range):
        yield from _part_of(None, items, part)
        return
    forms: list[Any] = []

    def passing() -> Iterator[Any]:
        for item in items:
            if len(forms) < _MOST_OF_PART:
                named = item[-1] if isinstance(item, tuple) and item else item
                forms.append(_form_of(named) if isinstance(named, torch.nn.Parameter) else None)
            yield item

    yield from islice(passing(), *map(_plain, ends))
    if any(forms):
        each = zip(*map(_at_each, (part.start, part.stop, part.step)), strict=True)
        picked = [tuple(forms[slice(*key)]) for key in each]
        _distinguish(picked, np.arange(world()), _PART)


def note_picked(tensor: torch.Tensor, index: Any) -> None:
    """``tensor[index]`` of whole numbers, where the index follows from the rank."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.numel() > _MOST:
        return
    known = known_of(capture().known_values, tensor)
    if known is not None:
        # Only what is read is made a number: a sampler picks each of 50,000 indices in turn.
        with without_modes():
            rows = known.value.numpy()
        _among(None, index, functools.partial(_of_numbers, rows))


def _written(index: Any, container: Any) -> None:
    """``container[index] = item``: a list does not know what the others' have there."""
    kind = type(container)
    if kind in (list, np.ndarray) and len(container) <= max(_MOST_OF_PART, world()):
        capture().unseen.add(f"the own rank {_WRITTEN}{at_user_line()}")


def _among(item: Any, index: Any, read: Callable[[int], Any]) -> Any:
    """The item, with the values that other ranks read or the evidence that they differ."""
    distinct, which = np.unique(_values(index), return_inverse=True)
    key: Callable[[int], Any] = str if isinstance(index, str) else int
    items = [read(key(at)) for at in distinct.tolist()]
    if isinstance(item, np.ndarray | np.number) and _are_arrays(items):
        return spread(item, Held(which, tuple(map(_copied, items))))
    if type(item) is torch.Tensor and all(map(_is_plain_tensor, items)):
        with without_modes():
            made = item.view(item.shape)  # the item may be used without the rank, too
        keep(made, Held(which, tuple(items)))
        return made
    there = [each for each in items if each is not _MISSING]
    if item is not None and _are_numbers(there) and _are_numbers([item]):
        present = np.array([each is not _MISSING for each in items])
        _distinguish(present.tolist(), which, _ITEM)
        filled = [item if each is _MISSING else each for each in items]
        return own(item, _column(filled, which))
    _distinguish([_form_of(each) for each in items], which, _ITEM)
    return item


def _loop(_: Any, *ends: Any) -> Sequence[int]:
    """``range(*ends)``, to be gone over."""
    first, last, step = (*((0,) if len(ends) == 1 else ()), *ends, 1)[:3]
    found = range(*map(_plain, ends))
    firsts, lasts, steps = (
        np.broadcast_to(everywhere(end), world()) for end in (first, last, step)
    )
    with np.errstate(divide="ignore"):  # it fails on the rank whose step is 0
        note_values(np.maximum(-((firsts - lasts) // steps), 0), _TIMES)
    if len(found) > _MOST_FOLLOWED:
        return found
    return [own(at, firsts + place * steps) for place, at in enumerate(found)]


def _values(index: Any) -> Any:
    """The numbers that it is on every rank, [world]."""
    return index.values if isinstance(index, OwnText) else everywhere(index)


def _plain(index: Any) -> Any:
    """A number or a text without the values of other ranks."""
    if isinstance(index, str):
        return str.__str__(index)
    return index.plain.__pos__(index) if hasattr(index, "plain") else index


def _column(items: list[Any], which: Kinds) -> Any:
    """The value on every rank of numbers that may themselves follow from the rank."""
    values = [everywhere(each) for each in items]
    if all(np.ndim(each) == 0 for each in values):
        return np.array(values)[which]
    return np.array([np.broadcast_to(values[at], world())[rank] for rank, at in enumerate(which)])


def _distinguish(forms: Sequence[Any], which: Kinds, how: str) -> None:
    if _GROUP in forms:
        return
    numbers: dict[Any, int] = {}
    kinds = np.array([numbers.setdefault(form, len(numbers)) for form in forms])
    if len(numbers) > 1:
        note_values(kinds[which], how)


def _are_numbers(*many: Sequence[Any]) -> bool:
    return all(type(item) in (int, float) for items in many for item in items)


def _at_each(end: Any) -> list[Any]:
    values = everywhere(end)
    return [values] * world() if values is None else np.broadcast_to(values, world()).tolist()


def _form_of(item: Any) -> Any:
    """What of an item decides what a rank does: equal for items that are alike."""
    if isinstance(item, torch.Tensor):
        return "tensor", tuple(item.shape), item.dtype, item.device.type
    if isinstance(item, dist.ProcessGroup | DeviceMesh):
        return _GROUP
    if isinstance(item, torch.device):
        return "device", item.type
    if isinstance(item, str):
        name, _, number = item.partition(":")
        return ("device", name) if name == "cuda" and number.isdecimal() else str.__str__(item)
    if isinstance(item, dict):
        return tuple((_form_of(key), _form_of(value)) for key, value in item.items())
    if isinstance(item, list | tuple):
        return tuple(map(_form_of, item))
    if isinstance(item, np.ndarray):
        content = item.tolist() if item.dtype.kind in "iu" and item.size <= _MOST_FOLLOWED else ()
        return "array", item.shape, item.dtype, _form_of(content)
    if item is None or isinstance(item, int | float | bytes):
        return type(item), item
    return id(item)


def _of_sequence(items: Sequence[Any], at: int) -> Any:
    return items[at] if -len(items) <= at < len(items) else _MISSING


def _of_numbers(rows: Any, at: int) -> Any:
    row = _of_sequence(rows, at)
    return row if row is _MISSING else row.tolist()


def _of_dict(items: dict[Any, Any], at: int) -> Any:
    return items.get(at, _MISSING)


def _of_array(items: Any, at: int) -> Any:
    row = _of_sequence(items, at)
    kept = row is _MISSING or row.dtype.kind in "biuf"
    return row if kept and row is not None else row.tolist() if row.size <= _MOST else row.shape


def _are_arrays(items: Sequence[Any]) -> bool:
    """Whether all are arrays of numbers, few enough to be followed."""
    there = [item for item in items if item is not _MISSING]
    kinds = isinstance(there[0], np.ndarray | np.number) if there else False
    return (
        kinds
        and all(isinstance(item, np.ndarray | np.number) for item in there)
        and all(item.dtype.kind in "biuf" for item in there)
        and max(item.size for item in there) <= max(_MOST_OF_PART, world())
        and sum(item.size for item in there) <= MOST_ELEMENTS
    )


def _is_plain_tensor(item: Any) -> bool:
    """Whether it is a small tensor of the host's of whole numbers."""
    return type(item) is torch.Tensor and is_small(item)


def _copied(item: Any) -> Any:
    return None if item is _MISSING else item.copy()


_LISTS = (list.__getitem__, tuple.__getitem__)
#: How a class reads an item -> what another rank would read.
_READERS: dict[Any, Callable[[Any, int], Any]] = {
    **dict.fromkeys(_LISTS, _of_sequence),
    dict.__getitem__: _of_dict,
    np.ndarray.__getitem__: _of_array,
    **dict.fromkeys((str.__getitem__, bytes.__getitem__, range.__getitem__), _of_sequence),
}

for _kind in (OwnWhole, OwnText, OwnWords):
    _kind.followed_at, _kind.followed_at_or = _looked_up, _looked_up_or
OwnWhole.followed_part, OwnWhole.followed_loop = _part_of, _loop
OwnWhole.followed_put = _written
OwnWhole.followed_slice = staticmethod(_picked_of)
