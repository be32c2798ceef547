"""Run a program in this process as ``python`` would.

run(Program(target="train.py", arguments=("--lr=3e-4",)))
"""

from __future__ import annotations

import os
import runpy
import sys

from flint.launching.program import Program


def run(program: Program) -> None:
    """Run a program as ``__main__``.  What it raises, SystemExit included, comes out of here."""
    os.environ.update(program.environment)
    sys.argv = [program.target, *program.arguments]
    if program.is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program.target)))
        runpy.run_path(program.target, run_name="__main__")
