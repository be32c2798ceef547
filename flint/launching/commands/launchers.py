"""Command lines of programs: ``torchrun train.py``, ``python -m pkg``, ``train.py`` or
``train.ipynb`` alone.

The idea: a launcher is recognised by its command or, after ``python -m``, by its module.  Options
that only a framework knows (torchrun's) are parsed by that framework's parser, found by the
registry.

    parse(["python", "-m", "maxtext.train", "base.yml"])     # Program(target="maxtext.train", ...)
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from flint import registry
from flint.errors import UsageError
from flint.launching import notebooks
from flint.launching.commands.tasks_of_jobs import Task, task_of
from flint.launching.program import Program

#: Options of Python whose value is a separate word.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
#: Options of Python before ``-m`` that have none.
_NO_VALUE = ("-u", "-B", "-O", "-s", "-E")
#: Names of Python's command.
PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")


def parse(words: Sequence[str]) -> Program:
    """Parse a program's command line.

    Raises:
        UsageError: no program in it, or not a Python program.
    """
    if not words:
        raise UsageError("no program: give its command line after --")
    task = task_of(words)
    if task is not None:
        return _of_job(task)
    first, *rest = words
    name = Path(first).name
    if PYTHON.match(name):
        return _python(rest)
    if name in registry.LAUNCHERS:
        return _launched(name, rest)
    if first.endswith((".py", notebooks.SUFFIX)):
        return _file(first, rest)
    return _script(first, rest)


def launched_by(words: Sequence[str]) -> Program | None:
    """The program that a launcher's command line starts; None for any other command.

    Raises:
        UsageError: the launcher is not installed, or cannot read its options.
    """
    if not words:
        return None
    name, rest = Path(words[0]).name, list(words[1:])
    if PYTHON.match(name):
        while rest and rest[0] in _NO_VALUE:
            rest.pop(0)
        launcher = (
            registry.LAUNCHER_MODULES.get(rest[1]) if rest[:1] == ["-m"] and rest[1:] else None
        )
        return None if launcher is None else _launched(launcher, rest[2:])
    if name not in registry.LAUNCHERS or (name == "accelerate" and rest[:1] != ["launch"]):
        return None
    return _launched(name, rest)


def _of_job(task: Task) -> Program:
    """The program of each task; or, if the task is a launcher, its program on each host."""
    if not task.words:
        raise UsageError(f"{task.launcher} starts no program")
    program, (each, hosts) = parse(task.words), task.numbers()
    given = {**dict(task.variables), **program.environment}
    if launched_by(task.words) is not None:
        manager = task.launcher
        return replace(program, manager=manager, environment=given, nodes=program.nodes or hosts)
    return replace(
        program, launchers=(task.launcher,), environment=given, per_node=each, nodes=hosts,
        ranks_one=True,
    )  # fmt: skip


def _python(words: Sequence[str]) -> Program:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        word = rest.pop(0)
        if word in _WITH_VALUE and rest:
            rest.pop(0)
    if not rest or rest[0] in ("-c", "-"):
        raise UsageError("python without a file or a module: no program to run")
    if rest[0] != "-m":
        return _file(rest[0], rest[1:])
    if len(rest) < 2:
        raise UsageError("python -m names no module")
    launcher = registry.LAUNCHER_MODULES.get(rest[1])
    if launcher is not None:
        return _launched(launcher, rest[2:])
    return Program(target=rest[1], is_module=True, arguments=tuple(rest[2:]))


def _file(path: str, arguments: Sequence[str]) -> Program:
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file")
    return Program(target=path, arguments=tuple(arguments))


def _script(word: str, arguments: Sequence[str]) -> Program:
    """A command of an installed package: a Python file without the suffix."""
    beside = str(Path(sys.executable).parent)  # an environment that nobody has activated
    path = shutil.which(word) or shutil.which(word, path=beside)
    if path is None:
        raise UsageError(f"{word}: no such command; give the program's command line after --")
    with open(path, "rb") as file:
        line = file.readline(256)
    if not line.startswith(b"#!") or b"python" not in line:
        raise UsageError(f"{word} is not a Python program: give the program that it starts")
    return Program(target=path, arguments=tuple(arguments))


def _launched(launcher: str, words: Sequence[str]) -> Program:
    read: Callable[[Sequence[str]], Program] = registry.launcher(launcher)
    program = read(words)
    if not program.is_module and not Path(program.target).is_file():
        raise UsageError(f"{program.target}: no such file (the program that {launcher} starts)")
    return program
