"""Calls of functions in C that a program may give its rank: ``np.array([rank])``.

The idea: a function in C takes a rank as a plain number.  Those that make something of numbers or
texts are known by the modules that have them, and by their names.

    names = Names(); names.see(ast.parse("import numpy as np").body[0])
    names.follows(ast.parse("np.array", mode="eval").body)      # True
"""

from __future__ import annotations

import argparse
import ast
import collections
import pathlib
import re
import string
from collections.abc import Mapping

#: Modules whose functions make something of their arguments and do nothing else.
_MODULES = frozenset(
    ("array", "base64", "bisect", "decimal", "fractions", "hashlib", "itertools", "json", "math",
     "numpy", "operator", "pickle", "re", "struct", "zlib")
)  # fmt: skip
#: Of other modules, only these functions do so; they are named so in their packages, too.
_SOME: Mapping[str, frozenset[str]] = {
    "ast": frozenset(("literal_eval",)),
    "binascii": frozenset(("crc32", "hexlify", "unhexlify")),
    "ctypes": frozenset(
        ("c_int", "c_int32", "c_int64", "c_long", "c_longlong", "c_size_t", "c_uint", "c_uint32",
         "c_uint64", "c_ulong")
    ),
    "datetime": frozenset(("date", "datetime", "time", "timedelta")),
    "fnmatch": frozenset(("fnmatch", "fnmatchcase")),
    "html": frozenset(("escape", "unescape")),
    "os": frozenset(
        ("abspath", "basename", "commonpath", "commonprefix", "dirname", "fspath", "isabs",
         "normcase", "normpath", "relpath", "split", "splitext")
    ),
    "pathlib": frozenset(("Path", "PosixPath", "PurePath", "PurePosixPath")),
    "shlex": frozenset(("join", "quote", "split")),
    "statistics": frozenset(("fmean", "mean", "median")),
    "textwrap": frozenset(("dedent", "fill", "indent", "shorten", "wrap")),
    "urllib": frozenset(("parse_qs", "quote", "unquote", "urlencode", "urlparse", "urlsplit")),
    "yaml": frozenset(("dump", "full_load", "load", "safe_dump", "safe_load")),
}  # fmt: skip
#: Parts of the others that draw random numbers, read and write files, or give what is not a value.
_OTHERS = frozenset(
    ("Pickler", "Unpickler", "dump", "errstate", "file_digest", "finditer", "fromfile", "islice",
     "load", "loadtxt", "memmap", "random", "save", "savetxt", "savez", "savez_compressed",
     "set_printoptions", "seterr", "testing")
)  # fmt: skip
#: Python's own functions of this kind.
_FUNCTIONS = frozenset(
    ("bin", "bytearray", "bytes", "chr", "complex", "enumerate", "float", "format", "getattr",
     "hasattr", "hex", "oct", "ord", "pow", "repr")
)  # fmt: skip
#: Methods that change what they belong to by a rank, whatever it is.
_METHODS = frozenset(("pop", "insert"))
#: Methods that may be given a rank -> what they belong to, where they are followed.
METHODS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("findall", "fullmatch", "search", "sub", "subn"), re.Pattern),
    "match": (re.Pattern, pathlib.PurePath),
    "split": (re.Pattern, str, bytes),
    **dict.fromkeys(
        ("center", "endswith", "ljust", "removeprefix", "removesuffix", "replace", "rjust",
         "startswith"), str
    ),
    **dict.fromkeys(
        ("joinpath", "relative_to", "with_name", "with_stem", "with_suffix"), pathlib.PurePath
    ),
    **dict.fromkeys(("parse_args", "parse_known_args"), argparse.ArgumentParser),
    **dict.fromkeys(("safe_substitute", "substitute"), string.Template),
    "rotate": collections.deque,
}  # fmt: skip


class Names:
    """What a module calls such modules and functions.

    Attributes:
        modules: the names of modules, and which they are.
        functions: the names of functions that it has imported from them.
    """

    def __init__(self) -> None:
        """It has imported none."""
        self.modules: dict[str, str] = {"int": "int"}  # as in ``int.from_bytes``
        self.functions: set[str] = set()

    def see(self, node: ast.stmt) -> None:
        """A statement that imports."""
        if isinstance(node, ast.Import):
            for item in node.names:
                module = item.name.partition(".")[0]
                if module in _MODULES or module in _SOME:
                    self.modules[item.asname or module] = module
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            path = node.module.split(".")
            self.functions.update(
                item.asname or item.name
                for item in node.names
                if _follows(path[0], [*path[1:], item.name])
            )

    def follows(self, function: ast.expr) -> bool:
        """Whether a call of it is followed; of Python's own functions, see ``is_pythons``."""
        if isinstance(function, ast.Name):
            return function.id in self.functions
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr in _METHODS:
            return True
        names: list[str] = []
        while isinstance(function, ast.Attribute):
            names.insert(0, function.attr)
            function = function.value
        module = self.modules.get(function.id) if isinstance(function, ast.Name) else None
        return module is not None and _follows(module, names)


def _follows(module: str, names: list[str]) -> bool:
    """Whether a module's function is followed."""
    if module in _SOME:
        return names[-1] in _SOME[module]
    return (module in _MODULES or module == "int") and not _OTHERS.intersection(names)


def is_pythons(name: str) -> bool:
    """Whether one of Python's functions of this name would be followed."""
    return name in _FUNCTIONS
