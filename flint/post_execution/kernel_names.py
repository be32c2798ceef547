"""Names of kernels in profiles, as people call them.

The idea: a demangled name is what it returns, a name in its scopes with the arguments of its
templates, and its parameters; a mangled one (``_Z``, Itanium C++ ABI) lists the parts of the name,
each with its length.  The last part is what a kernel is called.

    short_name("void at::native::f<float>(int)")        # "f"
    short_name("_ZN4vllm10act_kernelIfEEvPT_")          # "act_kernel"
"""

from __future__ import annotations

import re
from typing import Final

from flint.observed.exchanging_kernels import EXCHANGING_KERNEL

_LONGEST: Final = 60
#: More letters of a name than these are not looked at.
_MOST: Final = 1 << 14
_RETURNS: Final = re.compile(r"^(void|int|bool|[\w:]+::type) +")
_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)::")
#: Names that say no more than that they are a kernel; an argument of their templates says which.
_NAMELESS: Final = re.compile(r"(device_)?kernel\d?|kentry", re.IGNORECASE)
_TYPES: Final = frozenset({"int", "float", "double", "half", "bool", "char", "unsigned", "long"})
_ARGUMENT: Final = re.compile(r"<(?:\w+, )*?([a-z_][\w:]*)", re.IGNORECASE)
#: Where the parts of a mangled name begin, one of them, and one among templates' arguments.
_MANGLED: Final = re.compile(r"_ZN?[rVK]*(?=L?\d)")
_PART: Final = re.compile(r"L?(\d{1,4})")
_MANGLED_ARGUMENT: Final = re.compile(r"(?:N|S\d*_|I)(?=\d)")
_OPENING, _CLOSING = "<({[", ">)}]"


def short_name(name: str) -> str:
    """``void at::native::f<float>(int)`` as ``f``, and ``cutlass::Kernel<g>(g::Params)`` as
    ``Kernel g``: a name that says no more than that it is a kernel is followed by its argument, or
    comes after its scope (``gemvx::kernel``).
    ``deep_ep::intranode::combine<8>(..)`` keeps the part that shows that it exchanges data.
    """
    mangled = _MANGLED.match(name)
    head, rest = _of_mangled(name, mangled.end()) if mangled else _of_plain(name)
    exchanging = EXCHANGING_KERNEL.search(head)
    last = head[exchanging.start() :] if exchanging else head.rsplit("::", 1)[-1]
    if _NAMELESS.fullmatch(last):
        known = rest and rest not in _TYPES
        last = f"{last} {rest}" if known else "::".join(head.split("::")[-2:])
    return (last or name or "kernel")[:_LONGEST]


def _of_plain(name: str) -> tuple[str, str]:
    """The name in its scopes, and its template's first argument that is a name; "" without."""
    plain = _ANONYMOUS.sub("", name[:_MOST])
    kept: list[str] = []
    open_brackets: list[str] = []
    templates = 0
    for place, letter in enumerate(plain):
        outside = not open_brackets
        if letter in "<>" and open_brackets[-1:] == ["("]:  # a comparison
            continue
        if letter == "(" and outside and kept:
            break
        if letter in _OPENING:
            templates = place if letter == "<" and outside else templates
            open_brackets.append(letter)
        elif letter in _CLOSING:
            del open_brackets[-1:]
        elif outside:
            kept.append(letter)
    argument = _ARGUMENT.match(plain, templates)
    return _RETURNS.sub("", "".join(kept)).strip(), argument[1] if argument else ""


def _of_mangled(name: str, place: int) -> tuple[str, str]:
    """As of a plain name; what a template of a scope contains is not followed."""
    parts, place = _parts(name, place)
    argument = _MANGLED_ARGUMENT.search(name, place)
    inside = _parts(name, argument.end())[0] if argument else []
    return "::".join(parts), "::".join(inside)


def _parts(name: str, place: int) -> tuple[list[str], int]:
    """The parts of a mangled name from a place on, and the place after them."""
    found: list[str] = []
    while (length := _PART.match(name, place)) is not None:
        place = length.end() + int(length[1])
        found.append(name[length.end() : place])
    return [part for part in found if not part.startswith("_GLOBAL__N")], place
