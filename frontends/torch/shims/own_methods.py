"""Methods of numbers and texts that follow from the rank: ``rank.bit_length()``, ``text.split()``.

The idea: Python's give plain numbers and texts.  Those of numbers are called for every rank
(``own_calls.py``); so are those of texts where the program's own line calls them.  Libraries take a
text apart as the name of a file.

    OwnRank(3, np.arange(8)).bit_length()        # 2 here, 1 on rank 1
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from flint.capturing.user_frames import is_programs
from flint.frontends.torch.shims.own_calls import called
from flint.frontends.torch.shims.own_questions import note_values
from flint.frontends.torch.shims.own_values import OwnRank, OwnText, everywhere
from flint.frontends.torch.shims.own_words import OwnWords

_NUMBERS = ("__format__", "__repr__", "as_integer_ratio", "bit_count", "bit_length", "to_bytes")
_TEXTS = (
    "__add__", "__contains__", "__ge__", "__getitem__", "__gt__", "__le__", "__lt__", "capitalize",
    "casefold", "center", "count", "encode", "endswith", "find", "index", "isalpha", "isdecimal",
    "isdigit", "isnumeric", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "swapcase", "title", "translate", "upper", "zfill",
)  # fmt: skip
_LONG = "decides how long a text is"
_LENGTH = "is the length of a list"


def _of_number(name: str) -> Any:
    plain = getattr(int, name)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return called(plain, (self, *args), kwargs)

    return method


def _of_text(name: str) -> Any:
    plain = getattr(str, name)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_programs(sys._getframe(1).f_code.co_filename):
            return plain(self, *args, **kwargs)
        return called(plain, (self, *args), kwargs)

    return method


def _length(self: Any) -> int:
    if is_programs(sys._getframe(1).f_code.co_filename):
        texts = everywhere(self) if isinstance(self, OwnWords) else self.values.astype(str)
        note_values(np.char.str_len(texts), _LONG)
    return str.__len__(self)


def _behind(self: Any, text: Any) -> Any:
    """``text + self``."""
    return called(str.__add__, (text, self), {}) if isinstance(text, str) else NotImplemented


def _is_among(self: Any, container: Any) -> bool:
    """``self in container``, which may be a text."""
    if isinstance(container, str):
        return bool(called(str.__contains__, (container, self), {}))
    return self in container


def _times(plain: Any) -> Any:
    """A product with the rank, which may be that of a list."""

    @functools.wraps(plain)
    def times(self: Any, other: Any) -> Any:
        if isinstance(other, str):
            return called(str.__mul__, (other, self), {})
        if isinstance(other, list | tuple | bytes):
            note_values(everywhere(self), _LENGTH)
        return plain(self, other)

    return times


def _itself(self: Any) -> Any:
    return self


_text: Any = OwnText
_text.followed_among = _is_among
_rank: Any = OwnRank
for _name in _NUMBERS:
    setattr(_rank, _name, _of_number(_name))
for _name in ("__mul__", "__rmul__"):
    setattr(_rank, _name, _times(getattr(_rank, _name)))
_rank.conjugate, _rank.real, _rank.numerator = _itself, property(_itself), property(_itself)
_kinds: tuple[Any, ...] = (OwnText, OwnWords)
for _kind in _kinds:
    for _name in _TEXTS:
        setattr(_kind, _name, _of_text(_name))
    _kind.__radd__, _kind.__len__ = _behind, _length
