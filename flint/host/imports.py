"""Calls when a package is imported: who a program is for is known by what it imports.

The idea: nothing of a framework is imported before the program does.  When it does, its module is
made as always, and before the program gets it, a function of ours runs.

    with after_import({"torch": begin}): runpy.run_path("train.py")
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[], None]


@contextmanager
def after_import(calls: Mapping[str, Then]) -> Iterator[None]:
    """Within it each function is called once, after its package is imported.

    Where a package is imported already, its function is called at once.
    """
    finder = watch_imports(calls)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def watch_imports(calls: Mapping[str, Then]) -> MetaPathFinder:
    """From now on each function is called once, after its package is imported; see above."""
    for name, then in calls.items():
        if name in sys.modules:
            then()
    finder = _Finder({name: then for name, then in calls.items() if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    return finder


class _Finder(MetaPathFinder):
    """Finds what the others find, and has the function called after it is made."""

    def __init__(self, waiting: dict[str, Then]) -> None:
        self._waiting = waiting

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """As any finder; None for what nobody waits for."""
        then = self._waiting.pop(fullname, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            make = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                make(module)
                then()

            loader.exec_module = exec_module
        return spec
