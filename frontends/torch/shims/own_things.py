"""Bytes and objects that follow from the rank: ``pickle.dumps(rank)``, a match, a hash.

The idea: they are this rank's, and know those of the other ranks, which are made when something
asks.  Bytes are Python's own, as files and messages want them; of an object whose methods give
numbers and texts, the methods are called for every rank (``own_calls.py``).

    OwnThing(re.match("s([0-9])", "s3"), others).group(1) == "1"     # asked: rank 1 is answered yes
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from flint.capturing.user_frames import is_programs
from flint.frontends.torch.recording.held_numbers import Held
from flint.frontends.torch.shims.own_questions import ask, note_values
from flint.frontends.torch.shims.own_values import _LikePlain

#: Methods of bytes that are followed in the program's own lines.
_OF_BYTES = (
    "__add__", "__getitem__", "count", "decode", "endswith", "find", "hex", "lower", "rstrip",
    "split", "startswith", "strip", "upper",
)  # fmt: skip


_COMPARED = "is in what is compared"


class Everywhere:
    """What is made for all ranks when something asks."""

    make: Callable[[], Held]
    #: As usual functions take it.
    plainly: Any
    #: What a method makes of it on every rank (``own_calls.py``).
    followed_call: Callable[..., Any]

    @functools.cached_property
    def others(self) -> Held:
        """It on every rank."""
        return self.make()

    def on_ranks(self, yes: Callable[[Any], bool]) -> Any:
        """On which ranks something holds of it, [world]."""
        others = self.others
        if not others.values:  # more than are made
            note_values(others.kinds, _COMPARED)
            return np.zeros(len(others.kinds), bool)
        return np.array([yes(item) for item in others.values])[others.kinds]


class OwnBytes(Everywhere, bytes, metaclass=_LikePlain):
    """Bytes that follow from the rank."""

    plain = bytes

    def __new__(cls, here: bytes, make: Callable[[], Held]) -> OwnBytes:
        made = super().__new__(cls, here)
        made.make = make
        return made

    @property
    def plainly(self) -> bytes:
        """As usual functions take it."""
        return bytes(memoryview(self))

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bytes):
            plain = bytes(memoryview(other))
            ask(self.on_ranks(lambda item: bool(item == plain)))
        return bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> Any:
        return bytes, (bytes(memoryview(self)),)


class OwnThing(Everywhere):
    """An object that follows from the rank, and is asked by its methods only."""

    def __init__(self, here: Any, make: Callable[[], Held]) -> None:
        self.plainly, self.make = here, make

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that it is an instance of its type
        return type(self.plainly)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.plainly, name)
        if not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            def call(item: Any, *given: Any, **named: Any) -> Any:
                return getattr(item, name)(*given, **named)

            return self.followed_call(call, (self, *args), kwargs)

        return method

    def __getitem__(self, index: Any) -> Any:
        return self.followed_call(lambda item, at: item[at], (self, index), {})

    def __bool__(self) -> bool:
        ask(self.on_ranks(bool))
        return bool(self.plainly)


def is_asked_only(item: Any) -> bool:
    """Whether a program can only ask an object: its methods change nothing and give values."""
    return isinstance(item, re.Match | re.Pattern) or hasattr(item, "hexdigest")


def _of_bytes(name: str) -> Any:
    plain = getattr(bytes, name)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_programs(sys._getframe(1).f_code.co_filename):
            return plain(self, *args, **kwargs)
        return self.followed_call(plain, (self, *args), kwargs)

    return method


for _name in _OF_BYTES:
    setattr(OwnBytes, _name, _of_bytes(_name))
