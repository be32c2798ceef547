"""Python objects that ranks of a program send to each other."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # here, not in every child
from tests.programs.comparing import HERE, real
from tests.support.command_line import flint_with_torch as flint


def test_a_rank_gets_what_the_sender_holds(said):
    """As rank 5 of 16, of which nothing is known before."""
    found = said("""
        import torch.distributed as dist
        dist.init_process_group("nccl")
        rank, world = dist.get_rank(), dist.get_world_size()
        told = [{"layers": 3}] if rank == 0 else [None]
        dist.broadcast_object_list(told, src=0)
        own = [None]
        dist.scatter_object_list(own, list("abcdefghijklmnop") if rank == 1 else None, src=1)
        every = [None] * world
        dist.all_gather_object(every, ("rank", rank * 2))
        say(told, own, every)
    """)
    assert found == [[{"layers": 3}], ["f"], [["rank", rank * 2] for rank in range(16)]]


def test_each_rank_holds_an_object_of_its_own(said):
    """What is unpickled: detectron2 takes an item out of each of the gathered dicts."""
    found = said("""
        import numpy, torch.distributed as dist
        dist.init_process_group("nccl")
        own = {"time": 2.0, "parts": [1], "sizes": numpy.ones(2)}
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, own)
        times = [item.pop("time") for item in every]
        every[0]["parts"].append(2)
        every[0]["sizes"][0] = 5
        say(times, own["time"], own["parts"], every[1]["parts"], every[1]["sizes"].tolist())
    """)
    assert found == [[2.0] * 16, 2.0, [1], [1], [1.0, 1.0]]


@pytest.mark.parametrize("numbers", [3, 2000])
def test_an_object_that_a_program_pickles_into_bytes_is_the_senders(said, numbers):
    """As fairseq and Uni-Core broadcast objects; 2,000 numbers are more than 4,000 bytes."""
    found = said(f"""
        import pickle, torch, torch.distributed as dist
        dist.init_process_group("nccl")
        if dist.get_rank() == 0:
            data = torch.ByteTensor(list(pickle.dumps(list(range({numbers}))))).cuda()
            length = torch.LongTensor([len(data)]).cuda()
            dist.broadcast(length, 0)
        else:
            length = torch.LongTensor([0]).cuda()
            dist.broadcast(length, 0)
            data = torch.ByteTensor(int(length.item())).cuda()
        dist.broadcast(data, 0)
        say(pickle.loads(data.cpu().numpy().tobytes()))
    """)
    assert found == [list(range(numbers))]


@pytest.mark.thorough
def test_what_ranks_get_is_what_they_get_in_a_real_run(tmp_path):
    program = str(HERE / "objects.py")
    captured, run = tmp_path / "captured", tmp_path / "run"
    for folder in (captured, run):
        folder.mkdir()
    out = ("-o", tmp_path / "out")
    done = flint("run", "--world", 4, *out, "--", "python", program, captured, "cuda")
    assert done.returncode == 0, done.stderr
    real(tmp_path, 4, program, str(run), "cpu")
    said = [
        [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]
        for folder in (captured, run)
    ]
    assert said[0] == said[1]
