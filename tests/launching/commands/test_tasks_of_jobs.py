"""Command lines of ``srun`` and ``mpirun``, with options as their manuals describe them."""

from __future__ import annotations

import numpy as np
import pytest

from flint.launching.commands.tasks_of_jobs import directives, task_of
from flint.launching.commands.variables import differing, of_ranks, variables

#: Command line -> its command, tasks per host, hosts.
LINES = {
    "srun -N 4 --ntasks-per-node=8 python train.py -N 2": ("python train.py -N 2", 8, 4),
    "srun -N4 -n32 -l -u torchrun train.py": ("torchrun train.py", 8, 4),
    "srun --nodes 2 --ntasks 8 --partition test --exclusive python a.py": ("python a.py", 4, 2),
    "srun --label --export=ALL,A=1 --container-image x bash a.sh": ("bash a.sh", None, None),
    "srun --kill-on-bad-exit=1 -J test -o log -- python a.py": ("python a.py", None, None),
    "/usr/bin/srun -N 2-4 python a.py": ("python a.py", None, 2),
    "mpirun -np 4 python a.py -n 3": ("python a.py -n 3", 4, 1),
    "mpirun -n 16 -npernode 4 --bind-to none -x A=1 -x B python a.py": ("python a.py", 4, 4),
    "mpirun --allow-run-as-root -mca btl tcp,self -np 2 -H a:1,b:1 a.py": ("a.py", 2, 1),
    "mpiexec -ppn 8 -n 32 -genv A 1 -hosts a,b,c,d python a.py": ("python a.py", 8, 4),
}


@pytest.mark.parametrize("line", LINES)
def test_what_comes_after_the_options_is_the_command(line):
    found = task_of(line.split())
    assert (" ".join(found.words), *found.numbers()) == LINES[line]


def test_other_commands_start_no_tasks():
    assert task_of(["torchrun", "srun"]) is None
    assert task_of([]) is None


def test_variables_of_options_are_the_tasks():
    for line, known in {
        "srun --export=ALL,A=1,B=x=2 a": {"A": "1", "B": "x=2"},
        "mpirun -x A=1 -x B -genv C 3 a": {"A": "1", "C": "3"},
    }.items():
        assert dict(task_of(line.split()).variables) == known


def test_a_batch_script_says_how_many_tasks_its_job_has():
    text = (
        "#!/bin/bash\n#SBATCH -N 4 -J train # four of them\n#SBATCH --gres=gpu:h100:8\necho -N 9\n"
    )
    assert directives(text).numbers() == (8, 4)
    assert directives("#SBATCH --nodes=2\n#SBATCH --ntasks=8\n").numbers() == (4, 2)
    assert directives("echo\n").numbers() == (None, None)


def test_variables_follow_from_the_rank():
    # Rank 13 of 64 on hosts of 8: 13 = 1 * 8 + 5.
    found = variables("torchrun", 13, world=64, per_host=8)
    assert [found[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")] == ["13", "5", "1"]
    assert [found[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")] == ["64", "8"]
    found = variables("srun", 13, world=64, per_host=8)
    assert [found[f"SLURM_{name}"] for name in ("PROCID", "LOCALID", "NODEID")] == ["13", "5", "1"]
    assert [found[f"SLURM_{name}"] for name in ("NTASKS", "NNODES")] == ["64", "8"]
    assert found["SLURM_TASKS_PER_NODE"] == "8(x8)"
    found = variables("mpirun", 13, world=64, per_host=8)
    names = ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")
    assert [found[f"OMPI_COMM_WORLD_{name}"] for name in names] == ["13", "5", "64", "8"]


def test_a_small_job_has_one_host():
    assert variables("torchrun", 1, world=2, per_host=8)["LOCAL_WORLD_SIZE"] == "2"


@pytest.mark.parametrize("launcher", ["torchrun", "srun", "mpirun"])
def test_a_variable_on_all_ranks_is_that_of_each(launcher):
    each = [variables(launcher, rank, world=6, per_host=3) for rank in range(6)]
    for name in each[0]:
        texts = [found[name] for found in each]
        if name in differing(launcher):
            assert of_ranks(name, np.arange(6), 6, 3).tolist() == list(map(int, texts))
        else:
            assert len(set(texts)) == 1 and of_ranks(name, np.arange(6), 6, 3) is None


def test_names_of_many_hosts_are_short():
    """In Slurm's notation, which has a range of numbers in brackets."""
    found = variables("srun", 0, world=300, per_host=1)["SLURM_JOB_NODELIST"]
    assert found == "127.0.0.[1-255],127.0.1.[0-44]"  # 255 + 45 hosts
    assert len(variables("srun", 0, world=1 << 20, per_host=8)["SLURM_NODELIST"]) < 1 << 14
