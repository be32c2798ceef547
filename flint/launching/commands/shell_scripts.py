"""Programs that a shell script starts: ``bash train.sh``, a batch script of Slurm.

The idea: the script really runs, in a child process; but ``python``, ``torchrun``, ``srun`` and
other commands for Python programs are commands of ours, which write down with what they were called
and succeed.  What they were called with is the program, with the script's folder and variables.

    program_of(["bash", "train.sh"], Given(world=512))      # Program(target="train.py", ...)
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from flint import registry
from flint.capturing.request import TIME_LIMIT
from flint.errors import FlintError, UsageError
from flint.host.child_processes import Limits, none_left
from flint.host.readable import counted
from flint.host.temporary import temporary_folder
from flint.launching.commands import started
from flint.launching.commands.launchers import PYTHON, parse
from flint.launching.commands.script_commands import PASSING, Command, Hosts, interpreter, run
from flint.launching.commands.tasks_of_jobs import LAUNCHERS, Task, directives, task_of
from flint.launching.commands.variables import is_of_process, variables
from flint.launching.program import PER_NODE, Program

_SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
#: Commands around a program: a script of one line.
_AROUND = frozenset((*started.WRAPPERS, *PASSING, "time"))
#: A variable that is set for a command.
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
#: Modules that train nothing.
_IDLE_MODULES = ("pip", "venv", "ensurepip", "tensorboard")
#: Characters of a command that a message shows.
_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says about the cluster and the script.

    Attributes:
        world, per_node, hosts: ranks, ranks per host, hosts; None: not given.
        device: accelerator that the program sees.
        number: which of the script's programs, from 1; None: the only one.
        has_network: the script may reach other machines.
        time_limit: seconds for the script.
        memory_limit: bytes for the process that runs it.
    """

    world: int | None = None
    per_node: int | None = None
    hosts: int | None = None
    device: str | None = None
    number: int | None = None
    has_network: bool = False
    time_limit: float = TIME_LIMIT
    memory_limit: int = 8 << 30


