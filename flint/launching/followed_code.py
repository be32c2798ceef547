"""What Python does with a rank out of its sight, in the syntax of a module.

The idea: ``int(text)`` returns a plain number; ``rank in ranks`` compares with one number after the
other, which does not show where a list ends; ``sizes[rank]`` and ``range(rank)`` compare with none.
Each becomes a call of a function that asks the rank itself.  In a program's own modules so does
every index that is no constant, and every text that is made of values, since they may be ranks
under another name; in installed packages indices that name a rank.  ``type(tensor) is type(other)``
asks the tensors, which may stand for others.

    changed(b"x = sizes[rank]", "x.py", own=False)    # x = __flint_at__(sizes, rank)
"""

from __future__ import annotations

import ast
import bisect
import re
from typing import Any, TypeGuard

from flint.launching.followed_calls import METHODS, Names, is_pythons
from flint.launching.followed_functions import NAMES
from flint.launching.followed_texts import parts_of

_INT, _AMONG, _AT, _AT_OR, _PART, _LOOP, _TEXT, _SLICE, _TYPE, _CALL, _JOIN, _PUT, *_MORE = NAMES
_METHOD, _EVAL, _PATH, _SPAN = _MORE

#: Python's function -> the one in its place.
_INSTEAD = {"int": _INT, "range": _LOOP, "type": _TYPE, "eval": _EVAL}

_RANK = re.compile(rb"rank", re.IGNORECASE)
#: A rank that may be looked for in a container, or may be an index.
_USED = re.compile(rb"rank[^\n]{0,60}?\sin\s|(\[|\.get\(|range\()[^\n]{0,60}?rank")

#: What names a rank or one of Python's functions.
_NAMED = re.compile(rb"rank|\bint\b|\brange\b|\btype\(", re.IGNORECASE)
#: A type that is compared.
_TYPES = re.compile(
    rb"\btype\([^()\n]*\)\s*(?:is\b|in\b|not\b|[=!]=)|(?:\bis|\bnot|[=!]=)\s*type\("
)


def speaks_of_ranks(source: bytes, own: bool) -> bool:
    """Whether a module may do such things with a rank, or compares types of tensors.

    Args:
        source: the module's.
        own: whether it is the program's own, not an installed package's.
    """
    if b"torch" in source and _TYPES.search(source):
        return True
    if own:
        return bool(_RANK.search(source))
    if b"RANK" in source and b"int(" in source:
        return True
    lines = source.lower().splitlines(keepends=True)  # few name a rank: the search takes longer
    return any(b"rank" in line and _USED.search(line) for line in lines)


#: Python's functions that go over what they are given, or count it.
_GO_OVER = frozenset(
    ("all", "any", "enumerate", "filter", "iter", "len", "list", "map", "max", "min", "reversed",
     "set", "sorted", "sum", "tuple", "zip")
)  # fmt: skip


def changed(source: bytes, path: str, own: bool) -> ast.Module:
    """A module's syntax, with the functions in their places."""
    tree = ast.parse(source, path)
    following = _Following(own, source)
    if own:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                following.names.see(node)
    following.visit(tree)
    for function in following.called:
        if function.id not in following.others:
            function.id = _INSTEAD[function.id]
    for call, function in following.given:
        if function.id not in following.others:
            call.func, call.args = ast.Name(_CALL, ast.Load()), [function, *call.args]
            ast.fix_missing_locations(ast.copy_location(call.func, call))
    return tree


