"""Packages that a program imports and that are not installed: all of them, not only the first.

The idea: a program ends at its first import that fails.  Its own files say what else they import
when they are imported; an import inside a condition, a ``try`` or a function may not be needed.

    unmet(own_files(error))     # {"wandb": "train.py:4", "einops": "model/layers.py:2"}
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import traceback
from collections.abc import Collection, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from flint.capturing.user_frames import is_programs, short_path

#: Up to so many files of the program are read.
_MOST_FILES = 2_000
#: Statements whose bodies always run.
_ALWAYS = (ast.ClassDef, ast.With)


def own_files(error: BaseException) -> set[str]:
    """The program's own files that were imported, or whose import has ended with an error."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return {os.path.abspath(file) for file in files if isinstance(file, str) and is_programs(file)}


def unmet(files: Collection[str]) -> dict[str, str]:
    """Packages that are not installed, and the first line that imports each.

    Args:
        files: the program's own files to start from; those that they import are read as well.
    """
    found: dict[str, str] = {}
    waiting, seen = sorted(files), set(files)
    while waiting and len(seen) <= _MOST_FILES:
        file = waiting.pop(0)
        for line, folder, name in _imports(file):
            spec = _spec(name[0], folder)
            if spec is None:
                if folder is None:
                    found.setdefault(name[0], f"{short_path(file)}:{line}")
                continue
            for module in _own_parts(spec, name):
                if module not in seen:
                    seen.add(module)
                    waiting.append(module)
    return found


def _imports(file: str) -> Iterator[tuple[int, str | None, tuple[str, ...]]]:
    """What a file always imports: (line, folder that a relative name counts from, parts)."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    while body:
        node = body.pop(0)
        if isinstance(node, _ALWAYS):
            body.extend(node.body)
        elif isinstance(node, ast.Import):
            for item in node.names:
                yield node.lineno, None, tuple(item.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            folder = str(Path(file).parents[node.level - 1]) if node.level else None
            parts = tuple(node.module.split(".")) if node.module else ()
            for item in node.names:
                if parts or item.name != "*":
                    yield node.lineno, folder, (*parts, item.name)


def _spec(name: str, folder: str | None, inside: ModuleSpec | None = None) -> ModuleSpec | None:
    """Where a module is, without importing anything."""
    try:
        if inside is not None:
            return PathFinder.find_spec(name, inside.submodule_search_locations)
        if folder is not None:
            return PathFinder.find_spec(name, [folder])
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        # A module without a spec (``__main__``) is there; what a finder refuses is not known.
        return ModuleSpec(name, None)


def _own_parts(spec: ModuleSpec | None, name: tuple[str, ...]) -> Iterator[str]:
    """The program's own files among the packages and the module of a dotted name."""
    for part in (*name[1:], None):
        if spec is None:
            return
        if spec.origin is not None and spec.has_location and is_programs(spec.origin):
            yield spec.origin
        if part is None or spec.submodule_search_locations is None:
            return
        spec = _spec(part, None, spec)
