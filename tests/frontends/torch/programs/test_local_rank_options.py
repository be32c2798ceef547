"""Launchers that tell a process its number on its host: by an option, or a single one."""

from __future__ import annotations

import os
import textwrap
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from flint.frontends.torch.programs import hooks
from flint.launching.commands.launchers import parse
from flint.launching.commands.variables import variables
from flint.launching.program import Cluster, Program, ProgramRequest
from tests.programs.comparing import captured

#: As programs for DeepSpeed and for ``torch.distributed.launch`` begin: -1 means one process alone.
PROGRAM = """
    import argparse, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", "--local_rank", type=int, default=-1)
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    model = torch.nn.Linear(4, 4, device="cuda")
    if args.local_rank != -1:
        torch.cuda.set_device(args.local_rank)
        dist.init_process_group("nccl")
        model = DistributedDataParallel(model)
    rows = args.rows + (args.local_rank == 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(rows, 4, device="cuda")).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("use_env", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_program_gets_the_option_unless_its_launcher_leaves_it_out(tmp_path, use_env):
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    launcher = "python -m torch.distributed.launch --nnodes=2 --nproc_per_node=2"
    words = [*launcher.split(), *(["--use_env"] if use_env else []), "train.py", "--rows=2"]
    found = captured(tmp_path, 4, *words)
    # A layer of 4 x 4, forward and for its weights: 2 x 2 FLOPs x rows x 16.
    rows = [2, 2, 2, 2] if use_env else [2, 3, 2, 3]
    assert [item["flops"] for item in found] == [2 * 2 * count * 16 for count in rows]
    assert [bool(item["collectives"]) for item in found] == [not use_env] * 4


def test_a_launcher_numbers_a_single_process_too(monkeypatch):
    for name in variables("torchrun", 0, world=1, per_host=1):
        monkeypatch.setenv(name, "")
    for launched, rank in ((False, ""), (True, "0")):
        program = Program(target="train.py", ranks_one=launched)
        request = ProgramRequest(program=program, cluster=Cluster(world=1, per_node=1))
        hooks.prepare(request, SimpleNamespace(rank=0), None)
        assert os.environ["LOCAL_RANK"] == rank
    assert parse(["torchrun", __file__]).ranks_one
    assert not parse([__file__]).ranks_one
