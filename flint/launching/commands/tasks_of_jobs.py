"""``srun`` and ``mpirun``: how many tasks they start, on how many hosts, and of which command.

The idea: what comes after their options is the command.  Which options have a value is known from
their manuals; only the numbers of tasks and hosts, and variables, matter here.  This file needs
only Python: what a script starts reads it, too (``started.py``).

    task_of(["srun", "-N", "4", "--ntasks-per-node=8", "python", "train.py"])
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_SLURM, _MPI = "srun", "mpirun"
#: Command -> the launcher whose variables its tasks have.
LAUNCHERS = {
    "srun": _SLURM, "mpirun": _MPI, "mpiexec": _MPI, "mpiexec.hydra": _MPI, "orterun": _MPI,
}  # fmt: skip
#: ``srun``'s options without a value; the values of optional ones come after "=".
_SRUN_FLAGS = frozenset((
    "-E", "-H", "-I", "-K", "-O", "-Q", "-X", "-Z", "-k", "-l", "-s", "-u", "-v", "-W0",
    "--compress", "--contiguous", "--disable-status", "--exact", "--exclusive", "--hold",
    "--immediate", "--kill-on-bad-exit", "--label", "--multi-prog", "--no-allocate", "--no-kill",
    "--oversubscribe", "--overcommit", "--overlap", "--preserve-env", "--pty", "--quiet",
    "--reboot", "--resv-ports", "--spread-job", "--unbuffered", "--use-min-nodes", "--verbose",
    "--whole", "--container-writable", "--container-readonly", "--container-remap-root",
    "--container-mount-home", "--no-container-mount-home", "--no-container-remap-root",
    "--no-container-entrypoint", "--container-entrypoint",
))  # fmt: skip
#: MPI's options -> number of their values; all others have none.
_MPI_VALUES = {
    **dict.fromkeys(("mca", "gmca", "prtemca", "pmixmca", "genv", "env"), 2),
    **dict.fromkeys(
        ("n", "np", "c", "N", "npernode", "ppn", "perhost", "H", "host", "hosts", "hostfile",
         "default-hostfile", "machinefile", "f", "x", "wdir", "wd", "path", "bind-to", "map-by",
         "rank-by", "prefix", "rf", "rankfile", "output-filename", "timeout", "launcher",
         "bootstrap", "iface", "genvlist", "envlist", "app", "tune", "am", "stdin", "ofi", "rmk",
         "cpu-set", "display-devel-map", "xterm", "npersocket", "cpus-per-proc"),
        1,
    ),
}  # fmt: skip
#: Options that say how many tasks there are, on each host, and how many hosts.
_TASKS = {_SLURM: ("n", "ntasks"), _MPI: ("n", "np", "c")}
_ON_HOST = {
    _SLURM: ("ntasks-per-node",),
    _MPI: ("N", "npernode", "ppn", "perhost"),
}
_HOSTS: dict[str, tuple[str, ...]] = {_SLURM: ("N", "nodes"), _MPI: ()}
_VARIABLE = {_SLURM: ("export",), _MPI: ("x", "genv", "env")}


#: Tasks on a host, if there are that many and nothing says more.
_PER_HOST = 8


class Task(NamedTuple):
    """What a launcher of jobs starts.

    Attributes:
        words: the command of each task.
        launcher: "srun" or "mpirun".
        tasks, per_host, hosts: numbers that its options state.
        variables: that its options set.
    """

    words: tuple[str, ...]
    launcher: str
    tasks: int | None = None
    per_host: int | None = None
    hosts: int | None = None
    variables: tuple[tuple[str, str], ...] = ()

    def numbers(self) -> tuple[int | None, int | None]:
        """Tasks per host, and hosts, as far as they follow."""
        each, hosts = self.per_host, self.hosts
        if self.tasks and not each and not hosts:
            each = min(self.tasks, _PER_HOST)
        if self.tasks and hosts and not each:
            each = -(-self.tasks // hosts)
        if self.tasks and each and not hosts:
            hosts = -(-self.tasks // each)
        return each, hosts


def task_of(words: Sequence[str]) -> Task | None:
    """The task that a command line of such a launcher starts; None for any other command."""
    launcher = LAUNCHERS.get(os.path.basename(words[0])) if words else None
    if launcher is None:
        return None
    options, rest = _parted(launcher, list(words[1:]))
    return Task(
        words=tuple(rest),
        launcher=launcher,
        tasks=_number(options, _TASKS[launcher]),
        per_host=_number(options, _ON_HOST[launcher]),
        hosts=_number(options, _HOSTS[launcher]),
        variables=tuple(_variables(options, _VARIABLE[launcher])),
    )


def _parted(launcher: str, words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """((option, value), ...), and the words of the command."""
    found: list[tuple[str, str]] = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, stands, value = word.partition("=")
        count = 0 if stands else _values(launcher, word)
        if launcher == _SLURM and not stands and count and not word.startswith("--"):
            name, value = word[:2], word[2:]  # -N4
            count = 0 if value else 1
        taken, words = words[:count], words[count:]
        found.append((name.lstrip("-"), value or "=".join(taken)))
    return found, words


def _values(launcher: str, word: str) -> int:
    if launcher == _SLURM:
        return 0 if word in _SRUN_FLAGS else 1
    return _MPI_VALUES.get(word.lstrip("-"), 0)


def _number(options: Sequence[tuple[str, str]], names: Sequence[str]) -> int | None:
    """The last that one of these options states; of "2-4" hosts, the first number."""
    texts = [value.partition("-")[0] for name, value in options if name in names]
    return int(texts[-1]) if texts and texts[-1].isdecimal() and int(texts[-1]) else None


def _variables(
    options: Sequence[tuple[str, str]], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for name, value in options:
        if name in names:
            for item in value.split(",") if name == "export" else [value]:
                variable, stands, text = item.partition("=")
                if stands:
                    yield variable, text


def directives(text: str) -> Task:
    """The numbers in a batch script's lines for Slurm (``#SBATCH --nodes=4``)."""
    options: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            options += _parted(_SLURM, line.partition(" #")[0].split()[1:])[0]
    gpus = _number(
        [(name, value.rpartition(":")[2]) for name, value in options],
        ("gpus-per-node", "gres", "gpus-per-task"),
    )
    return Task(
        (), _SLURM, _number(options, _TASKS[_SLURM]),
        _number(options, _ON_HOST[_SLURM]) or gpus, _number(options, _HOSTS[_SLURM]),
    )  # fmt: skip
