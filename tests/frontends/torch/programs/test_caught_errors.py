"""Programs that catch what ends their training, and go on to their end."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.support.command_line import flint_with_torch as flint

#: Its inference must not pass for its step.
CATCHES = """
import torch
layer = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for features in (4, 4, 4, 5):
    try:
        with torch.set_grad_enabled(features == 5):
            loss = layer(torch.ones(2, features, device="cuda")).sum()
    except RuntimeError as error:
        print("logged", error)
"""


def test_an_error_that_the_program_catches_is_why_it_has_no_step(tmp_path):
    (tmp_path / "train.py").write_text(CATCHES)
    done = flint("run", "--world", "2", "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert done.stderr.startswith("flint: train.py:8: the program failed: RuntimeError: ")


#: What starts the ranks makes a folder once in a run.
SPAWNS = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    layer = torch.nn.Linear(4 + rank, 4).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        layer(torch.ones(2, 4 + rank, device="cuda")).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    os.mkdir("models")
    log = open("models/log", "w")  # so that the other rank's process is no copy
    mp.spawn(main, args=(2,), nprocs=2)
"""


def test_a_folder_that_the_program_made_for_another_rank_is_named(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNS)
    line = ("run", "--world", "2", "--gpus-per-node", "2", "-o", "out", "--", "python", "train.py")
    done = flint(*line, cwd=tmp_path)
    assert done.returncode == 1 and "once for each rank that it records" in done.stderr
