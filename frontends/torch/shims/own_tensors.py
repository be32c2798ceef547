"""Small tensors that hold numbers of the rank: ``torch.tensor(ranks) == rank``.

The idea: PyTorch takes the rank as a plain number, and a program reads what it makes of it without
a comparison.  A function of the program's own code that takes such a number, or a tensor of whole
numbers that holds one, is called with the numbers of the other ranks as well.  What it gives them
is kept beside its tensor; a value that is read follows from the rank again.  Tensors of the device
are those of which numbers are known.

    place = (torch.tensor([8, 9]) == rank).nonzero()      # of another shape on most ranks
    place.item()                                          # 0 on rank 8, 1 on rank 9
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.context import capture
from flint.frontends.torch.evidence import Kinds
from flint.frontends.torch.modes import without_modes
from flint.frontends.torch.recording.held_numbers import Held, copied, held_of
from flint.frontends.torch.recording.known_values import known_of
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_arrays import OwnArray, known_array
from flint.frontends.torch.shims.own_calls import at_rank, holding
from flint.frontends.torch.shims.own_parts import (
    MOST_ELEMENTS,
    MOST_KINDS,
    NO_NUMBER,
    kinds_of,
    parts,
    replaced,
    told_apart,
)
from flint.frontends.torch.shims.own_questions import note_values
from flint.frontends.torch.shims.own_values import OwnWhole, everywhere, own
from flint.frontends.torch.user_lines import at_user_line, inside_torch
from flint.launching.followed_functions import METHOD

#: Larger tensors are data, as longer lists are.
_MOST, _MOST_IN_LIST, _MOST_GIVEN = 1 << 18, 16, 64
_READ = "is read from a tensor"
#: Operators that write their first operand.
_OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        "iadd", "iand", "idiv", "ifloordiv", "ilshift", "imod", "imul", "ior", "ipow", "irshift",
        "isub", "itruediv", "ixor", "setitem",
    )
)  # fmt: skip
#: Modules of PyTorch's whose functions stand for operators: ``//``, ``in``.
_WRAPPERS = ("torch._tensor", "torch.functional", "torch.overrides")
_KINDS = (torch.Tensor, FakeTensor)

#: What these make does not follow from what they are given.
_WITHOUT_VALUES = ("rand", "empty", "normal", "bernoulli", "multinomial", "dropout", "seed")
#: Values that are equal if their texts are; a storage's text reads all of it.
_WRITTEN = (str, bytes, float, complex, tuple)


def apply() -> None:
    """Let ``int()`` of a tensor follow from the rank in a program whose numbers are followed."""
    setattr(torch.Tensor, METHOD, _whole)


def _whole(tensor: torch.Tensor) -> int:
    return tensor.item() if tensor in capture().held else int(tensor)  # type: ignore[return-value]  # whole


def concerns(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the program gives a function a number of the rank, or a tensor that holds one."""
    held = capture().held
    for item in (*args, *kwargs.values()) if kwargs else args:
        if _follows(item, held):
            return _is_programs() and all(map(is_small, _tensors(args, kwargs)))
    return False


def _follows(item: Any, held: Any) -> bool:
    """Whether an argument is a number of the rank, or a tensor, a slice or a list that has one."""
    kind = type(item)
    if kind in _KINDS:
        return bool(held) and (item in held or (item._base is not None and item._base in held))
    if kind is list or kind is tuple:
        return len(item) <= _MOST_GIVEN and any(_follows(each, held) for each in item)
    if kind is slice:
        return any(isinstance(end, OwnWhole) for end in (item.start, item.stop, item.step))
    return issubclass(kind, OwnWhole) or (kind is OwnArray and holding(item) is not None)


def followed(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    run: Callable[[], Any],
) -> Any:  # fmt: skip
    """What a function gives, and what it gives the other ranks.

    Args:
        func: of PyTorch.
        args: its arguments.
        kwargs: the same.
        run: calls it.
    """
    name = str(getattr(func, "__name__", ""))
    if any(word in name for word in _WITHOUT_VALUES):
        return run()
    if _writes(name) and args and is_small(args[0]):
        written = _others(func, args, kwargs, 0, args[0])  # before it is
        result = run()
        whole = args[0]._base
        if whole is not None and is_small(whole):
            bases = tuple(item if item is None else item._base for item in written.values)
            keep(whole, replace(written, values=bases))
        keep(args[0], written)
        return result
    result = run()
    several = result if isinstance(result, list | tuple) else (result,)
    if any(isinstance(item, torch.Tensor) and not is_small(item) for item in several):
        return result
    elements = sum(item.numel() for item in several if isinstance(item, torch.Tensor))
    others = _others(func, args, kwargs, elements)
    if isinstance(result, torch.Tensor):
        keep(result, others)
    elif several and all(isinstance(item, torch.Tensor) for item in several):
        for at, item in enumerate(several):
            keep(item, others.part(at))
    else:
        return _read(name, result, others)
    return result


