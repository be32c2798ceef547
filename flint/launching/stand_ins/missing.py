"""Functions that read data: if the data is missing, the program gets a stand-in.

The idea: the library's own function runs first.  Only if it reports that a file is missing, or that
its hub cannot be reached, is something made up instead, in the form that the program asks for, and
noted with the program's line.  Without ``--fake-data`` the error stays, for programs that can
handle it; if it ends the program, the message says what would help.

    watch([StandIn("numpy", "memmap.__new__", zeros_on_disk)], wanted=True)
    np.memmap("none.bin", np.uint16)             # zeros
"""

from __future__ import annotations

import errno
import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flint.capturing.user_frames import own_line
from flint.host.imports import watch_imports
from flint.launching.notes import noted

#: A stand-in, and its description.
Made = tuple[Any, str]

_MADE_UP = "made-up data"
_ADVICE = "; with --fake-data, Flint makes up missing data"
#: Errors about a missing file or another machine; libraries raise OSError without a number.
_NUMBERS = frozenset((None, errno.ENOENT, errno.ENETUNREACH, errno.ECONNREFUSED))
#: TensorFlow's error about a missing file, which is no OSError.
_TENSORFLOWS = "NotFoundError"

#: Attribute of errors that a stand-in would have avoided.
_MARK = "flint_could_make_it_up"


def _always(*_: Any, **__: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class StandIn:
    """What replaces the result of a function that finds nothing to read.

    Attributes:
        module: module whose import defines the function.
        name: name of the function in it, with its class.
        make: called like the function; returns the stand-in and its description.
        applies: called like the function; whether this call reads something that can be made up.
        empty: whether the function's result was made without the data.
        says: how the library's own errors about missing data begin.
    """

    module: str
    name: str
    make: Callable[..., Made]
    applies: Callable[..., bool] = _always
    empty: Callable[[Any], bool] | None = None
    says: tuple[str, ...] = ()


def watch(items: Iterable[StandIn], wanted: bool) -> None:
    """Replace such functions as soon as they are imported.

    Args:
        items: the functions.
        wanted: make data up; else the error says how that is done.
    """
    by_module: dict[str, list[StandIn]] = defaultdict(list)
    for item in items:
        by_module[item.module].append(item)
    watch_imports(
        {name: functools.partial(_replace, found, wanted) for name, found in by_module.items()}
    )


def advice(error: BaseException) -> str:
    """Advice to follow an error's text; "" if no stand-in would have helped."""
    found: BaseException | None = error
    while found is not None:
        if _MARK in vars(found):
            return _ADVICE
        found = found.__cause__ or found.__context__
    return ""


def name_option(error: BaseException) -> None:
    """Make an error name the option if it ends the program."""
    vars(error)[_MARK] = True


def is_missing(error: BaseException) -> bool:
    """Whether an error says that a file is missing, or its machine cannot be reached."""
    if type(error).__name__ == _TENSORFLOWS:
        return True
    return isinstance(error, OSError) and error.errno in _NUMBERS


def note(what: str) -> None:
    """Count something made up, with the program's line."""
    line = own_line()
    noted[f"{_MADE_UP}{f' at {line}' if line else ''}: {what}"] += 1


def last_note() -> str:
    """The last thing made up, with the program's line; "" if nothing was."""
    return next((text for text in reversed(noted) if text.startswith(_MADE_UP)), "")


def _replace(items: Iterable[StandIn], wanted: bool) -> None:
    for item in items:
        owner: Any = sys.modules[item.module]
        *path, name = item.name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        if not hasattr(owner, name):  # another version of the library
            continue
        own = vars(owner).get(name)
        kind = type(own) if isinstance(own, classmethod | staticmethod) else None
        plain = own.__func__ if kind else getattr(owner, name)  # decorators may bind what they wrap
        guarded = _guarded(item, plain, wanted)
        setattr(owner, name, kind(guarded) if kind else guarded)


def _guarded(item: StandIn, function: Callable[..., Any], wanted: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            found = function(*args, **kwargs)
            if not wanted or item.empty is None or not item.empty(found):
                return found
            if not item.applies(*args, **kwargs):
                return found
        except Exception as error:
            known = is_missing(error) or str(error).startswith(item.says)
            if not known or not item.applies(*args, **kwargs):
                raise
            if not wanted:
                name_option(error)
                raise
        value, words = item.make(*args, **kwargs)
        note(words)
        return value

    return call
