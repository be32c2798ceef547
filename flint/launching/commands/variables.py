"""Variables by which launchers tell a process which one of a job it is: torchrun's, Slurm's, MPI's.

The idea: all of them follow from a rank, the number of ranks and the number of them on each host.
The same functions give the variables of one process, and the value of one on every rank.

    variables("srun", 9, world=16, per_host=8)["SLURM_LOCALID"]     # "1"
    of_ranks("SLURM_LOCALID", np.arange(16), 16, 8)                 # 0 to 7, twice
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

#: From rank (one, or an array), number of ranks, and ranks per host.
_Value = Callable[[Any, int, int], Any]


def _rank(rank: Any, world: int, per_host: int) -> Any:
    return rank


def _local(rank: Any, world: int, per_host: int) -> Any:
    return rank % per_host


def _host(rank: Any, world: int, per_host: int) -> Any:
    return rank // per_host


def _world(rank: Any, world: int, per_host: int) -> int:
    return world


def _per_host(rank: Any, world: int, per_host: int) -> int:
    return per_host


def _hosts(rank: Any, world: int, per_host: int) -> int:
    return -(-world // per_host)


def _names(rank: Any, world: int, per_host: int) -> str:
    """In Slurm's notation, whose length hardly grows."""
    last = _hosts(rank, world, per_host)
    blocks = range(0, last + 1, 256)
    return ",".join(
        f"{_address(at).rpartition('.')[0]}.[{max(at, 1) & 255}-{min(at | 255, last) & 255}]"
        for at in blocks
    )


def _tasks(rank: Any, world: int, per_host: int) -> str:
    return f"{per_host}(x{_hosts(rank, world, per_host)})"


#: Launcher -> its variables.  Open MPI, MPICH and Intel MPI have different ones; a program reads
#: those that it finds.
_OF: Mapping[str, Mapping[str, _Value | str]] = {
    "torchrun": {
        "RANK": _rank, "WORLD_SIZE": _world, "LOCAL_RANK": _local, "LOCAL_WORLD_SIZE": _per_host,
        "GROUP_RANK": _host, "GROUP_WORLD_SIZE": _hosts, "ROLE_RANK": _rank,
        "ROLE_WORLD_SIZE": _world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "flint",
    },
    "composer": {"NODE_RANK": _host},  # besides torchrun's
    "srun": {
        "SLURM_PROCID": _rank, "SLURM_LOCALID": _local, "SLURM_NODEID": _host,
        "SLURM_NTASKS": _world, "SLURM_NPROCS": _world, "SLURM_STEP_NUM_TASKS": _world,
        "SLURM_NTASKS_PER_NODE": _per_host, "SLURM_GPUS_ON_NODE": _per_host,
        "SLURM_NNODES": _hosts, "SLURM_JOB_NUM_NODES": _hosts, "SLURM_STEP_NUM_NODES": _hosts,
        "SLURM_JOB_NODELIST": _names, "SLURM_NODELIST": _names, "SLURM_STEP_NODELIST": _names,
        "SLURM_TASKS_PER_NODE": _tasks, "SLURM_STEP_TASKS_PER_NODE": _tasks,
        "SLURM_JOB_ID": "1", "SLURM_JOBID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "flint",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    },
    "mpirun": {
        "OMPI_COMM_WORLD_RANK": _rank, "OMPI_COMM_WORLD_SIZE": _world,
        "OMPI_COMM_WORLD_LOCAL_RANK": _local, "OMPI_COMM_WORLD_LOCAL_SIZE": _per_host,
        "OMPI_COMM_WORLD_NODE_RANK": _local, "PMI_RANK": _rank, "PMI_SIZE": _world,
        "MPI_LOCALRANKID": _local, "MPI_LOCALNRANKS": _per_host,
    },
}  # fmt: skip
#: Functions whose value differs among ranks.
_DIFFERING = (_rank, _local, _host)
#: The same by variable, of all launchers.
_FOLLOWED = {
    name: value
    for every in _OF.values()
    for name, value in every.items()
    if callable(value) and value in _DIFFERING
}
#: Variables that a job's launcher gives to each process: one that a captured program has takes the
#: cluster's, not those of a script or a tool around it.
_OWN = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|NODE_RANK|MASTER_(ADDR|PORT)|SLURM_.*"
    r"|(OMPI|PMI|MPI)_.*"
)


def variables(launcher: str, rank: int, *, world: int, per_host: int) -> dict[str, str]:
    """The variables that a launcher sets for a process.

    Args:
        launcher: "torchrun", "composer", "srun" or "mpirun".
        rank, world: of the process.
        per_host: processes per host.
    """
    return {
        name: value if isinstance(value, str) else str(value(rank, world, min(per_host, world)))
        for name, value in _OF[launcher].items()
    }


def differing(launcher: str) -> tuple[str, ...]:
    """The names of a launcher's variables that differ among ranks."""
    return tuple(name for name in _OF[launcher] if name in _FOLLOWED)


def of_ranks(name: str, ranks: Any, world: int, per_host: int) -> Any:
    """The value of a variable on each of an array of ranks; None if it is none that differs."""
    value = _FOLLOWED.get(name)
    return None if value is None else value(ranks, world, min(per_host, world))


def is_of_process(name: str) -> bool:
    """Whether each process gets this variable from what launches the job."""
    return _OWN.fullmatch(name) is not None


def hosts(number: int) -> list[str]:
    """Names of hosts: addresses of this machine, so that a program can look them up."""
    return list(map(_address, range(1, number + 1)))


def _address(host: int) -> str:
    return f"127.{host >> 16}.{host >> 8 & 255}.{host & 255}"