def _read(name: str, result: Any, others: Held) -> Any:
    """A value that is read from a tensor, or a list of them."""
    if isinstance(result, np.ndarray):
        return known_array(result, others)
    if not others.values:
        if not isinstance(result, list) or len(result) <= _MOST_IN_LIST:
            note_values(others.kinds, _READ)
    elif isinstance(result, bool):
        yes = [item is True for item in others.values]
        capture().evidence.ask(at_user_line(), np.array(yes)[others.kinds])
    elif isinstance(result, list):
        if len(set(map(_form, others.values))) > 1:
            note_values(told_apart(others.kinds, others.values, _form), "is the size of a list")
        elif len(result) <= _MOST_IN_LIST:
            return [_read(name, item, others.part(at)) for at, item in enumerate(result)]
    elif isinstance(result, int):
        numbers = [NO_NUMBER if item is None else item for item in others.values]
        values = np.array(numbers)[others.kinds]
        if values.min() == values.max():
            return result
        if not name.startswith("__"):
            return own(result, values)
        note_values(values, _READ)
    elif isinstance(result, _WRITTEN) and len(set(map(repr, others.values))) > 1:
        note_values(told_apart(others.kinds, others.values, repr), _READ)
    return result


def _others(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], elements: int,
    written: Any = None,
) -> Held:  # fmt: skip
    """What a function gives on every rank, or makes of a tensor that it writes.

    Args:
        func: the function.
        args: its arguments.
        kwargs: the same.
        elements: of what it gives here.
        written: the argument that it writes.
    """
    whole = None if written is None else written._base
    kinds, first, known = _kinds((*args, whole), kwargs)
    elements += sum(item.numel() for item in _tensors((*args, whole), kwargs))
    if not known or len(first) > MOST_KINDS or len(first) * elements > MOST_ELEMENTS:
        return Held(kinds, ())
    made: list[Any] = []
    call = torch.Tensor.clone if func is torch.Tensor.cuda else func
    with without_modes():
        drawn = torch.get_rng_state()
        for rank in first:
            given = [_at(item, rank, item is written) for item in args]
            named = {key: _at(item, rank) for key, item in kwargs.items()}
            try:
                result = call(*given[:1]) if call is not func else func(*given, **named)
                made.append(result if written is None else given[0])
            except (RuntimeError, ArithmeticError, LookupError, TypeError, ValueError):
                made.append(None)  # it would end, and asks something else there
        torch.set_rng_state(drawn)
    return Held(kinds, tuple(made))


def _kinds(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Kinds, list[int], bool]:
    """Which ranks are given the same, [world], the first of each kind, and if all is known."""
    columns, known = [], True
    for item in parts(args, kwargs):
        held = holding(item)
        if isinstance(item, torch.Tensor):
            held = held_of(item)
            known &= held is None or held.version == item._version
        if held is not None:
            columns.append(held.kinds)
            known &= bool(held.values)
        elif isinstance(item, OwnWhole):
            columns.append(np.broadcast_to(everywhere(item), world()))
    return *kinds_of(columns), known


def _at(item: Any, rank: int, written: bool = False) -> Any:
    """An argument as another rank gives it; one that is written, as a copy of all."""
    if not isinstance(item, torch.Tensor):
        return replaced(item, lambda part: _part_at(part, rank))
    found = _part_at(item, rank)
    if not written or found is None:
        return found
    return copied(found, None if item._base is None else _part_at(item._base, rank))


def _part_at(item: Any, rank: int) -> Any:
    if isinstance(item, torch.device) or (isinstance(item, str) and item.startswith("cuda")):
        return "cpu"
    if isinstance(item, torch.Tensor):
        held = held_of(item)
        return _number(item) if held is None else held.values[held.kinds[rank]]
    return at_rank(item, rank)


def keep(tensor: torch.Tensor, others: Held) -> None:
    """Remember a tensor's values on the other ranks if they differ, or are other parts of a tensor;
    shapes tell ranks apart."""
    held = capture().held
    held.pop(tensor, None)
    if type(tensor) is FakeTensor and known_of(capture().known_values, tensor) is None:
        return
    if others.values and all(_equal(item, others.values[0]) for item in others.values):
        return
    if len(set(map(_shape, others.values))) > 1:
        note_values(told_apart(others.kinds, others.values, _shape), "is the size of a tensor")
    held[tensor] = replace(others, version=tensor._version)


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    with without_modes():
        is_same = one.dtype == other.dtype and one.storage_offset() == other.storage_offset()
        return is_same and torch.equal(one, other)


def _shape(tensor: torch.Tensor | None) -> str:
    return "" if tensor is None else str(tuple(tensor.shape))


def _form(item: Any) -> str:
    """The lengths of lists of lists."""
    return f"[{','.join(map(_form, item))}]" if isinstance(item, list) else "."


def _writes(name: str) -> bool:
    """Whether a method writes its tensor."""
    return name in _OPERATORS or (name.endswith("_") and not name.endswith("__"))


def is_small(item: Any) -> bool:
    """Whether it is a small tensor of whole numbers, of the host or known."""
    if type(item) not in _KINDS or item.numel() > _MOST:
        return False
    if item.is_floating_point() or item.is_complex():
        return False
    return item.device.type == "cpu" if type(item) is torch.Tensor else _number(item) is not item


def _number(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's value on the host, as far as it is known."""
    known = known_of(capture().known_values, tensor) if type(tensor) is FakeTensor else None
    return tensor if known is None else known.value


def _tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    return (item for item in parts(args, kwargs) if isinstance(item, torch.Tensor))


def _is_programs() -> bool:
    """Whether the program's own code calls."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and _is_between(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return not inside_torch(frame)


def _is_between(module: str) -> bool:
    return module.startswith("flint.") or module in _WRAPPERS
