"""The functions of C++ and CUDA sources, and which of them Python can call.

The idea: host code of extensions is short and plain, so no compiler's front end is needed: comments
and directives go, what has a name, parentheses and braces is a function, and the macros of PyTorch
and pybind11 say which function has which name in Python.

    read({"op.cpp": text}).functions["forward"][0].parameters     # (Parameter("x", ...), ...)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
#: Directives, with lines that go on.
_DIRECTIVES = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
#: Constants: by a directive, by a compiler's option, by the language.
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n\\]+)$", re.MULTILINE)
_OPTION = re.compile(r"-D\s*(\w+)=(.+)")
_CONSTANT = re.compile(r"\b(?:constexpr|const)\s+[\w:]+\s+(\w+)\s*=\s*([^;{}]+);")
_CALLED = re.compile(r"\b(~?\w+)\s*\(")
_NO_NAMES = frozenset(("if", "for", "while", "switch", "return", "catch", "sizeof", "alignof"))
#: What may stand between a function's parameters and its body.
_BEFORE_BODY = re.compile(r"\s*(?:const|noexcept|override|final|\s)*(?:->[^{;]*)?\{")
#: Macros whose blocks bind functions; what binds them there: a name or a schema, and a function.
_BLOCKS = re.compile(r"(TORCH_LIBRARY\w*|PYBIND11_MODULE)")
_BINDING = re.compile(
    r"\.\s*(?:def|impl)\s*\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)(?:,\s*(?:torch::|&|\s)*([\w:]+))?"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function: its name, its type, and its default value's text."""

    name: str
    kind: str
    default: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether it may be a pointer, by its type or by the name of a type."""
        return "*" in self.kind or not re.search(
            r"\b(int|float|bool|size_t|u?int\d+_t)\b", self.kind
        )


@dataclass(frozen=True, slots=True)
class Function:
    """A function: the text of its result's type, its parameters and its body, and its place."""

    name: str
    result: str
    parameters: tuple[Parameter, ...]
    body: str
    file: str
    line: int

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on the GPU."""
        return "__global__" in self.result


@dataclass(frozen=True, slots=True)
class Binding:
    """A name of Python: ``library`` of ``torch.ops``, or none for the module's own; a schema, if
    one is stated; the name of the function, if it is."""

    library: str
    name: str
    schema: str
    function: str


@dataclass(frozen=True, slots=True)
class Sources:
    """All functions by their names, all bindings, and the texts of constants."""

    functions: Mapping[str, tuple[Function, ...]]
    bindings: tuple[Binding, ...]
    constants: Mapping[str, str]


def read(texts: Mapping[str, str], called: str = "", options: Sequence[str] = ()) -> Sources:
    """The functions and bindings of sources.

    Args:
        texts: by the names of their files.
        called: the extension's name, which its macros stand for.
        options: of compilers.
    """
    functions: dict[str, tuple[Function, ...]] = {}
    bindings: list[Binding] = []
    found = filter(None, map(_OPTION.match, options))
    constants: dict[str, str] = {item[1]: item[2] for item in found}
    for file, text in texts.items():
        text = _COMMENTS.sub(_blank, text)
        plain = _DIRECTIVES.sub(_blank, text)
        constants |= dict([*_MACRO.findall(text), *_CONSTANT.findall(plain)])
        for function in _functions(plain, file):
            if _BLOCKS.fullmatch(function.name):
                bindings += _bindings(function, called)
            else:
                functions[function.name] = (*functions.get(function.name, ()), function)
    return Sources(functions, tuple(bindings), constants)


def closing(text: str, at: int) -> int:
    """Where the bracket that opens at ``at`` is closed; the text's end if it is not."""
    depth, quote = 0, ""
    for place in range(at, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote and text[place - 1] != "\\" else quote
        elif letter == '"':
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if not depth:
                return place
    return len(text)


def split(text: str, at: str = ",") -> list[str]:
    """The parts of a text between separators that are in no brackets."""
    parts, depth, angle, begin = [], 0, 0, 0
    for place, letter in enumerate(text):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "<" and re.search(r"[A-Za-z_]\w*$", text[:place]) and ">" in text[place:]:
            angle += 1
        elif letter == ">" and angle:
            angle -= 1
        elif letter == at and not depth and not angle:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [part for part in (*parts, text[begin:].strip()) if part]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n") + " "


def _functions(text: str, file: str) -> Iterator[Function]:
    at = 0
    while found := _CALLED.search(text, at):
        at = found.end()
        if found[1] in _NO_NAMES:
            continue
        end = closing(text, found.end() - 1)
        body = _BEFORE_BODY.match(text, end + 1)
        if body is None:
            continue
        close = closing(text, body.end() - 1)
        before = max(text.rfind(mark, 0, found.start()) for mark in ";{}")
        yield Function(
            found[1], " ".join(text[before + 1 : found.start()].split()),
            tuple(map(_parameter, split(text[found.end() : end]))),
            text[body.end() : close], file, text.count("\n", 0, found.start()) + 1,
        )  # fmt: skip
        at = close


def _parameter(text: str) -> Parameter:
    declared, _, default = text.partition("=")
    found = re.search(r"(\w+)\s*(\[[^\]]*\])?\s*$", declared)
    if found is None:
        return Parameter("", declared)
    kind = declared[: found.start()] + ("*" if found[2] else "")
    return Parameter(found[1], " ".join(kind.split()), default.strip())


def _bindings(block: Function, called: str) -> Iterator[Binding]:
    first = block.parameters[0].name if block.parameters else ""
    name = called if first == "TORCH_EXTENSION_NAME" else first
    library = "" if block.name == "PYBIND11_MODULE" else name
    for stated, function in _BINDING.findall(block.body):
        schema = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', stated))
        bound = schema.partition("(")[0].rpartition("::")[2].strip()
        yield Binding(library, bound, schema if "(" in schema else "", function.rpartition("::")[2])
