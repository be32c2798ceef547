"""Names of files in a workload folder, and of programs: none leads out of the folder.

program_file("main", module_suffix("step.mlirbc"))      # programs/main.mlirbc
"""

from __future__ import annotations

import re

from flint.errors import FlintError

#: A valid program name: a plain file name in any file system.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
#: Suffixes of module files, longer ones first.
_SUFFIXES = (
    ".mlirbc.gz", ".mlir.gz", ".hlo.pb.gz", ".hlo.gz", ".mlirbc", ".mlir", ".hlo.pb", ".hlo",
)  # fmt: skip
#: The suffix of a module file with an unknown one.
_OTHER = ".module"
#: Suffixes of the times and of the allocations of a recorded program.
TIMES, ALLOCATIONS = ".times.npz", ".memory.npz"


def module_suffix(filename: str) -> str:
    """The suffix of a module's file in a workload folder: one of the known ones."""
    return next((suffix for suffix in _SUFFIXES if filename.endswith(suffix)), _OTHER)


def program_file(program: str, suffix: str) -> str:
    """The path of a program's file in a workload folder; all such paths are made here.

    Args:
        program: the program's name, which may come from a file.
        suffix: ``.graph.npz``, ``TIMES``, ``ALLOCATIONS``, or as ``module_suffix`` gives it.

    Raises:
        FlintError: an invalid name, which could lead out of the folder.
    """
    if not re.fullmatch(NAME, program):
        raise FlintError(
            f"a program is called {program[:60]!r}: names of programs are letters, digits and _.+-"
        )
    return f"programs/{program}{suffix}"
