"""Names of flax nnx modules on the ops that they make.

The idea: linen and haiku run a module in a ``jax.named_scope`` of its name, from which layers come;
nnx does not, and an nnx module has no name but the attribute of its parent that holds it.  So while
a step is traced, a call of an nnx module enters a scope of that name (of its class, if it was not
called by a module that holds it).

    with named_modules():
        traced = step.trace(*arguments)        # ... jvp(Model)/layers_0/mlp/wi/dot_general
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

_CALL = "__call__"
#: Nesting of lists and dicts that are searched for a module.
_DEPTH = 3


@contextmanager
def named_modules() -> Iterator[None]:
    """Make calls of nnx modules name the ops that they trace."""
    nnx = sys.modules.get("flax.nnx")  # a step that has nnx modules has imported it
    classes = [] if nnx is None else [cls for cls in _below(nnx.Module) if _CALL in vars(cls)]
    originals = [vars(cls)[_CALL] for cls in classes]
    running: list[Any] = []
    for cls, original in zip(classes, originals, strict=True):
        setattr(cls, _CALL, _in_scope(original, running))
    try:
        yield
    finally:
        for cls, original in zip(classes, originals, strict=True):
            setattr(cls, _CALL, original)


def _below(cls: Any) -> Iterator[Any]:
    for child in dict.fromkeys(cls.__subclasses__()):
        yield child
        yield from _below(child)


def _in_scope(call: Callable[..., Any], running: list[Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        if running and running[-1] is self:  # a method of the parent class
            return call(self, *args, **kwargs)
        name = _held_by(running[-1], self) if running else ""
        running.append(self)
        try:
            with jax.named_scope(name or type(self).__name__):
                return call(self, *args, **kwargs)
        finally:
            running.pop()

    return named


def _held_by(parent: Any, module: Any) -> str:
    """The name by which a module holds another: ``head``, ``layers_0``; "" if it does not."""
    return next(_paths(vars(parent), module, _DEPTH), "")


def _paths(holder: Mapping[Any, Any], module: Any, depth: int) -> Iterator[str]:
    for key, value in holder.items():
        if value is module:
            yield str(key)
        elif depth:
            inner = _entries(value)
            yield from (f"{key}_{path}" for path in _paths(inner, module, depth - 1))


def _entries(value: Any) -> Mapping[Any, Any]:
    """The contents of a container; nnx's own are modules with numbered or named attributes."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if type(value).__name__ in ("List", "Dict") and type(value).__module__.startswith("flax.nnx"):
        items = value.items() if hasattr(value, "items") else enumerate(value)
        return dict(items)
    return {}
