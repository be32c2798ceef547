"""A command that a script starts: it is written down instead, so that the script goes on at once.

The idea: this file runs as ``python``, ``torchrun``, ``srun`` and so on while a script runs
(``shell_scripts.py``), with nothing but Python.  It notes the command with its folder and
variables.  Python without a program (``-c``, a text on stdin) really runs, and a launcher of jobs
runs what is no such command, as a further script.

    python -I -S started.py <notes> <python> torchrun train.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

#: The variable with the words of launchers around a script that one of them started.
AROUND = "FLINT_STARTED_BY"
#: Commands that run another one in an environment or a container, or watch it.
WRAPPERS = (
    "uv", "poetry", "pdm", "pipenv", "pixi", "hatch", "rye", "conda", "mamba", "micromamba",
    "apptainer", "singularity", "docker", "podman", "enroot", "nsys", "ncu", "rocprof", "rocprofv3",
    "numactl", "taskset", "perf", "strace", "gdb", "xvfb-run", "py-spy", "coverage", "memray",
    "debugpy-run", "ray", "flux", "jsrun", "sudo",
)  # fmt: skip
#: Slurm's command that queues a script.
BATCH = "sbatch"
_SHELLS = ("bash", "sh")
#: Options of Python whose value is a separate word.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def main(notes: str, python: str, words: Sequence[str], names: Sequence[str]) -> None:
    """Write a command down, or run it.

    Args:
        notes: file for commands, one in a line; beside it are one with a job's variables and a
            folder for the path of Python (``seen_gpus.py``).
        python: the interpreter that really runs.
        words: the command.
        names: of the commands that are written down.
    """
    words = _wrapped(words, names)
    if not words:
        return
    name = os.path.basename(words[0])
    if name == BATCH:
        _be_batch(words[1:], notes)
    if name in _SHELLS:
        os.execvp(words[0], list(words))
    if name.startswith("python") and runs_text(words[1:]):
        paths = (f"{notes}.gpus", os.environ.get("PYTHONPATH"))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.execv(python, [python, *words[1:]])
    task = _tasks().task_of(words)
    if task is not None and task.words and os.path.basename(task.words[0]) not in names:
        front = [*_around(), *words[: len(words) - len(task.words)]]
        os.environ.update(dict(task.variables), **{AROUND: json.dumps(front)})
        try:
            os.execvp(task.words[0], task.words)
        except OSError as error:
            sys.exit(f"{name}: {task.words[0]}: {error.strerror}")
    line = json.dumps(
        {"words": [*_around(), *words], "folder": os.getcwd(), "variables": dict(os.environ)}
    )
    with open(notes, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _wrapped(words: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """The command itself, or the one that it runs around; nothing for a wrapper of no program."""
    if os.path.basename(words[0]) not in WRAPPERS:
        return words
    begins = (*names, *_SHELLS, BATCH, *_tasks().LAUNCHERS)
    for at, word in enumerate(words[1:], 1):
        if os.path.basename(word) in begins:
            return words[at:]
        if word.endswith(".py") and os.path.isfile(word):
            return ["python", *words[at:]]
    return []


def _be_batch(words: Sequence[str], notes: str) -> NoReturn:
    """Run the script that Slurm would queue, in a file or on stdin."""
    with open(f"{notes}.job", encoding="utf-8") as file:
        os.environ.update(json.load(file))
    at = next((at for at, word in enumerate(words) if os.path.isfile(word)), len(words))
    os.execvp("bash", ["bash", *(words[at:] or ["-s"])])


def runs_text(words: Sequence[str]) -> bool:
    """Whether these words after ``python`` name neither a file nor a module."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        rest = rest[2 if rest[0] in _WITH_VALUE else 1 :]
    return not rest or rest[0] in ("-c", "-")


def _around() -> list[str]:
    return [str(word) for word in json.loads(os.environ.get(AROUND, "[]"))]


def _tasks() -> Any:
    """The module beside this file, without its package."""
    path = Path(__file__).with_name("tasks_of_jobs.py")
    described = importlib.util.spec_from_file_location("tasks_of_jobs", path)
    assert described is not None and described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[described.name] = module
    described.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[4:], sys.argv[3].split(os.pathsep))
