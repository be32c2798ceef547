"""Functions that read data: where what they read is not there, the program gets a stand-in.

The idea: the library's own function runs first.  Only when it says that a file is missing, or that
its hub cannot be reached, is something made up in its place, of a form that follows from what the
program asks for, and noted with the program's line.  Without ``--fake-data`` the error stays what
it is, for programs that know what to do with it; where it ends the program, its line says what
would help.

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
from flint.launching.outside import noted

#: What a stand-in is, and what to say about it.
Made = tuple[Any, str]

_ADVICE = "; with --fake-data, Flint makes up missing data"
#: What says that a file or another machine is not there; libraries raise OSError with no number.
_NUMBERS = frozenset((None, errno.ENOENT, errno.ENETUNREACH, errno.ECONNREFUSED))

#: Attribute of errors that a stand-in would have avoided.
_MARK = "flint_could_make_it_up"


def _always(*_: Any, **__: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class StandIn:
    """What is given where a function finds nothing to read.

    Attributes:
        module: whose import makes the function known.
        name: of the function in it, with the class that it is in.
        make: called as the function; what is given, and what that is in words.
        applies: called as the function; whether this call reads what can be made up.
        empty: whether what the function gives was made without what it reads.
        says: what the library's own errors begin with where nothing is there.
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
        wanted: something is made up; else an error says how it could be.
    """
    by_module: dict[str, list[StandIn]] = defaultdict(list)
    for item in items:
        by_module[item.module].append(item)
    watch_imports(
        {name: functools.partial(_replace, found, wanted) for name, found in by_module.items()}
    )


def advice(error: BaseException) -> str:
    """What to do about an error, to follow its text; "" where no stand-in would have helped."""
    found: BaseException | None = error
    while found is not None:
        if _MARK in vars(found):
            return _ADVICE
        found = found.__cause__ or found.__context__
    return ""


def name_option(error: BaseException) -> None:
    """Have an error, should it end the program, name the option."""
    vars(error)[_MARK] = True


def is_missing(error: BaseException) -> bool:
    """Whether an error says that a file, or the machine that has it, is not there."""
    return isinstance(error, OSError) and error.errno in _NUMBERS


def note(what: str) -> None:
    """Count something that is made up, with the program's line."""
    line = own_line()
    noted[f"made-up data{f' at {line}' if line else ''}: {what}"] += 1


def _replace(items: Iterable[StandIn], wanted: bool) -> None:
    for item in items:
        owner: Any = sys.modules[item.module]
        *path, name = item.name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        if not hasattr(owner, name):  # another version of the library
            continue
        own = vars(owner).get(name)
        plain = own.__func__ if isinstance(own, classmethod | staticmethod) else own
        guarded = _guarded(item, plain or getattr(owner, name), wanted)
        kind = type(own) if isinstance(own, classmethod | staticmethod) else None
        setattr(owner, name, kind(guarded) if kind else guarded)


def _guarded(item: StandIn, function: Callable[..., Any], wanted: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            found = function(*args, **kwargs)
            if not wanted or item.empty is None or not item.empty(found):
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
