"""Programs that start their ranks with ``mp.Process``, and processes that are no ranks."""

from __future__ import annotations

import textwrap

import pytest

from flint.errors import FlintError
from flint.launching.capturing import steps
from tests.programs.comparing import captured
from tests.support.command_line import flint_with_torch as flint

TRAIN = """
import os, multiprocessing as mp, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
class Holder:
    pass
Holder.itself = Holder
def join(rank, world):
    Holder()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29500"
    dist.init_process_group("nccl", rank=rank, world_size=world)
def main(rank, world, device, count=0):
    join(rank, world)
    model = DistributedDataParallel(torch.nn.Linear(4, 4).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        # Only the last rank's batch has more rows than the others'.
        model(torch.ones(8 + 8 * (rank == world - 1), 4, device=rank)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    started = []
    for rank in range(4):
        process = mp.Process(target=main, args=(rank, 4, DEVICE), kwargs={"count": 5})
        process.start()
        started.append(process)
    for process in started:
        process.join()
"""


@pytest.mark.thorough
def test_ranks_that_are_started_as_processes_are_captured(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN.replace("DEVICE", "'cuda'"))
    found = captured(tmp_path, 4, str(tmp_path / "train.py"))
    # DDP reduces 4 x 4 weights and 4 biases, 4 bytes each, in one bucket.  The product and that
    # for its weights' gradient: 2 FLOPs x rows x 4 x 4 each.
    reduced = {"over 0, 1, 2, 3": [["all_reduce", 80]]}
    assert found == [
        {"collectives": reduced, "flops": 2 * 2 * rows * 4 * 4} for rows in (8, 8, 8, 16)
    ]


@pytest.mark.parametrize(
    ("device", "world", "said"),
    [
        ("'cuda'", 8, r"4 processes are started at train.py:23, .* use --gpus-per-node 4"),
        ("f'cuda:{rank}'", 4, r"started at train.py:23 get different arguments \(str\)"),
    ],
)
def test_what_a_capture_does_not_follow_is_one_line(request_of, device, world, said):
    with pytest.raises(FlintError, match=said):
        steps(request_of(TRAIN.replace("DEVICE", device), world=world))


def test_a_process_that_joins_no_group_really_starts(said):
    text = """
        import multiprocessing as mp
        def work(number, queue):
            queue.put(number + os.getppid())
        queue = mp.Queue()
        mp.Process(target=work, args=(1, queue)).start()
        say(queue.get() - os.getpid())
    """
    assert said(text) == [1]


@pytest.mark.thorough
def test_a_process_that_starts_anew_has_the_programs_answers_about_gpus(said):
    """It imports the program's module, which may insist on them; an A100 has capability 8.0."""
    text = """
        import multiprocessing as mp
        import torch
        assert torch.cuda.is_available()
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                asked = "__import__('torch').cuda.get_device_capability()"
                say(list(pool.apply(eval, (asked,))), list(torch.cuda.get_device_capability()))
    """
    assert said(text) == [[8, 0], [8, 0]]


@pytest.mark.parametrize("start", ["spawn", "queue"])
def test_a_tensor_of_the_device_for_another_process_is_one_line(request_of, start):
    """As models that several processes train at once (Hogwild)."""
    pass_on = {
        "spawn": "mp.get_context('spawn').Process(target=print, args=(layer,)).start()",
        "queue": "mp.get_context('spawn').SimpleQueue().put(layer.weight)",
    }[start]
    text = f"""
        import torch
        import torch.multiprocessing as mp
        layer = torch.nn.Linear(2, 2).cuda()
        {pass_on}
    """
    with pytest.raises(
        FlintError, match=r"another process gets a tensor of the device .train.py:5"
    ):
        steps(request_of(text))


@pytest.mark.thorough
def test_a_programs_path_is_that_of_python(tmp_path):
    """``python sub/train.py`` does not find modules in the working folder."""
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(textwrap.dedent("import torch, beside"))
    done = flint(
        "run", "--world", 1, "-o", tmp_path / "out", "--", "python", "sub/train.py", cwd=tmp_path
    )
    assert "ModuleNotFoundError: No module named 'beside'" in done.stderr


def test_processes_that_call_each_others_functions_are_refused(request_of):
    text = "import torch.distributed.rpc as rpc\nrpc.init_rpc('worker', rank=0, world_size=2)\n"
    with pytest.raises(FlintError, match=r"init_rpc at train.py:2: .*torch.distributed.rpc"):
        steps(request_of(text, world=2))


def test_started_ranks_are_processes_of_their_own_to_the_program(said):
    """It names them, asks how they have ended, and its loop that starts them is no training's."""
    text = """
        import torch, torch.distributed as dist
        import torch.multiprocessing as mp
        from flint.launching.code_behind import calls_of, loop_around
        import sys
        def main(rank, queue):
            dist.init_process_group("gloo", "tcp://localhost:1", rank=4 + rank, world_size=16)
            calls = calls_of(sys._getframe())
            found.append(loop_around(calls, sys._getframe()))
        found, processes = [], []
        queue = mp.get_context("spawn").SimpleQueue()
        for rank in range(4):
            processes.append(mp.get_context("spawn").Process(target=main, args=(rank, queue)))
            processes[-1].start()
            found.append("%d" % processes[-1].pid == str(os.getpid()))
        for process in processes:
            process.join()
        found += [process.exitcode for process in processes]
        say(*found, any(process.is_alive() for process in processes))
    """
    assert said(text) == [True, True, True, "", True, 0, 0, 0, 0, False]


def test_a_process_that_is_waited_for_gets_the_ranks_variables(said):
    """Copies of the program that are made while it starts would keep its pipes open for ever."""
    assert said(
        """
        import subprocess
        given = dict(os.environ, LC_ALL="C")
        say(subprocess.check_output(["sh", "-c", "echo $RANK"], env=given, text=True))
        """
    ) == ["5\n"]
