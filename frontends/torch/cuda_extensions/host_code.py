"""Host code of an extension, followed statement by statement; its kernels are recorded.

The idea: a host function checks its arguments, makes tensors, calls PyTorch's ops and launches
kernels.  Ops run as they stand there, so that products keep their sizes; a launch is one op of the
kernel's name that reads its tensors and writes those that the kernel's text stores to.

    HostCode(read(texts)).functions["forward"](x, weight)
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch

from flint.errors import FlintError
from flint.frontends.torch.cuda_extensions.expressions import Scope, Unknown
from flint.frontends.torch.cuda_extensions.reading import (
    Function,
    Sources,
    closing,
    split,
)
from flint.frontends.torch.inductor.launched import record

#: A kernel's name, its grid, and the place of its arguments.
_LAUNCH = re.compile(r"([\w:]+)\s*(?:<[^;()]*?>)?\s*<<<.*?>>>\s*(?=\()", re.DOTALL)
_DECLARED = re.compile(
    r"^\s*(?:const\s+|constexpr\s+|static\s+)*(?:auto|[\w:]+(?:\s*<[\w:\s,<>*]*>)?)\s*[&*]*\s*"
    r"(?:\[([\w\s,]+)\]|(\w+))\s*=(?!=)\s*(.*)$",
    re.DOTALL,
)
_ASSIGNED = re.compile(r"^(\w+)\s*=(?!=)\s*(.*)$", re.DOTALL)
_CALL = re.compile(r"^[\w:.>-]+(?:\s*<[\w:\s,*]*>)?\s*\(")
_LOOP = re.compile(
    r"^[\w:\s]+?\b(\w+)\s*=\s*(.+?);\s*\1\s*(<=?)\s*(.+?);\s*(?:\+\+\s*\1|\1\s*\+\+)$"
)
#: A store through a pointer of a name: ``x[i[j]] = ``, ``*x = ``, ``atomicAdd(&x[i], ...)``.
_STORE = (
    r"\b{0}\s*\[[^][;]*(?:\[[^]]*\][^][;]*)*\]\s*[-+*/|&^]?=(?!=)",
    r"\*\s*\(?\s*{0}\b[^;=]*?[-+*/|&^]?=(?!=)",
    r"\batomic\w*\s*\(\s*&?\s*\(?\s*{0}\b", r"\(\s*&?\s*{0}\s*[,+)]", r",\s*&?\s*{0}\s*[,+)]",
    r"<[^<>;]*\*\s*>\s*\(\s*&?\s*{0}\b",
)  # fmt: skip
#: A pointer to where another points.
_ALIAS = r"\*\s*(?:__restrict__\s*|const\s*)*(\w+)\s*=[^;]*?\b{0}\b(?!\s*\[)"


class _Returned(Exception):
    """The end of a function, with its result."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class HostCode:
    """The functions of an extension, to be called with tensors.

    Attributes:
        functions: by their names.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.functions: dict[str, Callable[..., Any]] = {
            name: functools.partial(self._call, name)
            for name, found in sources.functions.items()
            if not all(item.is_kernel for item in found)
        }

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        takes = [item for item in self._sources.functions[name] if not item.is_kernel]
        function = next(
            (item for item in takes if len(item.parameters) == len(given) + len(named)), takes[0]
        )
        values = dict(zip((item.name for item in function.parameters), given, strict=False)) | named
        scope = Scope(values, self.functions, self._sources.constants)
        for item in function.parameters[len(given) :]:
            if item.name not in named:
                _bind(scope, item.name, item.default or "nullptr")
        try:
            self._run(function.body, scope, function)
        except _Returned as returned:
            is_tuple = "tuple" in function.result and isinstance(returned.value, list)
            return tuple(returned.value) if is_tuple else returned.value
        return None

    def _run(self, body: str, scope: Scope, function: Function) -> None:
        at = 0
        while at < len(body):
            rest = body[at:]
            blank = len(rest) - len(rest.lstrip(" \t\n;"))
            if blank:
                at += blank
                continue
            if rest.startswith("{"):
                end = closing(body, at)
                self._run(body[at + 1 : end], scope, function)
                at = end + 1
            elif re.match(r"(if|for|while|switch|do|try)\b", rest):
                at = self._controlled(body, at, scope, function)
            else:
                end = _end(body, at)
                self._statement(body[at:end].strip(), scope, function)
                at = end + 1

    def _controlled(self, body: str, at: int, scope: Scope, function: Function) -> int:
        """Run what a condition or a loop says; where it ends."""
        word = re.match(r"\w+", body[at:])
        assert word is not None
        opened = body.index("(", at)
        closed = closing(body, opened)
        asked = body[opened + 1 : closed]
        inner, after = _block(body, closed + 1)
        otherwise = re.match(r"\s*else\b", body[after:])
        other = ""
        if word[0] == "if" and otherwise is not None:
            other, after = _block(body, after + otherwise.end())
        try:
            if word[0] == "if":
                if (declared := _DECLARED.match(asked)) is not None:
                    _bind(scope, declared[2], declared[3])
                    asked = declared[2]
                self._run(inner if scope.value(asked) else other, scope, function)
            elif word[0] == "for" and (loop := _LOOP.match(asked.strip())) is not None:
                last = scope.value(loop[4]) + (loop[3] == "<=")
                for number in range(scope.value(loop[2]), last):
                    scope.names[loop[1]] = number
                    self._run(inner, scope, function)
            else:
                raise Unknown(word[0])
        except Unknown as error:
            if _matters(inner + other):
                raise _refusal(f"{word[0]} ({asked})", function, error) from None
        return after

    def _statement(self, text: str, scope: Scope, function: Function) -> None:
        launches = list(_LAUNCH.finditer(text))
        inside = text.find("{")
        if re.match(r"return\b", text):
            result = text.removeprefix("return").strip()
            try:
                raise _Returned(scope.value(result) if result else None)
            except Unknown as error:
                if "void" in function.result:
                    raise _Returned(None) from None
                raise _refusal(text, function, error) from None
        if re.match(r"[A-Z][A-Z0-9_]+\s*\(", text) and inside >= 0:  # AT_DISPATCH_...(..., [&] {})
            self._run(text[inside + 1 : closing(text, inside)], scope, function)
        elif launches:
            for found in launches:
                end = closing(text, found.end())
                self._launch(found[1], split(text[found.end() + 1 : end]), scope)
        elif (declared := _DECLARED.match(text)) is not None:
            if declared[1]:
                _bind(scope, [item.strip() for item in declared[1].split(",")], declared[3])
                return
            first, *more = split(declared[3])  # int rows = x.size(0), columns = x.size(1)
            _bind(scope, declared[2], first)
            for next_one in filter(None, map(_ASSIGNED.match, more)):
                _bind(scope, next_one[1], next_one[2])
        elif (assigned := _ASSIGNED.match(text)) is not None:
            _bind(scope, assigned[1], assigned[2])
        elif _CALL.match(text):
            called = re.match(r"[\w:]+", text)
            own = called is not None and called[0].rpartition("::")[2] in self.functions
            try:
                scope.value(text)
            except Unknown as error:  # a check, a stream, a guard
                if own:
                    raise _refusal(text, function, error) from None

    def _launch(self, name: str, texts: list[str], scope: Scope) -> None:
        name = name.rpartition("::")[2]
        kernel = next(
            (item for item in self._sources.functions.get(name, ()) if item.is_kernel), None
        )
        tensors: list[torch.Tensor] = []
        written: list[bool] = []
        for place, text in enumerate(texts):
            try:
                found = scope.value(text)
            except Unknown:
                continue
            if isinstance(found, torch.Tensor):
                tensors.append(found)
                written.append(kernel is None or _stores(kernel, place))
        record("CUDA", name, tensors, written)


@functools.cache
def _stores(kernel: Function, place: int) -> bool:
    """Whether a kernel's text stores through a parameter, or may."""
    if place >= len(kernel.parameters):
        return True
    parameter = kernel.parameters[place]
    if "const" in parameter.kind.rpartition("*")[0] or not parameter.is_pointer:
        return False
    names, seen = [parameter.name], set[str]()
    while names:
        name = re.escape(names.pop())
        if name in seen:
            continue
        seen.add(name)
        if any(re.search(pattern.format(name), kernel.body) for pattern in _STORE):
            return True
        names += re.findall(_ALIAS.format(name), kernel.body)
    return False


