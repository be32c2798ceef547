"""Functions of Python's and NumPy's that a program gives its rank: ``np.array([rank])``.

The idea: C code takes a rank as a plain number, and what it makes of it no longer knows the rank.
So the function is called with the numbers of the other ranks as well, and its result knows theirs:
a number, a text, an array.  Where that cannot be (an iterator, bytes, too many ranks), the ranks
that give it different numbers are told apart instead.

    called(np.full, (2, rank), {})       # an array of 3 here, which knows that it is 5 on rank 5
"""

from __future__ import annotations

import argparse
import re
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from flint.capturing.user_frames import is_programs
from flint.frontends.torch.recording.held_numbers import Held
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_arrays import OwnArray, known_array, own_number
from flint.frontends.torch.shims.own_parts import (
    MOST_ELEMENTS,
    MOST_KINDS,
    NO_NUMBER,
    kinds_of,
    parts,
    replaced,
    told_apart,
)
from flint.frontends.torch.shims.own_paths import THINGS, kind_of
from flint.frontends.torch.shims.own_questions import ask, note_values
from flint.frontends.torch.shims.own_values import OwnText, _Own, everywhere, own
from flint.frontends.torch.shims.own_words import OwnWords

_GIVEN = "is given to a function that is not followed"
_LENGTH = "is the size of a list"
#: What may be called again with other ranks' numbers belongs to one of these, or to nothing.
_FIXED = (
    str, bytes, int, float, type, ModuleType, np.ufunc, np.generic, re.Pattern, string.Template,
    argparse.ArgumentParser, PurePath,
)  # fmt: skip
#: Functions that write their first argument, or go over it at the program's pace.
_WRITING = frozenset(
    ("copyto", "delitem", "enumerate", "eval", "fill", "fill_diagonal", "insort", "insort_left",
     "insort_right", "pack_into", "partition", "place", "put", "put_along_axis", "putmask",
     "resize", "setfield", "setitem", "sort")
)  # fmt: skip
#: What holds it on every rank.
_HELD = (OwnArray, *THINGS)
#: More different ranks' numbers and texts are not computed one by one.
_MOST_NUMBERS = 1 << 16
#: Longer texts are messages.
_LONGEST = 256
#: Errors of a call on another rank, which asks something else there or ends.
_FAILS = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError,
    ValueError, SyntaxError, SystemExit,
)  # fmt: skip


def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a function gives, which knows what it gives the other ranks."""
    given = [*parts(args, kwargs), owner_of(function)]
    columns = [column for column in map(_column, given) if column is not None]
    if not columns or any(hasattr(item, "write") for item in given):  # of a file: is not followed
        return _call(function, args, kwargs, _plain)
    kinds, first = kinds_of(columns)
    if "out" in kwargs or not _may_repeat(function, given):
        return _writing(function, args, kwargs, kinds, first)
    result = _call(function, args, kwargs, _plain)
    if isinstance(result, str) and not isinstance(result, np.generic):
        if len(result) > _LONGEST:
            return result
        return OwnWords(result, lambda: _texts(function, args, kwargs, kinds, first))
    kind = kind_of(result)
    if kind is not None:
        return kind(result, lambda: _others(function, args, kwargs, kinds, first, 1))
    return spread(result, _others(function, args, kwargs, kinds, first, _elements(result)))


def _may_repeat(function: Any, given: Sequence[Any]) -> bool:
    """Whether a call changes nothing."""
    owner = owner_of(function)
    if not (owner is None or isinstance(owner, _FIXED) or _column(owner) is not None):
        return False
    if isinstance(function, FunctionType) and is_programs(function.__code__.co_filename):
        return False
    if getattr(function, "__name__", "") in _WRITING or _module(function) == "itertools":
        return False
    return not any(hasattr(item, "__next__") or isinstance(item, FunctionType) for item in given)


def _module(function: Any) -> str:
    return str(getattr(function, "__module__", ""))


def _texts(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Any,
    first: list[int],
) -> Any:  # fmt: skip
    made = [_attempt(function, args, kwargs, rank) for rank in first]
    return np.array(["" if text is None else text for text in made])[kinds]


def spread(result: Any, others: Held) -> Any:
    """A result that knows what it is on the other ranks.

    Args:
        result: on this rank.
        others: on all of them.
    """
    if isinstance(result, np.ndarray):
        return known_array(result, others)
    values = others.values
    if not values:
        note_values(others.kinds, _GIVEN)
    elif isinstance(result, bool | np.bool_):
        ask(np.array([bool(item) for item in values])[others.kinds])
    elif isinstance(result, int | float | np.integer | np.floating):
        numbers = np.array([NO_NUMBER if item is None else item for item in values])
        if len(set(numbers.tolist())) > 1:
            number = own_number if isinstance(result, np.generic) else own
            return number(result, numbers[others.kinds])
    elif isinstance(result, str):
        texts = np.array(["" if item is None else str(item) for item in values])
        if len(set(texts.tolist())) > 1:
            return OwnWords(result, texts[others.kinds])
    elif isinstance(result, list | tuple) and result:
        return _spread_list(result, others)
    elif type(result) is dict and all(_has_keys(item, result) for item in values):
        return {key: spread(item, others.part(key)) for key, item in result.items()}
    elif type(result) is argparse.Namespace:
        every = tuple(None if item is None else vars(item) for item in values)
        return argparse.Namespace(**spread(vars(result), Held(others.kinds, every)))
    else:
        kinds = told_apart(others.kinds, values, repr)
        if kinds.min() != kinds.max():
            note_values(kinds, _GIVEN)
    return result


def _has_keys(item: Any, result: Any) -> bool:
    return item is None or (type(item) is dict and item.keys() == result.keys())


def _spread_list(result: Any, others: Held) -> Any:
    lengths = {len(item) for item in others.values if item is not None}
    if len(lengths) > 1 or any(item is None for item in others.values):
        note_values(told_apart(others.kinds, others.values, _length), _LENGTH)
        return result
    made = [spread(item, others.part(at)) for at, item in enumerate(result)]
    if all(one is other for one, other in zip(made, result, strict=True)):
        return result
    if isinstance(result, list):
        return made
    return type(result)(*made) if hasattr(result, "_fields") else tuple(made)


def _length(item: Any) -> str:
    return "" if item is None else str(len(item))


def _writing(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Any,
    first: list[int],
) -> Any:  # fmt: skip
    """A call that may not be repeated: it tells ranks apart.  If it writes an array, the others'
    arrays are written too."""
    outs = kwargs.get("out", args[0] if args else None)
    outs = outs if isinstance(outs, tuple) else (outs,)
    known = all(isinstance(out, OwnArray) and out.writes(kinds) for out in outs)
    result = _call(function, args, kwargs, _plain)
    if not known:
        note_values(kinds, _GIVEN)
    for rank in first if known else ():
        _attempt(function, args, kwargs, rank)
    if kwargs.get("out") is None:
        return result
    return outs[0] if len(outs) == 1 else outs


def _others(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Any,
    first: list[int], elements: int,
) -> Held:  # fmt: skip
    """What a function gives on every rank; nothing where that is too much."""
    if _is_of_numbers(function, args, kwargs):
        found = function(*map(everywhere, args))
        return Held(np.arange(world()), tuple(np.broadcast_to(found, world()).tolist()))
    arrays = [item for item in parts(args, kwargs) if isinstance(item, np.ndarray)]
    most = MOST_KINDS if arrays or elements > 1 else _MOST_NUMBERS
    held = all(others.values for others in map(holding, arrays) if others is not None)
    if len(first) > most or len(first) * elements > MOST_ELEMENTS or not held:
        return Held(kinds, ())
    made = [_attempt(function, args, kwargs, rank) for rank in first]
    if not any(map(_holds, parts(args, kwargs))):
        made = [replaced(item, _unshared) for item in made]  # not a part of this rank's own array
    return Held(kinds, tuple(made))


def _unshared(item: Any) -> Any:
    return item.copy() if isinstance(item, np.ndarray) and item.base is not None else item


def _is_of_numbers(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether it computes one of NumPy's numbers of numbers, and so an array of arrays."""
    is_type = isinstance(function, type) and issubclass(function, np.number)
    ufunc = function if isinstance(function, np.ufunc) else owner_of(function)
    is_ufunc = isinstance(ufunc, np.ufunc) and ufunc.nout == 1
    is_ufunc = is_ufunc and getattr(function, "__name__", "") in (ufunc.__name__, "__call__")
    numbers = all(isinstance(item, int | float | np.number) for item in args)
    return (is_type or is_ufunc) and not kwargs and bool(args) and numbers


