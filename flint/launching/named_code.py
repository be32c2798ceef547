"""What code names: its methods, the objects that it asks for them, and the functions it calls.

The idea: instructions load a name, and then attributes of what it stands for.  Names are looked up
in the variables that there are, and functions and classes of the program's own are followed.
Nothing of it runs.

    Search().methods(dis.get_instructions(function), vars(module), {})      # {"backward", "step"}
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from flint.capturing.user_frames import is_programs

#: Where functions in C come from that stand for one of the program's own.
_JITTED = ("jax", "torch")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
#: Of code that is loaded, whose package is imported: the answer stays.
is_own_file = functools.cache(is_programs)
#: More functions are not looked at.
_MOST = 2000


class Search:
    """Names of methods that code calls, and what it calls of the program's own.

    Attributes:
        owners: the objects of whose methods the code was seen to ask, by the methods' names.
    """

    def __init__(self, running: frozenset[CodeType] = frozenset()) -> None:
        """Code that runs now, of a call and its callers, is not looked at; other is once."""
        self._seen = set(running)
        self.owners: dict[str, list[Any]] = {}

    def methods(
        self, code: Iterable[dis.Instruction], names: dict[str, Any], known: Any
    ) -> set[str]:
        """The names of attributes in code, and in what it names, however deep.

        Args:
            code: instructions.
            names: variables of its module.
            known: variables of its own.
        """
        found: set[str] = set()
        item: Any = None  # what the last instruction has put on the stack; None: not known
        for one in code:
            if one.opname in _ATTRIBUTES:
                found.add(one.argval)
                if item is not None:
                    self.owners.setdefault(one.argval, []).append(item)
                item = _attribute(item, one.argval)
            elif one.opname.startswith("LOAD_CONST") and isinstance(one.argval, CodeType):
                found |= self._code(one.argval, names, {})
                continue
            elif one.opname.startswith("LOAD_") and isinstance(one.argval, str):
                item = known.get(one.argval, names.get(one.argval))
                if isinstance(item, FunctionType):
                    found.add(item.__name__)
            else:
                if one.opname not in ("PUSH_NULL", "CACHE", "EXTENDED_ARG"):
                    item = None
                continue
            found |= self._named(item)
        return found

    def _named(self, item: Any) -> set[str]:
        owner: Any = None
        if isinstance(item, MethodType):
            owner, item = item.__self__, item.__func__
        if isinstance(item, _Of):
            owner, item = item.owner, item.function
        item = getattr(item, "__func__", item) if isinstance(item, _WRAPPED) else item
        if type(item).__module__.startswith(_JITTED):
            item = getattr(item, "__wrapped__", None)
        if isinstance(item, FunctionType):
            item = inspect.unwrap(item)
        if isinstance(item, FunctionType):  # not one in C, which has no code
            first = item.__code__.co_varnames[:1]
            own = dict.fromkeys(first, owner) if owner is not None else {}
            return self._code(item.__code__, item.__globals__, own)
        if isinstance(item, type) and _is_own(item):
            every = (
                self._named(_Of(item, one)) for one in vars(item).values() if isinstance(one, _CODE)
            )
            return set().union(*every)
        return set()

    def _code(self, code: CodeType, names: dict[str, Any], known: Any) -> set[str]:
        if code in self._seen or len(self._seen) > _MOST or not is_own_file(code.co_filename):
            return set()
        self._seen.add(code)
        return self.methods(dis.get_instructions(code), names, known)


_WRAPPED = (staticmethod, classmethod)
_CODE = (FunctionType, *_WRAPPED)


@dataclass(frozen=True, slots=True)
class _Of:
    """A function of an object or a class."""

    owner: Any
    function: Any


def _is_own(kind: type) -> bool:
    return any(
        is_own_file(one.__code__.co_filename)
        for one in vars(kind).values()
        if isinstance(one, FunctionType)
    )


def _attribute(item: Any, name: str) -> Any:
    """An attribute, without running code; None: not known."""
    if item is None:
        return None
    if isinstance(item, ModuleType):
        return vars(item).get(name)
    found = inspect.getattr_static(item, name, None)
    return _Of(item, found) if isinstance(found, _CODE) else found
