"""Run a program in this process as ``python`` would.

run(Program(target="train.py", arguments=("--lr=3e-4",)))
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from flint.launching.followed import followed_code
from flint.launching.program import Program


def run(program: Program) -> None:
    """Run a program as ``__main__``.  What it raises, SystemExit included, comes out of here."""
    os.environ.update(program.environment)
    sys.argv = [program.target, *program.arguments]
    if program.is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(program.target)
    sys.path.insert(0, os.path.dirname(path))
    code = followed_code(Path(path).read_bytes(), path)
    module = ModuleType("__main__")
    vars(module)["__file__"] = program.target
    sys.modules["__main__"] = module
    exec(code, vars(module))
