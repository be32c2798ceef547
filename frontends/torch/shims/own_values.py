"""Numbers and texts that follow from the rank, and carry the values of all ranks.

The idea: a rank that a program's own code reads is an integer that knows its value on every rank.
Arithmetic maps over all of them, and a comparison notes for which ranks it holds.  If a value is
passed to code that cannot be followed (a set's hash, ``int()`` of a launcher's variable), its
different values are noted instead if they are few; if they are many, only the usual ones, with a
note that more comparisons are possible.

    value = OwnRank(3, np.arange(8))
    value % 4 == 1                       # False; asked: ranks 1 and 5 are answered yes
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from flint.frontends.torch.context import capture
from flint.frontends.torch.evidence import Kinds
from flint.frontends.torch.shims.over_ranks import mapped, world
from flint.frontends.torch.user_lines import at_line, at_user_line, inside_torch

#: Up to this many different values are all noted if comparisons with them are not seen.
FEW_VALUES = 16

#: A number on every rank: an array [world], or what makes it when it is needed.
Everywhere = Any


def everywhere(item: Any) -> Any:
    """The value of a number on every rank: an array, or the number itself if it is the same."""
    if not isinstance(item, _Own):
        return item
    if callable(item.values):
        item.values = item.values()
    return item.values


class _LikePlain(type):
    """Types that equal Python's: ``type(rank) == int``, ``type(rank) in (int, str)``."""

    def __eq__(cls, other: object) -> bool:
        return cls is other or vars(cls).get("plain") is other

    def __hash__(cls) -> int:
        return hash(vars(cls)["plain"]) if "plain" in vars(cls) else type.__hash__(cls)


class _Own(metaclass=_LikePlain):
    """A number that follows from the rank.

    Attributes:
        plain: Python's type of such a number.
        values: see ``everywhere``; int64, or objects where that is too small.
    """

    plain: Any
    values: Everywhere

    def __new__(cls, value: Any, values: Everywhere) -> Self:
        made: Self = cls.plain.__new__(cls, value)
        made.values = values
        return made

    def __bool__(self) -> bool:
        return bool(operator.ne(self, 0))

    def __hash__(self) -> int:
        leaves(everywhere(self), "is looked up")
        return int(self.plain.__hash__(self))

    def __int__(self) -> int:
        leaves(everywhere(self), "is converted to a plain number")
        return int(self.plain.__int__(self))

    def __reduce__(self) -> Any:
        return self.plain, (self.plain.__pos__(self),)


class OwnRank(_Own, int):
    """An integer that follows from the rank."""

    plain = int

    def __float__(self) -> float:
        leaves(everywhere(self), "is converted to a plain number")
        return int.__float__(self)

    def followed_int(self) -> OwnRank:
        """``int()`` of it in a program whose numbers are followed (``flint run``)."""
        return self


class OwnFloat(_Own, float):
    """A float that follows from the rank."""

    plain = float

    def __float__(self) -> float:
        return float.__float__(self)


class OwnText(str, metaclass=_LikePlain):
    """An environment variable that follows from the rank.

    Attributes:
        plain: Python's type of it.
        name: the variable's.
        values: its numbers on every rank, [world].
    """

    plain = str
    name: str
    values: Kinds

    def __new__(cls, text: str, name: str, values: Kinds) -> OwnText:
        made = super().__new__(cls, text)
        made.name, made.values = name, values
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and not isinstance(other, OwnText):
            number = int(other) if other.isdecimal() else -1
            ask(self.values == (number if str(number) == other else -1))
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        leaves(self.values, "is looked up")
        return str.__hash__(self)

    def __int__(self) -> int:
        leaves(self.values, f"is read from the environment ({self.name})")
        return int(str(self))

    def followed_int(self) -> OwnRank:
        """``int()`` of it in a program whose numbers are followed (``flint run``)."""
        return OwnRank(int(str(self)), self.values)

    def __reduce__(self) -> Any:
        return str, (str(self),)


def own(value: Any, values: Everywhere) -> Any:
    """A number of this rank and its values on the others."""
    if isinstance(value, bool):
        return value
    return (OwnRank if isinstance(value, int) else OwnFloat)(value, values)


