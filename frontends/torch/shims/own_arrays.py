"""NumPy's numbers and arrays that follow from the rank: ``np.int64(rank)``, ``np.array([rank])``.

The idea: they are NumPy's own, and carry those of the other ranks.  Whatever NumPy does with them
it does with the others' as well (``own_calls.py``); their views are views of the others' arrays.  A
bool that is read of one is an answer that every rank is asked.

    own = known_array(np.array([3]), others)
    (own + 1)[0] == 4                    # asked: rank 3 is answered yes
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from flint.frontends.torch.recording.held_numbers import Held
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_parts import kinds_of, told_apart
from flint.frontends.torch.shims.own_questions import note_values
from flint.frontends.torch.shims.own_values import OwnRank, OwnWhole, _LikePlain, _Own

_SIZE, _READ = "is the size of an array", "is read from an array"
#: Longer arrays are data, as longer lists are, but for those that have an element for each rank.
_MOST = 64
#: Methods that do not read an array's numbers, or write them to a file.
_FORM = frozenset(("setflags", "to_device", "tofile", "dump", "dumps"))


def _called(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return OwnArray.followed_call(function, args, kwargs)


class _Followed:
    """What NumPy asks of an argument before it computes."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return _called(getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _called(function, args, kwargs)


class OwnArray(_Followed, np.ndarray, metaclass=_LikePlain):
    """An array that follows from the rank.

    Attributes:
        plain: NumPy's type of it.
        others: it on every rank; None of an array that is the same on all.
    """

    plain = np.ndarray
    others: Held | None
    #: What NumPy makes of it, on every rank (``own_calls.py``).
    followed_call: Callable[..., Any]

    def __array_finalize__(self, _: Any) -> None:
        self.others = None

    def __getitem__(self, index: Any) -> Any:
        return _called(np.ndarray.__getitem__, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        function, args = np.ndarray.__setitem__, (self, index, value)
        _called(lambda *given, out: function(*given), args, {"out": self})

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __bool__(self) -> bool:
        return bool(_called(np.ndarray.__bool__, (self,), {}))

    def __int__(self) -> int:
        return int(_called(np.ndarray.__int__, (self,), {}))

    def __float__(self) -> float:
        return float(_called(np.ndarray.__float__, (self,), {}))

    def __index__(self) -> int:
        return int(_called(np.ndarray.__index__, (self,), {}))

    def __repr__(self) -> str:
        return repr(np.ndarray.view(self, np.ndarray))

    def __str__(self) -> str:
        return str(np.ndarray.view(self, np.ndarray))

    def __reduce__(self) -> Any:
        return np.ndarray.view(self, np.ndarray).__reduce__()

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, _: Any) -> Any:
        return self.copy()

    @property
    def T(self) -> Any:  # NumPy's name
        return self.transpose()

    @property
    def flat(self) -> Any:
        return iter(self.reshape(-1))

    def followed_type(self) -> Any:
        """Its type where types are compared."""
        return np.ndarray

    def followed_int(self) -> Any:
        """``int()`` of it in a program whose numbers are followed (``flint run``)."""
        return _called(np.ndarray.__int__, (self,), {})

    def followed_at(self, container: Any) -> Any:
        """An item or a part of an array."""
        return _called(operator.getitem, (container, self), {})

    def writes(self, kinds: Any) -> bool:
        """Whether others' arrays can be written where ranks of these kinds write; else they are
        not known from now on."""
        others = self.others
        if others is None:
            return False
        joint = kinds_of([others.kinds, kinds])[0]
        if others.values and int(joint.max()) == int(others.kinds.max()):
            return True
        self.others = Held(joint, ())
        return False


def known_array(array: Any, others: Held) -> Any:
    """An array that knows what it is on the other ranks; their shapes tell them apart."""
    if array.dtype.kind not in "biuf":
        if array.dtype.kind not in "US":  # texts are mostly names of files
            note_values(others.kinds, _READ)
        return array
    if array.base is None and others.values and len(set(map(_told, others.values))) == 1:
        return array  # and not a part of one that differs, which may be written
    if others.values and len(set(map(_shape, others.values))) > 1:
        note_values(told_apart(others.kinds, others.values, _shape), _SIZE)
    if array.size > max(_MOST, world()):
        return array
    made = np.ndarray.view(array, OwnArray)
    made.others = others
    return made


def _told(array: Any) -> Any:
    return None if array is None else (array.shape, array.dtype, array.tobytes())


def _shape(array: Any) -> str:
    return "" if array is None else str(np.shape(array))


class _Number(_Followed, np.lib.mixins.NDArrayOperatorsMixin):
    """One of NumPy's numbers that follows from the rank."""

    plain: Any

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        return int(self.plain.__pos__(self))

    def __repr__(self) -> str:
        return str(_called(self.plain.__repr__, (self,), {}))

    def __str__(self) -> Any:
        return _called(self.plain.__str__, (self,), {})

    def __format__(self, form: str) -> Any:
        return _called(self.plain.__format__, (self, form), {})


def own_number(number: Any, values: Any) -> Any:
    """One of NumPy's numbers of this rank, and its values on the others, [world]."""
    return _NUMBERS[type(number)](number, values)


def _method(kind: Any, name: str) -> Any:
    plain = getattr(kind, name)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _called(plain, (self, *args), kwargs)

    return method


def _followed_methods(made: Any, plain: Any) -> None:
    for name in dir(plain):
        is_own = name.startswith("__") or name in _FORM or name in vars(made)
        if not is_own and callable(getattr(plain, name)):
            setattr(made, name, _method(plain, name))


def _number_type(kind: Any) -> Any:
    base: Any = OwnWhole if issubclass(kind, np.integer) else _Own
    made = type(base)(f"Own{kind.__name__}", (_Number, base, kind), {"plain": kind})
    made.__hash__ = base.__hash__  # the comparisons have none
    _followed_methods(made, kind)
    return made


_followed_methods(OwnArray, np.ndarray)
_NUMBERS: Any = {
    kind: _number_type(kind)
    for kind in set(np.sctypeDict.values())
    if kind is not np.timedelta64 and issubclass(kind, np.integer | np.floating)
}

OwnRank.__array_ufunc__ = _Followed.__array_ufunc__  # type: ignore[attr-defined]