def _bind(scope: Scope, names: str | list[str], text: str) -> None:
    """Give a value to a name, or several; an unknown one is noted, and refused where it is used."""
    try:
        found: Any = scope.value(text)
    except Unknown as error:
        found = error if isinstance(names, str) else [error] * len(names)
    if isinstance(names, str):
        scope.names[names] = found
    else:
        scope.names.update(zip(names, found, strict=False))


def _end(body: str, at: int) -> int:
    """Where a statement ends: at its semicolon, which is in no brackets."""
    while at < len(body) and body[at] != ";":
        at = closing(body, at) if body[at] in "([{" else at
        at += 1
    return at


def _block(body: str, at: int) -> tuple[str, int]:
    """The block or the statement at a place, and where it ends."""
    at += len(body[at:]) - len(body[at:].lstrip())
    if body[at : at + 1] == "{":
        end = closing(body, at)
        return body[at + 1 : end], end + 1
    if re.match(r"if\b", body[at:]):
        _, end = _block(body, closing(body, body.index("(", at)) + 1)
        otherwise = re.match(r"\s*else\b", body[end:])
        if otherwise is not None:
            _, end = _block(body, end + otherwise.end())
        return body[at:end], end
    end = _end(body, at)
    return body[at : end + 1], end + 1


def _matters(text: str) -> bool:
    """Whether a block does more than to complain."""
    return "<<<" in text or "=" in text or bool(re.search(r"\breturn\b", text))


def _refusal(text: str, function: Function, error: Unknown) -> FlintError:
    said = " ".join(text.split())
    return FlintError(
        f"{function.file}:{function.line}: {function.name} is C++ that is not compiled here, and "
        f"its statement '{said[:80]}' is not understood ({error}): register_fake and "
        "torch.library say what an op returns"
    )
