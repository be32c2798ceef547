"""Run a program in this process as ``python`` would.

run(Program(target="train.py", arguments=("--lr=3e-4",)))
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import SupportsIndex

from flint.errors import UsageError
from flint.launching import notebooks
from flint.launching.followed import followed_code
from flint.launching.notes import noted
from flint.launching.program import Program


class LocalRankWord(str):
    """``--local_rank=N``, as some launchers start their programs.

    Copies of the process become other ranks later, so a parser that splits it at ``=`` gets the
    number that is in the environment at that time.
    """

    def __new__(cls, option: str) -> LocalRankWord:
        return super().__new__(cls, f"{option}=0")

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        option, found, text = super().partition(sep)
        return option, found, os.environ["LOCAL_RANK"] if sep == "=" else text

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [*self.partition(sep)[::2]] if sep == "=" else super().split(sep, maxsplit)


def run(program: Program) -> None:
    """Run a program as ``__main__``.  Its exceptions, SystemExit included, are passed on.

    Raises:
        UsageError: it is a module that is not there.
    """
    if program.folder:
        os.chdir(program.folder)
    os.environ.update(program.environment)
    noted.update(program.remarks)
    first = [LocalRankWord(program.local_rank_option)] if program.local_rank_option else []
    sys.argv = [program.target, *first, *program.arguments]
    # Python has read the variable for this process, but not what a script or a tool has set.
    more = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    sys.path[:0] = [item for item in map(os.path.abspath, more) if item not in sys.path]
    if program.is_module:
        sys.path.insert(0, os.getcwd())
        package = program.target.partition(".")[0]
        if find_spec(package) is None:
            raise UsageError(
                f"python -m {program.target}: there is no module {package}, neither in this folder "
                "nor installed beside Flint"
            )
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(program.target)
    as_module = ("-m", "flint") in pairwise(sys.orig_argv) and not sys.flags.safe_path
    if as_module and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # which Python has put there for `python -m flint`
    sys.path.insert(0, os.path.dirname(path))
    text = Path(path).read_bytes()
    module = ModuleType("__main__")
    if path.endswith(notebooks.SUFFIX):
        text = notebooks.code_of(text, program.target)
        vars(module).update(notebooks.names())
    code = followed_code(text, path)
    vars(module)["__file__"] = program.target
    sys.modules["__main__"] = module
    exec(code, vars(module))
