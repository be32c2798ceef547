"""``int(os.environ["RANK"])``, ``rank in ranks``, ``sizes[rank]``: the rank stays known.

The idea: modules whose source mentions ranks are compiled with functions in the places where Python
would use a rank unseen (``followed_code.py``); everything else in them, line numbers included,
stays unchanged.

    followed_code(b"rank = int(os.environ['RANK'])", "train.py")
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from flint.launching.followed_code import changed, speaks_of_ranks
from flint.launching.followed_functions import FUNCTIONS

#: Packages that get plain ranks: they know the program's from Flint, or theirs are numbers of dims
#: and ranks of matrices.
_PLAIN = frozenset(
    {"flint", "jax", "jaxlib", "keras", "mpmath", "numpy", "scipy", "sympy", "tensorflow", "torch"}
)


def followed_code(source: bytes, path: str) -> CodeType:
    """A module's code, with what Python does with ranks followed."""
    if not speaks_of_ranks(source, _is_own(path)):
        return _compiled(source, path)
    return _compiled(changed(source, path, _is_own(path)), path)


def _is_own(path: str) -> bool:
    """Whether a module is the program's own, not an installed package's."""
    return "-packages" not in path


@contextmanager
def followed_imports(folder: Path) -> Iterator[None]:
    """Inside this context, modules are imported with such code.

    Args:
        folder: keeps the code, for processes that import the same modules afterwards.
    """
    vars(builtins).update(FUNCTIONS)
    finder = _Finder(folder)
    place = next((at for at, item in enumerate(sys.meta_path) if item is PathFinder), 0)
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _compiled(source: bytes | ast.Module, path: str) -> CodeType:
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


class _Loader(SourceFileLoader):
    """A loader for sources that mention ranks, with a folder of its own for compiled ones."""

    def __init__(self, fullname: str, path: str, folder: Path) -> None:
        super().__init__(fullname, path)
        self._folder = folder

    def get_code(self, fullname: str) -> CodeType | None:
        before, sys.pycache_prefix = sys.pycache_prefix, str(self._folder)
        try:
            return super().get_code(fullname)
        finally:
            sys.pycache_prefix = before

    def source_to_code(  # type: ignore[override]  # static in one base's stub, not in another's
        self, data: Any, path: Any, **_: Any
    ) -> CodeType:
        return followed_code(bytes(data), str(path))


class _Finder(MetaPathFinder):
    """Finds the same modules as Python's own finder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or _is_plain(fullname):
            return spec
        path = spec.loader.path
        if speaks_of_ranks(spec.loader.get_data(path), _is_own(path)):
            spec.loader = _Loader(fullname, path, self._folder)
        return spec


def _is_plain(name: str) -> bool:
    """Whether a module gets plain ranks."""
    return name.partition(".")[0] in _PLAIN
