"""``int(os.environ["RANK"])`` and ``rank in ranks``: what Python does with a rank stays known.

The idea: ``int()`` returns a plain number, whose later uses cannot be observed, and ``in`` compares
with one number after the other, which does not show where a list ends.  In modules whose source
mentions ranks, both become calls of functions that ask the rank itself; everything else in them,
line numbers included, stays unchanged.

    followed_code(b"rank = int(os.environ['RANK'])", "train.py")
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

#: Method with which a value converts itself to a number, and one that looks for it in a container.
METHOD, AMONG = "followed_int", "followed_among"
_INT, _IN = "__flint_int__", "__flint_in__"

#: A rank that may be looked for in a container.
_RANK_IN = re.compile(rb"rank[^\n]{0,60}?\sin\s", re.IGNORECASE)


def _speaks_of_ranks(source: bytes) -> bool:
    """Whether a module may make a number of a launcher's variable, or look for a rank."""
    return (b"RANK" in source and b"int(" in source) or bool(_RANK_IN.search(source))


def _number(*args: Any, **kwargs: Any) -> Any:
    """As ``int``."""
    own = getattr(args[0], METHOD, None) if len(args) == 1 and not kwargs else None
    return int(*args, **kwargs) if own is None else own()


def _among(item: Any) -> Callable[[Any], Any]:
    """What tells whether a container holds the item, to be called by the program's own line."""
    own: Callable[[Any], Any] | None = getattr(item, AMONG, None)
    return own or (lambda container: item in container)


#: Name -> the function that changed code calls.
_FUNCTIONS = {_INT: _number, _IN: _among}


def followed_code(source: bytes, path: str) -> CodeType:
    """A module's code, with what Python does with ranks followed."""
    if not _speaks_of_ranks(source):
        return _compiled(source, path)
    return _compiled(_Following().changed(ast.parse(source, path)), path)


class _Following(ast.NodeTransformer):
    """Puts the functions where ``int`` is called and a rank is looked for."""

    def changed(self, tree: ast.Module) -> ast.Module:
        self._numbers = not any(
            isinstance(node, ast.Name) and node.id == "int" and not isinstance(node.ctx, ast.Load)
            for node in ast.walk(tree)
        )
        self.visit(tree)
        return tree

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if self._numbers and isinstance(node.func, ast.Name) and node.func.id == "int":
            node.func.id = _INT
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if not (len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)):
            return node
        if not any(map(_names_a_rank, ast.walk(node.left))):
            return node
        where: ast.expr = ast.Name(_IN, ast.Load())
        for argument in (node.left, node.comparators[0]):
            where = ast.Call(where, [argument], [])
        if isinstance(node.ops[0], ast.NotIn):
            where = ast.UnaryOp(ast.Not(), where)
        return ast.fix_missing_locations(ast.copy_location(where, node))


def _names_a_rank(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return "rank" in name.lower()


@contextmanager
def followed_imports(folder: Path) -> Iterator[None]:
    """Inside this context, modules are imported with such code.

    Args:
        folder: keeps the code, for processes that import the same modules afterwards.
    """
    vars(builtins).update(_FUNCTIONS)
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
        if spec is None or type(spec.loader) is not SourceFileLoader or _is_frameworks(fullname):
            return spec
        if _speaks_of_ranks(spec.loader.get_data(spec.loader.path)):
            spec.loader = _Loader(fullname, spec.loader.path, self._folder)
        return spec


def _is_frameworks(name: str) -> bool:
    """Whether a module gets plain ranks."""
    return name.partition(".")[0] in ("torch", "jax", "flint", "numpy")
