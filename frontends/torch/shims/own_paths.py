"""Paths that follow from the rank: ``Path(f"log_{rank}").name``.

The idea: files and libraries get this rank's.  In the program's own lines its parts,
the paths and texts that are made of it, and comparisons know those of the other ranks.

    path.name == "log_1"         # False; asked: rank 1 is answered yes
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from flint.capturing.user_frames import is_programs
from flint.frontends.torch.recording.held_numbers import Held
from flint.frontends.torch.shims.own_things import Everywhere, OwnBytes, OwnThing, is_asked_only

_Plain: Any = type(Path())
_PARTS = ("name", "parent", "parts", "stem", "suffix", "suffixes")
_METHODS = (
    "__ge__", "__gt__", "__le__", "__lt__", "__repr__", "__str__", "__truediv__", "as_posix",
    "is_absolute", "is_relative_to", "joinpath", "match", "relative_to", "with_name", "with_stem",
    "with_suffix",
)  # fmt: skip


class OwnPath(Everywhere, _Plain):  # type: ignore[misc]  # a type of this machine's
    """A path that follows from the rank."""

    followed_text: Callable[..., Any]

    def __new__(cls, *segments: Any) -> Any:
        """A path that Python's own methods make of it is a usual one."""
        return _Plain(*segments)

    @classmethod
    def of(cls, here: PurePath, make: Callable[[], Held]) -> OwnPath:
        """This rank's path, and what makes it on every rank."""
        made: OwnPath = object.__new__(cls)
        for kind in type(here).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if hasattr(here, name):
                    object.__setattr__(made, name, getattr(here, name))
        made.make = make
        made.plainly = here
        return made

    __hash__ = _Plain.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PurePath):
            return False
        return bool(self.followed_call(_Plain.__eq__, (self, other), {}))

    def __rtruediv__(self, other: Any) -> Any:
        return self.followed_call(operator.truediv, (other, self), {})

    def __reduce__(self) -> Any:
        return _Plain, (_Plain.__str__(self),)


THINGS = (OwnBytes, OwnPath, OwnThing)


def kind_of(result: Any) -> Callable[[Any, Callable[[], Held]], Any] | None:
    """What stands for bytes, a path or an object that follow from the rank; None: of others."""
    if isinstance(result, PurePath):
        return OwnPath.of
    if isinstance(result, bytes):
        return OwnBytes
    return OwnThing if is_asked_only(result) else None


def _followed(name: str, plain: Callable[..., Any]) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_programs(sys._getframe(1).f_code.co_filename):
            return plain(self.plainly, *args, **kwargs)
        return self.followed_call(plain, (self, *args), kwargs)

    return functools.wraps(plain)(method) if name in _METHODS else property(method)


for _name in _PARTS:
    setattr(OwnPath, _name, _followed(_name, operator.attrgetter(_name)))
for _name in _METHODS:
    setattr(OwnPath, _name, _followed(_name, getattr(_Plain, _name)))
for _name in ("_from_parts", "_from_parsed_parts"):  # before Python 3.12: as ``__new__``
    if hasattr(_Plain, _name):
        setattr(OwnPath, _name, getattr(_Plain, _name))