def ask(yes: Any) -> None:
    """A comparison, as the ranks for which it holds, at its line of code."""
    frame = _outside()
    if _counts(frame):
        mask = np.broadcast_to(np.asarray(yes).astype(bool), world())
        capture().evidence.ask(at_line(frame.f_code.co_filename, frame.f_lineno), mask)


def leaves(values: Kinds, how: str) -> None:
    """A number passes to code where comparisons with it are not seen."""
    if not inside_torch(_outside()):
        note_values(values, how)


def note_values(values: Kinds, how: str) -> None:
    """Ranks with different values may behave differently, in a way that is not seen."""
    kinds = np.unique(values, return_inverse=True)[1].reshape(-1)
    evidence, place = capture().evidence, at_user_line()
    if kinds.max() < FEW_VALUES:
        evidence.ask_value(place, kinds)
        return
    # Programs usually compare with the first, the last and the hosts' first ranks.
    evidence.ask(f"{place} (the first)", kinds == 0)
    evidence.ask(f"{place} (the last)", kinds == kinds.max())
    evidence.ask(f"{place} (the first of a host)", np.arange(len(kinds)) % capture().per_host == 0)
    capture().unseen.add(f"the own rank {how}{place}")


def _outside() -> Any:
    """The innermost frame of other code than this file's."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals is globals():
        frame = frame.f_back
    return frame


def _counts(frame: Any) -> bool:
    """Whether a comparison may affect behaviour: not one in PyTorch's caches."""
    name = str(frame.f_globals.get("__name__", ""))
    return not inside_torch(frame) or name.startswith("torch.distributed.")


def _compared(kind: Any, name: str) -> Callable[..., Any]:
    plain, over = getattr(kind, name), getattr(operator, name)

    def compare(self: Any, other: Any) -> Any:
        other = other.item() if isinstance(other, np.generic) else other
        answer = plain(self, other)
        if answer is not NotImplemented:
            ask(over(everywhere(self), everywhere(other)))
        return answer

    return compare


def _computed(
    kind: Any, name: str, over: Callable[..., Any], exact: bool = False
) -> Callable[..., Any]:
    plain = getattr(kind, name)

    def compute(self: Any, *others: Any) -> Any:
        others = tuple(item.item() if isinstance(item, np.generic) else item for item in others)
        answer = plain(self, *others)
        if answer is NotImplemented:
            return answer
        values = [everywhere(item) for item in (self, *others)]
        return own(answer, mapped(over, values, exact))

    return compute


#: Functions of two numbers, and of one.
_TWO = ("add", "sub", "mul", "floordiv", "mod", "truediv")
_OF_BITS = ("and", "or", "xor", "rshift")
_ONE: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
}
#: Done with Python's numbers, whatever their size.
_EXACT: dict[str, Callable[..., Any]] = {"pow": pow, "lshift": operator.lshift}
_ROUNDING: dict[str, Callable[..., Any]] = {
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
}
#: What a method does to one number or two.
_Function = Callable[..., Any]


def _functions(kind: Any) -> Iterator[tuple[str, _Function, bool]]:
    """Methods of a kind of number: name, what it does, whether to do it exactly."""
    for name in (*_TWO, *_OF_BITS, *_EXACT):
        if f"__{name}__" in vars(kind):
            over: _Function = _EXACT.get(name) or getattr(operator, f"__{name}__")
            yield f"__{name}__", over, name in _EXACT
            yield f"__r{name}__", functools.partial(_turned, over), name in _EXACT
    for name, over in (*_ONE.items(), *_ROUNDING.items()):
        if f"__{name}__" in vars(kind):
            yield f"__{name}__", over, name in _ROUNDING


def _turned(over: _Function, first: Any, second: Any) -> Any:
    return over(second, first)


#: Each half is followed separately.
_DIVMOD = {
    "__divmod__": lambda self, other: (self // other, self % other),
    "__rdivmod__": lambda self, other: (other // self, other % self),
}

for _kind, _plain in ((OwnRank, int), (OwnFloat, float)):
    for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        setattr(_kind, _name, _compared(_plain, _name))
    for _name, _over, _exact in _functions(_plain):
        setattr(_kind, _name, _computed(_plain, _name, _over, _exact))
    for _name, _over in _DIVMOD.items():
        setattr(_kind, _name, _over)
