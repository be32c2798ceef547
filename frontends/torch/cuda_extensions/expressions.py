"""Expressions of C++ host code on PyTorch's tensors, evaluated in Python.

The idea: PyTorch's C++ has the names of its Python: ``at::matmul(x, y.transpose(0, 1))``.  What is
written otherwise is translated, and the rest is evaluated by Python's own grammar.  What is not
understood is unknown, and so is all that follows from it.

    Scope({"x": x}, {}).value("torch::empty({x.size(0), 4}, x.options().dtype(at::kFloat))")
"""

from __future__ import annotations

import ast
import operator
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch


class Unknown(Exception):
    """What a text says is not known."""


#: Text of C++ -> text with Python's grammar.  Pointers are their tensors.
_PLAIN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\b(?:reinterpret|static|const)_cast\s*<[^()]*?>\s*(?=\()", ""),
        (r"\(\s*(?:const\s+)?[\w:]+(?:\s*<[\w:]+>)?(?:\s*\*)+\s*(?:const\s*)?\)(?=\s*[\w(&])", ""),
        (r"\(\s*(?:unsigned|int|float|double|long|size_t|u?int\d+_t)\s*\)(?=\s*[\w(])", ""),
        (r"\.\s*(?:template\s+)?(?:mutable_|const_)?data(?:_ptr)?\s*(?:<[^()]*?>)?\s*\(\s*\)", ""),
        (r"(?<=\w)\s*<[\w:\s,*]*>\s*(?=[({])", ""),
        (r"(?:\b\w+)?(?:\s*::\s*\w+)*\s*::\s*", ""),
        (r"->", "."),
        (r"\{", "["),
        (r"\}", "]"),
        (r"&&", " and "),
        (r"\|\|", " or "),
        (r"!(?!=)", " not "),
        (r"\bnullptr\b|\bnullopt\b", "None"),
        (r"\btrue\b", "True"),
        (r"\bfalse\b", "False"),
        (r"\b(\d[\d.]*(?:e[-+]?\d+)?)(?:[fF]|[uU]?[lL]{1,2}|[uU])\b", r"\1"),
    )
)

_DTYPES: Mapping[str, torch.dtype] = {
    "Float": torch.float32, "Float32": torch.float32, "Half": torch.float16,
    "Float16": torch.float16, "BFloat16": torch.bfloat16, "Double": torch.float64,
    "Float64": torch.float64, "Int": torch.int32, "Int32": torch.int32, "Long": torch.int64,
    "Int64": torch.int64, "Short": torch.int16, "Int16": torch.int16, "Char": torch.int8,
    "Int8": torch.int8, "Byte": torch.uint8, "UInt8": torch.uint8, "Bool": torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """``TensorOptions``: what a new tensor is like."""

    of: torch.dtype | None = None
    on: Any = None

    def changed(self, name: str, given: list[Any]) -> Options:
        """The options with something else; what is not about dtype or device changes nothing."""
        if name == "dtype":
            return replace(self, of=given[0])
        return replace(self, on=given[0]) if name == "device" else self

    def keywords(self) -> dict[str, Any]:
        """As Python's functions take them."""
        return {"dtype": self.of, "device": self.on}


def _asks(tensor: torch.Tensor) -> Mapping[str, Any]:
    """What a method without arguments gives that Python has otherwise, or not."""
    return {
        "sizes": list(tensor.shape), "strides": list(tensor.stride()), "ndimension": tensor.dim(),
        "scalar_type": tensor.dtype, "dtype": tensor.dtype, "type": tensor.dtype,
        "device": tensor.device, "options": Options(tensor.dtype, tensor.device),
        "get_device": tensor.device.index, "defined": True, "has_value": True, "value": tensor,
        "is_cuda": tensor.is_cuda, "itemsize": tensor.element_size(), "cuda": tensor,
    }  # fmt: skip


_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
}  # fmt: skip
#: First words of functions that make tensors, which take a dtype by its name.
_MAKING = frozenset(("empty", "zeros", "ones", "full", "arange", "rand", "randn", "tensor"))
_PLAIN_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min, "max": max, "make_tuple": lambda *items: tuple(items), "vector": list,
    "move": lambda item: item, "IntArrayRef": list, "TensorOptions": Options, "int": int,
    "dtype": lambda of: Options(of), "device": lambda on: Options(on=on),
    "getenv": os.environ.get, "atoi": int, "tie": lambda *items: tuple(items),
}  # fmt: skip


