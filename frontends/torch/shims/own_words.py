"""Texts that are made of a rank: ``f"stage{rank}"``, ``"part-%d" % rank``.

The idea: such a text knows what makes it, and so what it is on every rank.  A comparison with
another text notes for which ranks it holds; so does an item that it picks from a table.  Everything
else gets a text like any other, because most are names of files and messages.

    rank = OwnRank(3, np.arange(8))
    words_of("stage{}".format, (rank,)) == "stage1"     # False; asked: rank 1 is answered yes
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_paths import OwnPath
from flint.frontends.torch.shims.own_questions import ask, ask_whether_among
from flint.frontends.torch.shims.own_values import OwnFloat, OwnRank, OwnText, _Own, everywhere

#: Longer texts are messages.
_LONGEST = 256


class OwnWords(_Own, str):
    """A text that follows from the rank; ``values`` are the texts of all ranks, [world]."""

    plain = str
    followed_call: Callable[..., Any]
    followed_at: Callable[..., Any]
    followed_at_or: Callable[..., Any]

    __hash__ = str.__hash__

    def __bool__(self) -> bool:
        return len(self) > 0

    def __int__(self) -> int:
        return int(str.__str__(self))

    def followed_int(self) -> OwnRank:
        """``int()`` of it in a program whose numbers are followed (``flint run``)."""
        return OwnRank(int(str.__str__(self)), lambda: _numbers(everywhere(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            ask(everywhere(self) == everywhere(other))
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def followed_among(self, container: Any) -> bool:
        """``self in container``."""
        plain = str.__str__(self)
        if isinstance(container, str):
            return bool(self.followed_call(str.__contains__, (container, self), {}))
        if not isinstance(container, set | frozenset | dict):
            return self in container
        ask_whether_among([text in container for text in everywhere(self).tolist()])
        return plain in container

    def __str__(self) -> str:
        return str.__str__(self)

    def __reduce__(self) -> Any:
        return str, (str.__str__(self),)


def words_of(make: Callable[..., str], parts: tuple[Any, ...]) -> str:
    """A text of this rank, which knows that of every other one.

    Args:
        make: makes it of its parts.
        parts: this rank's; some know their values on the others.
    """
    text = make(*parts)
    if type(text) is not str or len(text) > _LONGEST:
        return text
    return OwnWords(text, lambda: _everywhere(make, parts))


def _everywhere(make: Callable[..., str], parts: tuple[Any, ...]) -> Any:
    kinds = _Own | OwnText | OwnPath
    own = [at for at, part in enumerate(parts) if isinstance(part, kinds)]
    columns = [np.broadcast_to(_values(parts[at]), world()).tolist() for at in own]
    made: dict[tuple[Any, ...], str] = {}

    def text_of(values: tuple[Any, ...]) -> str:
        if values not in made:
            there = list(parts)
            for at, value in zip(own, values, strict=True):
                there[at] = value
            made[values] = make(*there)
        return made[values]

    return np.array([text_of(values) for values in zip(*columns, strict=True)])


def _values(part: Any) -> Any:
    if isinstance(part, OwnPath):
        return np.array([part.plainly, *part.others.values], object)[1:][part.others.kinds]
    return np.char.mod("%d", part.values) if isinstance(part, OwnText) else everywhere(part)


def _numbers(texts: Any) -> Any:
    return np.array([int(text) if text.strip("+- ").isdecimal() else -1 for text in texts.tolist()])


_kinds: tuple[Any, ...] = (OwnRank, OwnFloat, OwnText, OwnWords, OwnPath)
for _kind in _kinds:
    _kind.followed_text = staticmethod(words_of)


def _behind_a_path(text: Any) -> Any:
    return text.followed_call(Path, (text,), {})


_texts: tuple[Any, ...] = (OwnText, OwnWords)
for _kind in _texts:
    _kind.followed_path = staticmethod(_behind_a_path)
