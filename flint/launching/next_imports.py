"""The modules that a program imports next, when it asks for its rank before it imports them.

The idea: a process is copied where the program first asks for its rank, and what it imports after
that, each copy would import for itself; for Megatron-LM's ``pretrain_gpt.py`` that takes longer
than its step.  So the imports that follow in the same file are done before the copies are made.
They may only be separated by statements that no import depends on: definitions, names for what is
there, filters of warnings.

    list(next_imports(sys._getframe()))       # ["torch", "megatron.core"]
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from flint.capturing.user_frames import is_ours

#: Modules whose functions and variables only decide what is printed.
_PRINTING = frozenset({"warnings"})
#: Python's own files between a program's line and the variable that it reads.
_VARIABLES = frozenset({"os", "collections.abc"})


def import_next(frame: FrameType | None) -> None:
    """Import them.  What fails, fails again where the program imports it."""
    with suppress(Exception):
        for name in next_imports(frame):
            importlib.import_module(name)


def next_imports(frame: FrameType | None) -> Iterator[str]:
    """Names of the modules that the program's main file imports next, in order.

    A name may only be known once the one before it has been imported.

    Args:
        frame: what runs now; nothing is imported next if other code than the main file's first
            level has called it.
    """
    while frame is not None and _passes_on(frame):
        frame = frame.f_back
    main = vars(sys.modules["__main__"])
    if frame is None or frame.f_globals is not main or frame.f_code.co_name != "<module>":
        return
    try:
        tree = ast.parse(Path(frame.f_code.co_filename).read_bytes())
    except (OSError, SyntaxError, ValueError):  # a notebook's code is in no file
        return
    following = [one for one in tree.body if one.lineno > frame.f_lineno]
    yield from _imported(following, str(main.get("__package__") or ""))


def _passes_on(frame: FrameType) -> bool:
    return is_ours(frame.f_code.co_filename) or frame.f_globals.get("__name__") in _VARIABLES


def _imported(statements: Sequence[ast.stmt], package: str) -> Iterator[str]:
    for one in statements:
        if isinstance(one, ast.Import):
            yield from (item.name for item in one.names)
        elif isinstance(one, ast.ImportFrom):
            yield from _from(one, package)
        elif not _is_quiet(one):
            return


def _from(one: ast.ImportFrom, package: str) -> Iterator[str]:
    """The module, and those of its parts that are modules, which it is asked for later."""
    name = one.module or ""
    if one.level:
        name = importlib.util.resolve_name("." * one.level + name, package)
    yield name
    module = sys.modules.get(name)
    for item in one.names:
        if hasattr(module, "__path__") and not hasattr(module, item.name) and item.name != "*":
            yield f"{name}.{item.name}"


def _is_quiet(one: ast.stmt) -> bool:
    """Whether no import can depend on a statement."""
    if isinstance(one, ast.If):
        return _is_plain(one.test) and all(map(_is_quiet, (*one.body, *one.orelse)))
    if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
        given = (*one.args.defaults, *one.args.kw_defaults, *one.decorator_list)
        return all(item is None or _is_plain(item) for item in given) and not one.decorator_list
    if isinstance(one, ast.Expr):
        return isinstance(one.value, ast.Constant) or _prints(one.value)
    if isinstance(one, ast.Assign):
        targets = all(isinstance(item, ast.Name) or _prints(item) for item in one.targets)
        return targets and _is_plain(one.value)
    return isinstance(one, ast.Pass)


def _is_plain(value: ast.expr) -> bool:
    """Whether a value calls nothing."""
    calling = (ast.Call, ast.Subscript, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return not any(isinstance(part, calling) for part in ast.walk(value))


def _prints(value: ast.expr) -> bool:
    """Whether it is of a module that decides what is printed: ``warnings.filterwarnings(...)``."""
    if isinstance(value, ast.Call):
        given = (*value.args, *(item.value for item in value.keywords))
        return all(map(_is_plain, given)) and _prints(value.func)
    while isinstance(value, ast.Attribute):
        value = value.value
        if isinstance(value, ast.Name):
            return value.id in _PRINTING
    return False
