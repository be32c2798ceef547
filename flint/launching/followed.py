"""``int(os.environ["RANK"])``: a text with a known value on every rank stays known as a number.

The idea: ``int()`` returns a plain number, whose later uses cannot be observed.  In modules whose
source mentions ranks, calls of ``int`` become calls of a function that lets its argument convert
itself; everything else in them, line numbers included, stays unchanged.

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
from types import CodeType, ModuleType
from typing import Any

#: What a source must contain to be changed.
_SPEAKS_OF = (b"RANK", b"int(")
_FUNCTION = "__flint_int__"
#: Method with which a value converts itself to a number.
METHOD = "followed_int"


def _number(*args: Any, **kwargs: Any) -> Any:
    """As ``int``."""
    own = getattr(args[0], METHOD, None) if len(args) == 1 and not kwargs else None
    return int(*args, **kwargs) if own is None else own()


def followed_code(source: bytes, path: str) -> CodeType:
    """A module's code, with conversions from text to numbers followed."""
    if not all(word in source for word in _SPEAKS_OF):
        return _compiled(source, path)
    tree = ast.parse(source, path)
    own = any(isinstance(node, ast.Name) and node.id == "int" and not _is_read(node)
              for node in ast.walk(tree))  # fmt: skip
    calls = () if own else (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id == "int":
            call.func.id = _FUNCTION
    return _compiled(tree, path)


@contextmanager
def followed_imports() -> Iterator[None]:
    """Inside this context, modules are imported with such code."""
    vars(builtins)[_FUNCTION] = _number
    finder = _Finder()
    place = next((at for at, item in enumerate(sys.meta_path) if item is PathFinder), 0)
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _compiled(source: bytes | ast.Module, path: str) -> CodeType:
    code: CodeType = compile(source, path, "exec", dont_inherit=True)
    return code


class _Loader(SourceFileLoader):
    """A loader for sources that mention ranks; their compiled files are not used."""

    def get_code(self, fullname: str) -> CodeType | None:
        return followed_code(self.get_data(self.path), self.path)


class _Finder(MetaPathFinder):
    """Finds the same modules as Python's own finder."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or _is_frameworks(fullname):
            return spec
        if all(word in spec.loader.get_data(spec.loader.path) for word in _SPEAKS_OF):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def _is_frameworks(name: str) -> bool:
    """Whether a module gets plain ranks."""
    return name.partition(".")[0] in ("torch", "jax", "flint", "numpy")
