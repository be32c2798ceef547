"""Names of files in a workload folder, and of programs: none leads out of it.

program_file("main", module_suffix("step.mlirbc"))      # programs/main.mlirbc
"""

from __future__ import annotations

import re

from flint.errors import FlintError

#: What a program may be called: a plain file name in any file system.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
#: What the files of modules end with; a longer one first.
_SUFFIXES = (
    ".mlirbc.gz", ".mlir.gz", ".hlo.pb.gz", ".hlo.gz", ".mlirbc", ".mlir", ".hlo.pb", ".hlo",
)  # fmt: skip
#: The end of a module file whose own says nothing.
_OTHER = ".module"
#: When the nodes of a recorded program began; what it asked its allocator for.
TIMES, ALLOCATIONS = ".times.npz", ".memory.npz"


def module_suffix(filename: str) -> str:
    """What a module's file ends with in a workload folder: a known suffix, never a stated one."""
    return next((suffix for suffix in _SUFFIXES if filename.endswith(suffix)), _OTHER)


def program_file(program: str, suffix: str) -> str:
    """Where a program's file stands in a workload folder; nothing else names such files.

    Args:
        program: the program's name, which may come from a file.
        suffix: ``.graph.npz``, ``TIMES``, ``ALLOCATIONS``, or as ``module_suffix`` gives it.

    Raises:
        FlintError: a name that is none: it could lead out of the folder.
    """
    if not re.fullmatch(NAME, program):
        raise FlintError(
            f"a program is called {program[:60]!r}: names of programs are letters, digits and _.+-"
        )
    return f"programs/{program}{suffix}"
