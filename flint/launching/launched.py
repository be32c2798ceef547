"""Commands of launchers that a program starts: tools for training start ``torchrun`` themselves.

The idea: this process is already one rank.  When the program starts a launcher, the program that
the launcher would start runs here instead, as that rank, and the tool ends with it.

    watch(cluster)
    subprocess.run(["torchrun", "--nproc-per-node=8", "train.py"])     # runs train.py here
"""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from flint.capturing.user_frames import own_line
from flint.errors import FlintError
from flint.launching.commands.launchers import launched_by
from flint.launching.commands.variables import is_of_process
from flint.launching.program import Cluster
from flint.launching.running import run

#: Functions that become another command: the place of its variables among the arguments.
_REPLACING = {"execv": None, "execvp": None, "execve": 2, "execvpe": 2}
#: Words of a shell that end a command.
_SHELL = frozenset(("|", "||", "&", "&&", ";", ">", ">>", "2>", "2>&1", "&>", "<"))


def watch(cluster: Cluster) -> None:
    """Run what launchers start in this process from now on.

    Args:
        cluster: what the program sees.
    """
    kind: Any = subprocess.Popen
    start = kind.__init__

    @functools.wraps(start)
    def started(self: Any, *given: Any, **options: Any) -> None:
        command = options["args"] if "args" in options else given[0]
        _run_launched(cluster, command, options.get("env"), options.get("cwd"))
        start(self, *given, **options)

    kind.__init__ = started
    for name, place in _REPLACING.items():
        setattr(os, name, _becoming(cluster, getattr(os, name), place))


def fits(processes: int, cluster: Cluster, line: str = "") -> None:
    """Check how many processes a program starts on each host, at the line that runs or another one.

    Raises:
        FlintError: the cluster has another number of devices there.
    """
    each = min(cluster.per_node, cluster.world)
    if processes != each:
        raise FlintError(
            f"{processes} processes are started at {line or own_line()}, but the cluster has "
            f"{each} devices on each host: use --gpus-per-node {processes}"
        )


def _becoming(cluster: Cluster, replaced: Any, place: int | None) -> Any:
    @functools.wraps(replaced)
    def become(*given: Any) -> Any:
        _run_launched(cluster, given[1], None if place is None else given[place], None)
        return replaced(*given)

    return become


def _run_launched(
    cluster: Cluster, command: Any, variables: Mapping[Any, Any] | None, folder: Any
) -> None:
    words, in_front = _words(command)
    program = launched_by(words)
    if program is None:
        return
    if program.per_node is not None:
        fits(program.per_node, cluster)
    for name, text in {**(variables or {}), **in_front}.items():
        if not is_of_process(os.fsdecode(name)):
            os.environ[os.fsdecode(name)] = os.fsdecode(text)
    if folder is not None:
        os.chdir(folder)
    run(program)
    sys.exit(0)


def _words(command: Any) -> tuple[list[str], dict[str, str]]:
    """A command's words, and the variables that are set in front of it, as a shell reads them."""
    if isinstance(command, bytes | os.PathLike):
        return [], {}  # one word
    if not isinstance(command, str):
        return [os.fsdecode(word) for word in command], {}
    try:
        words = list(itertools.takewhile(lambda word: word not in _SHELL, shlex.split(command)))
    except ValueError:  # not a command of a shell
        return [], {}
    front = list(itertools.takewhile(lambda word: "=" in word, words))
    return words[len(front) :], dict(word.split("=", 1) for word in front)
