"""Calls of functions in C that a program may give its rank: ``np.array([rank])``.

The idea: a function in C takes a rank as a plain number.  Those that make something of numbers or
texts are known by the modules that have them, and by their names.

    names = Names(); names.see(ast.parse("import numpy as np").body[0])
    names.follows(ast.parse("np.array", mode="eval").body)      # True
"""

from __future__ import annotations

import ast

#: Modules whose functions make something of their arguments and do nothing else.
_MODULES = frozenset(
    ("array", "base64", "bisect", "decimal", "fractions", "hashlib", "itertools", "json", "math",
     "numpy", "operator", "pickle", "re", "struct", "zlib")
)  # fmt: skip
#: Parts of them that draw random numbers, read and write files, or give what is not a value.
_OTHERS = frozenset(
    ("Pickler", "Unpickler", "attrgetter", "dump", "errstate", "file_digest", "finditer",
     "fromfile", "islice", "itemgetter", "load", "loadtxt", "memmap", "methodcaller", "random",
     "save", "savetxt", "savez", "savez_compressed", "set_printoptions", "seterr", "testing")
)  # fmt: skip
#: Python's own functions of this kind.
_FUNCTIONS = frozenset(
    ("bin", "bytearray", "bytes", "chr", "complex", "enumerate", "float", "format", "getattr",
     "hasattr", "hex", "oct", "ord", "pow", "repr")
)  # fmt: skip
#: Methods that change what they belong to by a rank, whatever it is.
_METHODS = frozenset(("pop", "insert"))


class Names:
    """What a module calls such modules and functions.

    Attributes:
        modules: the names of modules.
        functions: the names of functions that it has imported from them.
    """

    def __init__(self) -> None:
        """It has imported none."""
        self.modules: set[str] = set()
        self.functions: set[str] = set()

    def see(self, node: ast.stmt) -> None:
        """A statement that imports."""
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.partition(".")[0] in _MODULES:
                    self.modules.add(item.asname or item.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            path = node.module.split(".")
            if path[0] in _MODULES and not _OTHERS.intersection(path):
                self.functions.update(
                    item.asname or item.name for item in node.names if item.name not in _OTHERS
                )

    def follows(self, function: ast.expr) -> bool:
        """Whether a call of it is followed; of Python's own functions, see ``is_pythons``."""
        if isinstance(function, ast.Name):
            return function.id in self.functions
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr in _METHODS:
            return True
        while isinstance(function, ast.Attribute) and function.attr not in _OTHERS:
            function = function.value
        return isinstance(function, ast.Name) and function.id in self.modules


def is_pythons(name: str) -> bool:
    """Whether one of Python's functions of this name would be followed."""
    return name in _FUNCTIONS
