"""Texts that a program makes of a rank: ``f"stage{rank}"``, ``"stage%d" % rank``.

The idea: Python makes a plain text of them, which no longer knows the rank.  So the text becomes a
function of its values, which can be called with those of other ranks too.

    parts_of(ast.parse('f"stage{rank}"', mode="eval").body)   # lambda _0: f"stage{_0}"; [rank]
"""

from __future__ import annotations

import ast


def parts_of(node: ast.expr) -> tuple[ast.expr, list[ast.expr]] | None:
    """What makes a text, and the values that it makes it of; None of other expressions.

    Args:
        node: an f-string, or a constant text's ``%`` or ``format`` with arguments by place.
    """
    if isinstance(node, ast.JoinedStr):
        return _of_pieces(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
        many = node.right
        if isinstance(many, ast.Dict) and all(isinstance(key, ast.Constant) for key in many.keys):
            table = ast.Dict(many.keys, list(_places(len(many.values))))
            named = _function(len(many.values), ast.BinOp(node.left, ast.Mod(), table))
            return named, many.values
        values = many.elts if isinstance(many, ast.Tuple) else [many]
        if isinstance(many, ast.Dict) or any(isinstance(item, ast.Starred) for item in values):
            return None
        places = _places(len(values))
        given: ast.expr = places[0]
        if isinstance(many, ast.Tuple):
            given = ast.Tuple(list(places), ast.Load())
        return _function(len(values), ast.BinOp(node.left, ast.Mod(), given)), values
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        makes = node.func.attr == "format" and _is_text(node.func.value)
        plain = not node.keywords and not any(isinstance(item, ast.Starred) for item in node.args)
        return (node.func, node.args) if makes and plain and node.args else None
    return None


def _of_pieces(node: ast.JoinedStr) -> tuple[ast.expr, list[ast.expr]] | None:
    values: list[ast.expr] = []

    def named(pieces: ast.JoinedStr) -> ast.JoinedStr:
        """The same text of parameters, in the order in which Python asks for the values."""
        made: list[ast.expr] = []
        for piece in pieces.values:
            if isinstance(piece, ast.FormattedValue):
                values.append(piece.value)
                place = ast.Name(_name(len(values) - 1), ast.Load())
                form = piece.format_spec
                spec = named(form) if isinstance(form, ast.JoinedStr) else form
                piece = ast.FormattedValue(place, piece.conversion, spec)
            made.append(piece)
        return ast.JoinedStr(made)

    text = named(node)
    return (_function(len(values), text), values) if values else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _name(at: int) -> str:
    return f"_{at}"


def _places(count: int) -> list[ast.Name]:
    return [ast.Name(_name(at), ast.Load()) for at in range(count)]


def _function(count: int, body: ast.expr) -> ast.Lambda:
    names = [ast.arg(_name(at)) for at in range(count)]
    return ast.Lambda(
        ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[]), body
    )
