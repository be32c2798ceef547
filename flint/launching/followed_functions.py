"""Functions that changed code calls, and the methods with which a rank answers them.

The idea: where a value has such a method, it says what it picks, ends or is compared with; every
other value gives what Python would.

    FUNCTIONS["__flint_at__"](sizes, rank)      # rank.followed_at(sizes), or sizes[rank]
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from itertools import islice
from types import FunctionType
from typing import Any

from flint.capturing.user_frames import is_ours
from flint.launching.followed_calls import METHODS

_USES = (
    "int", "among", "at", "at_or", "part", "loop", "text", "slice", "type", "call", "put", "path"
)  # fmt: skip
#: Methods with which a value converts itself to a number, looks for itself in a container, reads an
#: item, an item or a default, and a part of a container, ends a loop, is written into a text, picks
#: from what can only be gone over, says its type where types are compared, is given to a
#: function that takes it as any other, is the place of an item that is written, and is put behind a
#: path.
METHOD, AMONG, AT, AT_OR, PART, LOOP, TEXT, SLICE, TYPE, CALL, PUT, PATH = (
    f"followed_{use}" for use in _USES
)
#: What they are called in changed code (``followed_code.py``); others join texts, are methods,
#: evaluate a text, and are Python's slice.
NAMES = tuple(
    f"__flint_{use}__" for use in (*_USES[:-2], "join", "put", "method", "eval", "path", "span")
)
#: Longer lists of arguments are data.
_MOST = 64


def _number(*args: Any, **kwargs: Any) -> Any:
    """As ``int``."""
    if len(args) > 1 or kwargs:  # a text to another base
        return _call(int, *args, **kwargs)
    own = getattr(args[0], METHOD, None) if args else None
    return int(*args) if own is None else own()


def _among(item: Any) -> Callable[[Any], Any]:
    """What tells whether a container holds the item, to be called by the program's own line."""
    own: Callable[[Any], Any] | None = None if _is_plain(item) else getattr(item, AMONG, None)
    return own or (lambda container: item in container)


def _at(container: Any, index: Any) -> Any:
    """As ``container[index]``."""
    if type(index) is slice:
        return _part(container, index.start, index.stop, index.step)
    own = None if _is_plain(index) else getattr(index, AT, None)
    if own is None and type(index) is tuple and type(container).__module__ == "numpy":
        return _call(operator.getitem, container, index)
    return container[index] if own is None else own(container)


def _at_or(get: Any, index: Any, *default: Any) -> Any:
    """As ``container.get(index, default)``, from the bound method."""
    own = None if _is_plain(index) else getattr(index, AT_OR, None)
    return get(index, *default) if own is None else own(get, *default)


def _part(container: Any, start: Any, stop: Any, step: Any) -> Any:
    """As ``container[start:stop:step]``."""
    for end in (start, stop, step):
        own = None if _is_plain(end) else getattr(end, PART, None)
        if own is not None:
            return own(container, slice(start, stop, step))
    return container[start:stop:step]


def _loop(*ends: Any) -> Any:
    """As ``range``, of a loop."""
    for end in ends:
        own = None if _is_plain(end) else getattr(end, LOOP, None)
        if own is not None:
            return own(*ends)
    return range(*ends)


def _text(make: Callable[..., str], *values: Any) -> str:
    """As ``make(*values)``."""
    for value in values:
        own = None if _is_plain(value) else getattr(type(value), TEXT, None)
        if own is not None:
            made: str = own(make, values)
            return made
    return make(*values)


def _slice(function: Any, items: Any, *ends: Any) -> Any:
    """As ``islice(items, *ends)``."""
    for end in ends if function is islice else ():
        own = None if _is_plain(end) else getattr(type(end), SLICE, None)
        if own is not None:
            return own(items, ends)
    return function(items, *ends)


def _type(item: Any) -> Any:
    """As ``type(item)``, to be compared with another type."""
    kind = type(item)
    if kind is FunctionType and hasattr(item, "__wrapped__") and is_ours(item.__code__.co_filename):
        return _type(item.__wrapped__)  # which it stands for: one of Python's own, maybe
    return getattr(kind, TYPE, type)(item)


def _call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``function(*args, **kwargs)``."""
    own = _follower((*args, *kwargs.values()) if kwargs else args)
    own = own or getattr(type(getattr(function, "__self__", None)), CALL, None)
    return function(*args, **kwargs) if own is None else own(function, args, kwargs)


def _follower(items: Any) -> Any:
    """What follows a call with such arguments; None if they follow from nothing."""
    for item in items:
        kind = type(item)
        if kind is list or kind is tuple:
            own = _follower(item) if len(item) <= _MOST else None
        elif kind is dict:
            own = _follower(item.values()) if len(item) <= _MOST else None
        elif kind is slice:
            own = _follower((item.start, item.stop, item.step))
        else:
            own = getattr(kind, CALL, None)
        if own is not None:
            return own
    return None


def _join(join: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``separator.join(texts)``, from the bound method."""
    if type(getattr(join, "__self__", None)) is str and len(args) == 1:
        args = (list(args[0]),)  # as it does itself
    return _call(join, *args, **kwargs)


def _method(function: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``function(*args, **kwargs)``, from a bound method with one of these names."""
    owner = METHODS.get(getattr(function, "__name__", ""))
    if owner is not None and isinstance(getattr(function, "__self__", None), owner):
        return _call(function, *args, **kwargs)
    return function(*args, **kwargs)


def _eval(text: Any, *places: Any) -> Any:
    """As ``eval(text)`` in the line that calls."""
    frame = sys._getframe(1)
    places = places or (frame.f_globals, frame.f_locals)
    own = getattr(type(text), CALL, None)
    if own is None:
        return eval(text, *places)

    def evaluated(there: Any) -> Any:
        return eval(there, *places)

    evaluated.__name__ = "eval" if "(" in text else "value"  # calls may do more than give one
    return own(evaluated, (text,), {})


def _put(container: Any, index: Any) -> Any:
    """The index in ``container[index] = item``."""
    own = None if _is_plain(index) else getattr(type(index), PUT, None)
    if own is not None:
        own(index, container)
    return index


def _path(part: Any) -> Any:
    """What ``path / part`` has on its right; it may be a number as well."""
    own = None if _is_plain(part) else getattr(type(part), PATH, None)
    return part if own is None else own(part)


def _is_plain(index: Any) -> bool:
    """Whether an index is of one of the usual types, which follow from nothing."""
    kind = type(index)  # not compared by ==: the types of followed values are equal to int
    return kind is int or kind is str or index is None


_FUNCTIONS = (
    _number, _among, _at, _at_or, _part, _loop, _text, _slice, _type, _call, _join, _put, _method,
    _eval, _path, slice
)  # fmt: skip
#: Name -> the function that changed code calls.
FUNCTIONS: dict[str, Callable[..., Any]] = dict(zip(NAMES, _FUNCTIONS, strict=True))
