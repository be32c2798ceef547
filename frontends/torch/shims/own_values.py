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
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from flint.frontends.torch.evidence import Kinds
from flint.frontends.torch.shims.over_ranks import mapped
from flint.frontends.torch.shims.own_questions import ask, ask_whether_among, leaves

#: Containers whose numbers are all known when a rank is looked for among them.
_CONTAINERS = (list, tuple, set, frozenset, dict)

#: A number on every rank: an array [world], or what makes it when it is needed.
Everywhere = Any


def everywhere(item: Any) -> Any:
    """The value of a number on every rank: an array, or the number itself if it is the same."""
    if not isinstance(item, _Own):
        return item
    if callable(item.values):
        item.values = item.values()
    return item.values


def whole(values: Any) -> Any:
    """Numbers without their fractions."""
    broken = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    return np.trunc(np.nan_to_num(values)).astype(np.int64) if broken else values


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

    def __new__(cls, value: Any, values: Everywhere = None) -> Self:
        """A number and its values; the usual one without them (``type(rank)("7")``)."""
        if values is None:
            usual: Self = value if type(value) is cls else cls.plain(value)
            return usual
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

    def followed_int(self) -> OwnRank:
        """``int()`` of it in a program whose numbers are followed (``flint run``)."""
        return OwnRank(self.plain.__int__(self), lambda: whole(everywhere(self)))


class OwnWhole(_Own):
    """A whole number that follows from the rank, Python's or NumPy's."""

    #: What it picks from a container (``own_tables.py``), a loop that it begins or ends, and a text
    #: that is made of it (``own_words.py``).
    followed_at: Callable[..., Any]
    followed_at_or: Callable[..., Any]
    followed_part: Callable[..., Any]
    followed_loop: Callable[..., Any]
    followed_slice: Callable[..., Any]
    followed_text: Callable[..., Any]
    #: It is the place of an item that is written.
    followed_put: Callable[..., Any]
    #: What a function that takes it as a plain number makes of it (``own_calls.py``).
    followed_call: Callable[..., Any]

    def followed_among(self, container: Any) -> bool:
        """``self in container`` in such a program: all numbers in it are known at once."""
        if isinstance(container, range):
            yes: Any = np.frompyfunc(container.__contains__, 1, 1)(everywhere(self))
        elif isinstance(container, _CONTAINERS) and all(type(each) is int for each in container):
            yes = np.isin(everywhere(self), list(container))
        else:
            return self in container
        ask_whether_among(yes)
        return self.plain.__pos__(self) in container


class OwnRank(OwnWhole, int):
    """An integer that follows from the rank."""

    plain = int

    def __float__(self) -> float:
        leaves(everywhere(self), "is converted to a plain number")
        return int.__float__(self)

    def __str__(self) -> str:
        return OwnText(int.__repr__(self), "", everywhere(self))

    def followed_int(self) -> OwnRank:
        """It is one already."""
        return self


class OwnFloat(_Own, float):
    """A float that follows from the rank."""

    plain = float

    def __float__(self) -> float:
        return float.__float__(self)


class OwnText(str, metaclass=_LikePlain):
    """Digits that follow from the rank: an environment variable, or a number's.

    Attributes:
        plain: Python's type of it.
        name: the variable's, or "".
        values: its numbers on every rank, [world].
    """

    plain = str
    followed_at: Callable[..., Any]
    followed_at_or: Callable[..., Any]
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
        how = f"is read from the environment ({self.name})" if self.name else "is read from a text"
        leaves(self.values, how)
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