def _attempt(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], rank: int
) -> Any:
    try:
        with np.errstate(all="ignore"):
            return _call(function, args, kwargs, lambda item: at_rank(item, rank))
    except _FAILS:
        return None


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
    part: Callable[[Any], Any],
) -> Any:  # fmt: skip
    owner = owner_of(function)
    if _column(owner) is not None:
        function = getattr(part(owner), function.__name__)
    named = {key: replaced(item, part) for key, item in kwargs.items()}
    return function(*(replaced(item, part) for item in args), **named)


def owner_of(function: Any) -> Any:
    """The object whose method it is."""
    return getattr(function, "__self__", None)


def holding(item: Any) -> Held | None:
    """What an array or an object is on every rank; None of what is the same."""
    return item.others if isinstance(item, _HELD) else None


def _holds(item: Any) -> bool:
    return holding(item) is not None


def follows(item: Any) -> bool:
    """Whether it follows from the rank."""
    return isinstance(item, _Own | OwnText) or _holds(item)


def _column(item: Any) -> Any:
    """What tells ranks apart by it, [world]; None of what is the same on all."""
    if isinstance(item, _Own):
        return np.broadcast_to(everywhere(item), world())
    if isinstance(item, OwnText):
        return item.values
    return item.others.kinds if _holds(item) else None


def _plain(item: Any) -> Any:
    """A part as usual functions take it."""
    if isinstance(item, str):
        return str.__str__(item) if isinstance(item, _Own | OwnText) else item
    if isinstance(item, _Own):
        return item.plain.__pos__(item)
    if isinstance(item, THINGS):
        return item.plainly
    return np.ndarray.view(item, np.ndarray) if isinstance(item, OwnArray) else item


def at_rank(item: Any, rank: int) -> Any:
    """A part as another rank gives it."""
    if isinstance(item, OwnText):
        return str(item.values[rank])
    if isinstance(item, _Own):
        found = np.broadcast_to(everywhere(item), world())[rank]
        return item.plain(found.item() if isinstance(found, np.generic) else found)
    if _holds(item):
        return item.others.values[item.others.kinds[rank]]
    return np.ndarray.view(item, np.ndarray) if isinstance(item, OwnArray) else item


def _elements(result: Any) -> int:
    return sum(np.size(item) for item in parts((result,), {}) if isinstance(item, np.ndarray)) or 1


_kinds: tuple[Any, ...] = (_Own, OwnText, *_HELD)
for _kind in _kinds:
    _kind.followed_call = staticmethod(called)