def program_of(words: Sequence[str], given: Given) -> Program:
    """The program of a command line, which may be a shell script that starts it.

    Raises:
        UsageError: no program in it, not a Python program, or several of which none is chosen.
        FlintError: the script starts no program, or takes more than the limits.
    """
    task = task_of(words)
    front = list(words[: len(words) - len(task.words)]) if task else []
    inner = _script_of(words[len(front) :])
    if inner is None:
        if given.number is not None:
            raise UsageError("--command is for a shell script that starts several programs")
        return parse(words)
    text = _text(inner)
    stated = directives(text) if task is None else task
    is_job = task is not None or "\n#SBATCH" in text or words[0] == started.BATCH
    launcher = task.launcher if task else "srun"
    per_node, world = _sizes(given, stated)
    hosts = -(-world // per_node)
    # A script that no job manager starts is started on each host, as by Kubeflow's PyTorchJob.
    size = {"world": world, "per_host": per_node} if is_job else {"world": hosts, "per_host": 1}
    cluster = variables(launcher if is_job else "torchrun", 0, **size)
    seen = Hosts(per_node, hosts, given.device, given.has_network)
    limits = Limits(given.time_limit, given.memory_limit)
    with none_left(), temporary_folder() as folder:
        ran = run(inner, {**cluster, started.AROUND: json.dumps(front)}, seen, limits, folder)
    name = shlex.join(inner if inner[1] != "-c" else words)
    end = f"ended with status {ran.status}" if ran.status else "ended"
    said = f" (the last line that it printed: {ran.last})" if ran.last else ""
    commands = [item for item in ran.commands if not _is_idle(item.words)]
    if not commands:
        raise FlintError(f"{name} {end} and started no Python program by its name{said}")
    command = _chosen(commands, name, given.number)
    others = {_shown(item): None for item in commands if item.words != command.words}
    remarks = [f"{name}: {other} does not run" for other in others]
    if ran.status:
        remarks.append(f"{name} {end} after its programs{said}")
    program = _parsed(command)
    each, number = stated.numbers()
    return replace(
        program,
        folder=command.folder,
        environment={**_kept(command.variables), **program.environment},
        launchers=_with_own(program.launchers, command.variables),
        remarks=tuple(remarks),
        per_node=program.per_node or each,
        nodes=program.nodes or number,
    )


def _script_of(words: Sequence[str]) -> list[str] | None:
    """The command line of a shell that runs a script; None for any other command."""
    if not words:
        return None
    if _ASSIGNMENT.match(words[0]):
        words = ["env", *words]
    name = os.path.basename(words[0])
    if name in _AROUND:
        return ["bash", "-c", shlex.join(words)]
    if name == started.BATCH:
        rest = list(words[1:])
        while rest and not Path(rest[0]).is_file():
            rest.pop(0)  # its options
        if not rest:
            raise UsageError("sbatch without a script")
        return ["bash", *rest]
    if name in _SHELLS:
        return list(words)
    if PYTHON.match(name) or name in registry.LAUNCHERS:
        return None  # a version manager's are shell scripts
    found = shutil.which(words[0]) or words[0]
    shell = interpreter(Path(found))
    return [shell, found, *words[1:]] if shell in _SHELLS else None


def _text(words: Sequence[str]) -> str:
    """The script's text; "" if it is in the command line."""
    for word in words[1:]:
        if word.startswith("-"):
            if "c" in word.partition("-")[2] and not word.startswith("--"):
                return ""
            continue
        try:
            return Path(word).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{word}: {error.strerror}") from None
    raise UsageError(f"{words[0]} without a script: give one, or the program's command")


def _sizes(given: Given, stated: Task) -> tuple[int, int]:
    """Ranks per host, and ranks, as the script will see them."""
    each, number = stated.numbers()
    number = given.hosts or number
    per_node = given.per_node or each or PER_NODE
    world = given.world or per_node * (number or 1)
    if given.hosts and given.world:
        per_node = max(world // given.hosts, 1)
    return min(per_node, world), world


def _is_idle(words: Sequence[str]) -> bool:
    """Whether it is no program that trains: ``python -m pip``."""
    return any(first == "-m" and second in _IDLE_MODULES for first, second in pairwise(words))


def _chosen(commands: Sequence[Command], script: str, number: int | None) -> Command:
    """The command that is the training: the chosen one, the only one, or the only one launched."""
    if number is not None:
        if number > len(commands):
            raise UsageError(f"--command {number}: {script} starts {len(commands)} programs")
        return commands[number - 1]
    launched = [item for item in commands if _is_launched(item.words)] or list(commands)
    if len({item.words for item in launched}) > 1:
        listed = "; ".join(f"{place} {_shown(item)}" for place, item in enumerate(commands, 1))
        raise UsageError(
            f"{script} starts {counted(len(commands), 'program')}: choose one with --command N: "
            f"{listed}"
        )
    return launched[0]


def _is_launched(words: Sequence[str]) -> bool:
    """Whether a launcher starts it, of processes or of jobs."""
    name, rest = os.path.basename(words[0]), list(words[1:])
    modules = pairwise(rest)
    return (
        name in LAUNCHERS
        or (name == "accelerate" and rest[:1] == ["launch"])
        or (name in registry.LAUNCHERS and name != "accelerate")
        or any(first == "-m" and second in registry.LAUNCHER_MODULES for first, second in modules)
    )


def _parsed(command: Command) -> Program:
    """Its program, where its files and its launcher's variables are."""
    with chdir(command.folder), _environment(command.variables):
        return parse(command.words)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _kept(variables: Mapping[str, str]) -> dict[str, str]:
    """Without those that each process gets."""
    return {name: text for name, text in variables.items() if not is_of_process(name)}


def _with_own(launchers: tuple[str, ...], variables: Mapping[str, str]) -> tuple[str, ...]:
    """A script that sets RANK by what its launcher says gives each process torchrun's variables."""
    return launchers if "RANK" not in variables else (*launchers, "torchrun")


def _shown(command: Command) -> str:
    text = shlex.join(command.words)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."