class _Following(ast.NodeTransformer):
    """Puts the functions where ``int`` is called, a rank is looked for, an item is read, ...

    Of a package it visits only statements with a line that may need one: these are few.

    Attributes:
        own: whether the module is the program's own.
        called: calls of Python's functions, unless the module gives these names to others.
        given: calls of Python's functions that may be given a rank, unless the same holds.
        others: names that the module gives to something.
        names: of modules whose functions may be given a rank.
    """

    def __init__(self, own: bool, source: bytes) -> None:
        """Nothing is visited yet."""
        self.own = own
        self.called: list[ast.Name] = []
        self.given: list[tuple[ast.Call, ast.Name]] = []
        self.others: set[str] = set()
        self.names = Names()
        lines = source.splitlines()
        self._lines = [at for at, line in enumerate(lines, 1) if _NAMED.search(line)]

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt) and not (self.own or self._is_named_in(node)):
            return node
        return super().visit(node)

    def _is_named_in(self, node: ast.stmt) -> bool:
        """Whether one of the lines belongs to a statement or to its decorators."""
        decorators = getattr(node, "decorator_list", ())
        first = decorators[0].lineno if decorators else node.lineno
        at = bisect.bisect_left(self._lines, first)
        return at < len(self._lines) and self._lines[at] <= (node.end_lineno or first)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            self.others.add(node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func
        if _is(function, "int") or (self.own and _is(function, "eval")):
            self.called.append(function)
        if isinstance(function, ast.Name) and function.id in _GO_OVER:
            for item in node.args:
                self._range(item)
        is_get = isinstance(function, ast.Attribute) and function.attr == "get"
        if is_get and len(node.args) in (1, 2) and not node.keywords and self._may(node.args[0]):
            return _called(_AT_OR, node, function, *node.args)
        name = getattr(function, "attr", None) or getattr(function, "id", None)
        if name == "islice" and self.own and len(node.args) in (2, 3, 4) and not node.keywords:
            return _called(_SLICE, node, function, *node.args)
        text = self._text(node)
        return text if text is not node else self._function(node)

    def _function(self, node: ast.Call) -> ast.expr:
        """A call of a function in C that may be given a rank."""
        function, given = node.func, node.args or node.keywords
        if not (self.own and given):
            return node
        if isinstance(function, ast.Name) and is_pythons(function.id):
            self.given.append((node, function))
            return node
        name, by = function.attr if isinstance(function, ast.Attribute) else "", ""
        if name == "join" or self.names.follows(function):
            by = _JOIN if name == "join" else _CALL
        elif name in METHODS:
            by = _METHOD
        if not by:
            return node
        call = ast.Call(ast.Name(by, ast.Load()), [function, *node.args], node.keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_BinOp(self, node: Any) -> Any:
        self.generic_visit(node)
        by = "right" if isinstance(node, ast.BinOp) else "value"
        part = getattr(node, by)
        if self.own and isinstance(node.op, ast.Div) and not isinstance(part, ast.Constant):
            setattr(node, by, _called(_PATH, part, part))  # it may be put behind a path
        return self._text(node)

    visit_AugAssign = visit_BinOp

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self._values(node)
        return self._text(node)

    def _values(self, node: ast.JoinedStr) -> None:
        """Only what a text is made of: the form of a value has to stay one."""
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                piece.value = self.visit(piece.value)
                if isinstance(piece.format_spec, ast.JoinedStr):
                    self._values(piece.format_spec)

    def _text(self, node: Any) -> Any:
        parts = parts_of(node) if self.own else None
        return node if parts is None else _called(_TEXT, node, parts[0], *parts[1])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        for side in (node.left, *node.comparators):
            if isinstance(side, ast.Call) and _is(side.func, "type") and len(side.args) == 1:
                self.called.append(side.func)
        is_in = len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)
        if not (is_in and self._may(node.left)):
            return node
        among = _called(_AMONG, node, node.left)
        where: ast.expr = ast.Call(among, [node.comparators[0]], [])
        if isinstance(node.ops[0], ast.NotIn):
            where = ast.UnaryOp(ast.Not(), where)
        return ast.fix_missing_locations(ast.copy_location(where, node))

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        self.generic_visit(node)
        self._range(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        index = node.slice
        if isinstance(node.ctx, ast.Store) and self._puts(node):
            container = ast.parse(ast.unparse(node.value), mode="eval").body
            node.slice = _called(_PUT, node, container, index)
        if not isinstance(node.ctx, ast.Load):
            return node
        if isinstance(index, ast.Tuple):
            if not (self.own and any(map(self._may, index.elts))):
                return node
            index.elts = [_span(item) for item in index.elts]
            return _called(_AT, node, node.value, index)
        if not isinstance(index, ast.Slice):
            return _called(_AT, node, node.value, index) if self._may(index) else node
        ends = [end or ast.Constant(None) for end in (index.lower, index.upper, index.step)]
        return _called(_PART, node, node.value, *ends) if any(map(self._may, ends)) else node

    def _puts(self, node: ast.Subscript) -> bool:
        """Whether one item of a container with a name is written."""
        one = not isinstance(node.slice, ast.Slice | ast.Tuple) and self._may(node.slice)
        named = (ast.Name, ast.Attribute, ast.Load)
        return self.own and one and all(isinstance(part, named) for part in ast.walk(node.value))

    def _loop(self, node: ast.For | ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        self._range(node.iter)
        return node

    visit_For = visit_comprehension = _loop

    def _range(self, node: ast.expr) -> None:
        """What is gone over; it may be a range."""
        if isinstance(node, ast.Call) and _is(node.func, "range"):
            self.called.append(node.func)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.others.add(node.name)
        return self._without(node, "returns")

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.others.add(node.name)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg | ast.AnnAssign) -> ast.AST:
        return self._without(node, "annotation")

    visit_AnnAssign = visit_arg

    def _without(self, node: Any, part: str) -> ast.AST:
        """All of a node but its annotation, which others read as text."""
        kept = getattr(node, part)
        setattr(node, part, None)
        self.generic_visit(node)
        setattr(node, part, kept)
        return node  # type: ignore[no-any-return]  # of one of four classes

    def _may(self, index: ast.expr) -> bool:
        """Whether an index, or what is looked for, may follow from a rank."""
        if self.own:
            ends = (
                (index.lower, index.upper, index.step) if isinstance(index, ast.Slice) else [index]
            )
            return not all(end is None or _is_plain(end) for end in ends)
        return any(map(_names_a_rank, ast.walk(index)))


def _is(function: ast.expr, name: str) -> TypeGuard[ast.Name]:
    return isinstance(function, ast.Name) and function.id == name


def _is_plain(index: ast.expr) -> bool:
    """Whether an index is a constant, as 3 and -1, or is unpacked."""
    while isinstance(index, ast.UnaryOp):
        index = index.operand
    return isinstance(index, ast.Constant | ast.Starred)


def _called(name: str, at: ast.expr, *arguments: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
    return ast.fix_missing_locations(ast.copy_location(call, at))


def _span(index: ast.expr) -> ast.expr:
    """A slice in a tuple, as a call that makes it."""
    if not isinstance(index, ast.Slice):
        return index
    ends = [end or ast.Constant(None) for end in (index.lower, index.upper, index.step)]
    return _called(_SPAN, index, *ends)


def _names_a_rank(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return "rank" in name.lower()
