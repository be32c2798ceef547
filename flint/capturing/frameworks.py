"""Which framework a step is written in, by what its code uses.

The idea: before a step runs the types of its arguments are unknown, but its code names what
it calls.  The names that a function uses are looked up where the function would find them; the
modules that they belong to show the framework.  Imports that the code does not use do not count.

    uses(train_step, {"jax": {"jax"}, "torch": {"torch"}})      # {"torch"}
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

#: The most functions and classes of the user's that are examined.
_LOOKED_AT = 256


def uses(function: Callable[..., Any] | None, packages: Mapping[str, Collection[str]]) -> set[str]:
    """The frameworks whose objects are used by a function and by the user's functions that it
    calls.

    Args:
        function: a step or its setup; None for none.
        packages: framework -> its top-level packages.
    """
    found: set[str] = set()
    pending: list[Any] = [] if function is None else [function]
    seen: set[int] = set()
    while pending and len(seen) < _LOOKED_AT:
        item = _plain(pending.pop())
        if id(item) in seen:
            continue
        seen.add(id(item))
        root = _root(item)
        owners = {name for name, roots in packages.items() if root in roots}
        found |= owners
        if owners or item is None:
            continue
        if isinstance(item, FunctionType):
            pending += _named(item)
        elif isinstance(item, type):
            bases = {_root(base) for base in item.__mro__}
            found |= {name for name, roots in packages.items() if bases & set(roots)}
            pending += [part for part in vars(item).values() if isinstance(part, FunctionType)]
    return found


def _plain(item: Any) -> Any:
    """The function behind a partial, a bound method or a decorated function."""
    for _ in range(16):
        if isinstance(item, functools.partial):
            item = item.func
        elif inspect.ismethod(item):
            item = item.__func__
        elif not isinstance(item, type) and callable(getattr(item, "__wrapped__", None)):
            item = item.__wrapped__
        else:
            break
    return item


def _root(item: Any) -> str:
    if isinstance(item, str):  # the name of a package
        return item
    name = getattr(item, "__module__", None) or getattr(item, "__name__", None)
    if inspect.ismodule(item):
        name = item.__name__
    return name.partition(".")[0] if isinstance(name, str) else ""


def _named(function: FunctionType) -> Iterator[Any]:
    """The objects that a function's code refers to: globals, captured variables, annotations,
    imports.
    """
    for name, imported in _names(function.__code__):
        if imported:
            yield name
        elif name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if callable(content) or inspect.ismodule(content):
            yield content
    for annotation in function.__annotations__.values():
        if isinstance(annotation, str):
            annotation = function.__globals__.get(annotation.partition(".")[0])
        yield annotation


def _names(code: CodeType) -> Iterator[tuple[str, bool]]:
    """Names that code looks up outside itself, and whether it imports them."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval), False
        elif instruction.opname == "IMPORT_NAME":
            yield str(instruction.argval).partition(".")[0], True
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
