"""``FILE.py:FUNCTION``: the training step in a user's file.

The idea: the file is imported as ``python FILE.py`` would, with its own folder first on the path,
but not as ``__main__``.  Any error in it becomes one line that names the user's line.

    step = load_step("train.py:train_step")         # a function, or what @flint.capture made of it
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from flint.capturing.decorator import Capture
from flint.capturing.user_frames import one_line, short_path, user_frame
from flint.errors import FlintError, UsageError

#: The number of names that an error lists.
_LISTED = 12


def load_step(target: str) -> tuple[Any, ModuleType]:
    """The object that ``FILE.py:FUNCTION`` names, and its module.

    A dotted name is resolved through classes.  A jitted ``Capture`` is returned as a capture of the
    jitted function.

    Raises:
        UsageError: no such file or function; the text lists the existing functions.
        FlintError: the file cannot be imported.
    """
    file, colon, name = target.rpartition(":")
    if not colon:
        file, name = target, ""
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file}: no such file (expected FILE.py:FUNCTION)")
    if path.suffix != ".py":
        raise UsageError(f"{file}: not a Python file; use `flint convert` for saved programs")
    module = _import(path)
    if not name:
        raise UsageError(f"{target} names no function (FILE.py:FUNCTION); {_there_are(module)}")
    found = find(module, name, f"{short_path(str(path))}: no function {name!r}")
    if not callable(found):
        raise UsageError(
            f"{target} is {type(found).__name__}, not a function; {_there_are(module)}"
        )
    inner = getattr(found, "__wrapped__", None)
    if isinstance(inner, Capture) and not isinstance(found, Capture):
        found = inner.of(found)
    return found, module


def find(module: ModuleType, name: str, otherwise: str) -> Any:
    """The object of that (dotted) name in a user's module.

    Raises:
        UsageError: no such object; the text begins with ``otherwise``.
    """
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{otherwise}; {_there_are(module)}") from None
    return found


def _import(path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules or not name.isidentifier():  # a step file may be called jax.py
        name = f"_flint_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, FlintError):
            raise
        where = user_frame(error) or short_path(str(path))
        what = f"{type(error).__name__}: {one_line(error)}"
        raise FlintError(f"{where}: the file cannot be imported: {what}") from error
    return module


def _there_are(module: ModuleType) -> str:
    """The functions that a user may have meant: those defined in the file, captured ones first."""
    captured, others = [], []
    for name, value in vars(module).items():
        if isinstance(value, Capture):
            captured.append(name)
        elif (
            callable(value)
            and not inspect.isclass(value)
            and not name.startswith("_")
            # Functions of other modules are imports, not steps.
            and getattr(value, "__module__", None) == module.__name__
        ):
            others.append(name)
    names = [*captured, *others]
    if not names:
        return "the file defines no function"
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"the file has: {listed}"
