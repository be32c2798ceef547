"""Callbacks on the import of a package: a program's imports show its framework.

The idea: a framework is not imported before the program imports it.  When that happens, its module
is created as usual, and before the program gets it, a function of ours runs.

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
    """Inside this context each function is called once, after its package is imported.

    If a package is already imported, its function is called at once.
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
    """Finds the same modules as other finders, and calls the function after a module is created."""

    def __init__(self, waiting: dict[str, Then]) -> None:
        self._waiting = waiting
        self._looking: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """As any finder; None for modules without a callback.

        Whoever asks may only want to know whether the module is installed.
        """
        if fullname not in self._waiting or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.remove(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            make = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                make(module)
                then = self._waiting.pop(fullname, None)
                if then is not None:
                    then()

            loader.exec_module = exec_module
        return spec