@dataclass(slots=True)
class Scope:
    """Names that host code sees: ``names`` of values, of ``functions`` in the sources, and of
    ``constants`` there, which are texts."""

    names: dict[str, Any]
    functions: Mapping[str, Callable[..., Any]]
    constants: Mapping[str, str] = field(default_factory=dict)

    def value(self, text: str) -> Any:
        """What an expression is.

        Raises:
            Unknown: it has parts that are not understood.
        """
        for pattern, plain in _PLAIN:
            text = pattern.sub(plain, text)
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise Unknown(text) from None
        return self._of(tree)

    def _of(self, tree: ast.AST) -> Any:
        match tree:
            case ast.Constant():
                return tree.value
            case ast.Name():
                return self._named(tree.id)
            case ast.List():
                return [self._of(item) for item in tree.elts]
            case ast.Subscript():
                return self._of(tree.value)[self._of(tree.slice)]
            case ast.UnaryOp() if type(tree.op) in _OPERATORS:
                return _OPERATORS[type(tree.op)](self._of(tree.operand))
            case ast.BoolOp():
                known = map(self._of, tree.values)
                return all(known) if isinstance(tree.op, ast.And) else any(known)
            case ast.Compare() if type(tree.ops[0]) in _OPERATORS and len(tree.ops) == 1:
                other = self._of(tree.comparators[0])
                return _OPERATORS[type(tree.ops[0])](self._of(tree.left), other)
            case ast.BinOp():
                return self._combined(tree)
            case ast.Call():
                return self._called(tree)
        raise Unknown(ast.unparse(tree))

    def _of_or_unknown(self, tree: ast.AST) -> Any:
        try:
            return self._of(tree)
        except Unknown as error:
            return error

    def _combined(self, tree: ast.BinOp) -> Any:
        one, other = self._of(tree.left), self._of(tree.right)
        if isinstance(tree.op, ast.Div):
            both = isinstance(one, int) and isinstance(other, int)
            return one // other if both else one / other
        if type(tree.op) not in _OPERATORS:
            raise Unknown(ast.unparse(tree))
        return _OPERATORS[type(tree.op)](one, other)

    def _named(self, name: str) -> Any:
        if name in self.names:
            found = self.names[name]
            if isinstance(found, Unknown):
                raise found
            return found
        if name[:1] == "k" and name[1:] in _DTYPES:
            return _DTYPES[name[1:]]
        if name == "kCUDA":
            return torch.device("cuda")
        if name in self.constants:
            return Scope({}, self.functions, self.constants).value(self.constants[name])
        raise Unknown(name)

    def _called(self, tree: ast.Call) -> Any:
        name = tree.func.id if isinstance(tree.func, ast.Name) else ""
        if name in self.functions:  # it may not use what is unknown, as a stream
            return self.functions[name](*map(self._of_or_unknown, tree.args))
        given = [self._of(item) for item in tree.args]
        if isinstance(tree.func, ast.Attribute):
            return _method(self._of(tree.func.value), tree.func.attr, given)
        if name in _PLAIN_FUNCTIONS:
            return _PLAIN_FUNCTIONS[name](*given)
        function = getattr(torch, name, None)
        if function is None:
            raise Unknown(name)
        return _with_options(function, given)


def _method(of: Any, name: str, given: list[Any]) -> Any:
    if isinstance(of, Options):
        return of.changed(name, given)
    if isinstance(of, torch.Tensor):
        if not given and name in _asks(of):
            return _asks(of)[name]
        return _with_options(getattr(of, name, None), given)
    if isinstance(of, list) and name in ("size", "vec"):
        return len(of) if name == "size" else of
    raise Unknown(name)


def _with_options(function: Any, given: list[Any]) -> Any:
    """A call of PyTorch, with options by their names."""
    if function is None:
        raise Unknown("a method that PyTorch does not have")
    made = getattr(function, "__name__", "").partition("_")[0] in _MAKING
    plain, named = list[Any](), dict[str, Any]()
    for item in given:
        like = Options(item) if made and isinstance(item, torch.dtype) else item
        if isinstance(like, Options):
            named |= {key: value for key, value in like.keywords().items() if value}
        else:
            plain.append(item)
    try:
        return function(*plain, **named)
    except TypeError as error:
        raise Unknown(str(error)) from None
