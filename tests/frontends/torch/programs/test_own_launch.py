"""Programs whose own command starts a launcher, as command-line tools for training do."""

from __future__ import annotations

import base64
import sys
import textwrap

import pytest

from flint.frontends.torch.programs import launchers
from flint.launching.commands.launchers import launched_by
from flint.launching.commands.variables import differing
from tests.programs.comparing import captured
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick

TRAIN = """
    import os, sys, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("nccl")
    rank = int(os.environ["RANK"])
    model = DistributedDataParallel(torch.nn.Linear(4, 4, device="cuda"))
    rows = int(sys.argv[1]) + (rank == 1) + int(os.environ.get("MORE_ROWS", 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(rows, 4, device="cuda")).sum().backward()
        optimizer.step()
"""
#: How a tool starts it; the variables and options are its own.
TOOLS = {
    "function": """
        from torch.distributed import run
        run.main(["--nproc-per-node=2", "train.py", "2"])
    """,
    "command": """
        import os, subprocess, sys
        command = ["torchrun", "--nproc-per-node", "2", "train.py", "1"]
        done = subprocess.run(command, env={**os.environ, "MORE_ROWS": "1"}, check=True)
        sys.exit(done.returncode)
    """,
    "module": """
        import subprocess, sys
        words = [sys.executable, "-u", "-m", "torch.distributed.run", "--nproc-per-node=2"]
        subprocess.Popen(args=[*words, "train.py", "2"]).wait()
    """,
    "shell": """
        import os
        import subprocess
        subprocess.check_call("MORE_ROWS=1 torchrun --nproc-per-node=2 train.py 1 2>&1", shell=True)
    """,
    "replaced": """
        import os
        os.execvp("torchrun", ["torchrun", "--nproc-per-node=2", "train.py", "2"])
    """,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    return tmp_path


#: A program of a job's tasks, as a batch script starts it.
BATCH = """
    #!/bin/bash
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=2
    export MORE_ROWS=1
    srun python slurm.py 1
"""


@pytest.mark.parametrize("way", quick(TOOLS, "command"))
def test_the_program_that_a_tool_launches_is_captured(folder, way):
    (folder / "tool.py").write_text(textwrap.dedent(TOOLS[way]))
    found = captured(folder, 2, "tool.py")
    # A layer of 4 x 4, forward and for its weights: 2 x 2 FLOPs x rows x 16; its gradients of 4
    # bytes each, reduced at once.
    collectives = {"over 0, 1": [["all_reduce", 4 * (16 + 4)]]}
    assert found == [{"collectives": collectives, "flops": 2 * 2 * rows * 16} for rows in (2, 3)]


def test_the_ranks_of_a_batch_job_are_its_tasks(folder):
    (folder / "job.sh").write_text(textwrap.dedent(BATCH).lstrip())
    text = textwrap.dedent(TRAIN).replace(
        'dist.init_process_group("nccl")',
        "import subprocess\n"
        "words = ['scontrol', 'show', 'hostnames', os.environ['SLURM_NODELIST']]\n"
        "os.environ['MASTER_ADDR'] = subprocess.check_output(words, text=True).split()[0]\n"
        "os.environ['MASTER_PORT'] = '29500'\n"
        "rank, tasks = (int(os.environ[f'SLURM_{name}']) for name in ('PROCID', 'NTASKS'))\n"
        'dist.init_process_group("nccl", rank=rank, world_size=tasks)',
    )
    (folder / "slurm.py").write_text(text.replace('"RANK"', '"SLURM_PROCID"'))
    collectives = {"over 0, 1": [["all_reduce", 4 * (16 + 4)]]}
    assert captured(folder, 2, "sbatch", "job.sh") == [
        {"collectives": collectives, "flops": 2 * 2 * rows * 16} for rows in (2, 3)
    ]


def test_another_number_of_processes_than_the_cluster_has_is_an_error(folder):
    (folder / "tool.py").write_text(textwrap.dedent(TOOLS["command"]))
    done = flint("run", "--world", 4, "-o", "out", "--", "tool.py", cwd=folder)
    assert done.returncode == 1
    assert "2 processes are started at tool.py:4" in done.stderr
    assert "--gpus-per-node 2" in done.stderr


def test_what_deepspeed_starts_on_a_host_is_read_by_its_own_parser(tmp_path, monkeypatch):
    """A parser that reads the process's own command line, as that of DeepSpeed does."""
    package = tmp_path / "deepspeed" / "launcher"
    package.mkdir(parents=True)
    (package / "launch.py").write_text(
        textwrap.dedent("""
            import argparse
            def parse_args():
                parser = argparse.ArgumentParser()
                parser.add_argument("--world_info")
                for name in ("--module", "--no_python", "--no_local_rank"):
                    parser.add_argument(name, action="store_true")
                parser.add_argument("training_script")
                parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
                return parser.parse_args()
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    hosts = base64.urlsafe_b64encode(b'{"a": [0, 1], "b": [0, 1]}').decode()
    words = f"-u -m deepspeed.launcher.launch --world_info={hosts} --module train --lr 3".split()
    found = launched_by([sys.executable, *words])
    assert (found.target, found.is_module, found.arguments) == ("train", True, ("--lr", "3"))
    assert (found.per_node, found.nodes, found.local_rank_option) == (2, 2, "--local_rank")


@pytest.mark.thorough
def test_the_program_does_not_inherit_what_its_launchers_package_found(tmp_path, monkeypatch):
    """Which looks for devices when it is imported, and here there are none."""
    package = tmp_path / "deepspeed"
    (package / "launcher").mkdir(parents=True)
    (package / "__init__.py").write_text("import torch; found = torch.cuda.device_count()")
    (package / "launcher" / "runner.py").write_text(
        textwrap.dedent("""
            import argparse
            def parse_args(words):
                found = argparse.Namespace(user_script=words[0], user_args=words[1:], module=False)
                found.num_gpus, found.num_nodes, found.no_local_rank = 4, -1, True
                return found
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = launchers.deepspeed(["train.py", "3"])
    assert (found.target, found.arguments, found.per_node) == ("train.py", ("3",), 4)
    assert "deepspeed" not in sys.modules
    text = "import deepspeed\nif deepspeed.found != 4: raise SystemExit(str(deepspeed.found))\n"
    (tmp_path / "train.py").write_text(text + textwrap.dedent(TRAIN))
    words = ("--world", 4, "--gpus-per-node", 4, "-o", "out", "--", "deepspeed", "train.py", "2")
    done = flint("run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_composers_launcher_starts_its_program(tmp_path, monkeypatch):
    """By its parser, which here has the options of release 0.32 that matter."""
    package = tmp_path / "composer" / "cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "launcher.py").write_text(
        textwrap.dedent("""
            import argparse
            def _get_parser():
                parser = argparse.ArgumentParser()
                parser.add_argument("-n", "--nproc", type=int)
                parser.add_argument("-m", "--module_mode", action="store_true")
                parser.add_argument("-c", "--command_mode", action="store_true")
                parser.add_argument("--world_size", type=int)
                parser.add_argument("training_script")
                parser.add_argument("training_script_args", nargs="...")
                return parser
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = launchers.composer(["-n", "4", "--world_size", "8", "train.py", "-n", "3"])
    assert (found.target, found.arguments) == ("train.py", ("-n", "3"))
    assert (found.per_node, found.nodes) == (4, 2)
    assert "NODE_RANK" in {name for each in found.launchers for name in differing(each)}
