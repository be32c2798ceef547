"""How programs end: with a step that was asked for, or with one line that names their own."""

from __future__ import annotations

import functools
import json
import re

import pytest

pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # here, not in every child
from flint import load
from flint.capturing.request import CaptureOptions
from flint.errors import FlintError, UsageError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.launching.capturing import steps
from flint.launching.child import be_program
from flint.launching.program import step_choice
from tests.programs.comparing import captured
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick_rows

LIMITS = Limits(seconds=1200, memory=2**35)

#: Its n-th batch has n rows: which step was captured can be told from it.
TRAIN = """
import torch
def train(count):
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for n in range(1, count + 1):
        layer(torch.ones(n, 4, device="cuda")).sum().backward()
        optimizer.step()
"""

INFER = """
import torch
class Net(torch.nn.Linear):
    pass
net = Net(4, 4).cuda().eval()
with torch.no_grad():
    for _ in range(4):
        net(torch.ones(8, 4, device="cuda"))
"""

#: A loop without a model and without an optimizer; the n-th round has n rows.
FUNCTIONS = """
import torch
weight = torch.ones(4, 4, device="cuda")
for n in range(1, 7):
    rows = torch.ones(n, 4, device="cuda")
    torch.relu(rows @ weight)
"""

SPAWN = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
def main(rank, world, count):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DistributedDataParallel(torch.nn.Linear(4, 4).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        model(torch.ones(8, 4, device=rank)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29500"
    mp.spawn(main, args=(4, 5), nprocs=4)
"""

#: Half of its parameters are not used.
HALF = """
import torch
class Half(torch.nn.Linear):
    def forward(self, x):
        return x @ self.weight
"""

COMPILED = """
import torch
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def refusal(request_of, tmp_path):
    """The one line that a program without a step ends with."""

    def line(text, **asked):
        request = request_of(text, **asked)
        with pytest.raises(FlintError) as raised:
            run_all(functools.partial(be_program, request), [0], tmp_path, LIMITS)
        assert not isinstance(raised.value, UsageError)  # exit status 1
        assert "\n" not in str(raised.value)
        return str(raised.value)

    return line


ENDS = [
    (
        "train(1)\nraise SystemExit(1)",
        r"left at train.py:10 \(1\) before its step .*optimizer at train.py:8 \(begun, not",
    ),
    ("train(2)", r"optimizer at train.py:8 \(1 time\).*--step optimizer:1$"),
    (  # what a program does not notice has not ended it
        "train(2)\ntorch.save(torch.ones(2).cuda(), 'ones.pt')",
        r"optimizer at train.py:8 \(1 time\).*--step optimizer:1$",
    ),
    (
        "import os\nos.write(1, b'no GPUs found, exiting')\nraise SystemExit",
        r"left at train.py:11 before .*The last line that it printed: no GPUs found, exiting$",
    ),
    (
        "torch.ones(2).cuda() + 1",
        "train.py ended before .*: no step was seen; a step lies between two steps of an optim",
    ),
    (  # which asks for the device of each index
        "torch.ones(2, 2).cuda()[torch.arange(2), torch.arange(2)]",
        "train.py ended before .*: no step was seen",
    ),
    ("train(1)\nraise SystemExit('no config')", r"left at train.py:10 \(no config\) before"),
    (
        "try:\n    torch.ones(2).cuda() @ torch.ones(3).cuda()\n"
        "except Exception:\n    raise SystemExit(1)",
        "^train.py:10: the program failed: RuntimeError: ",
    ),
    (
        "count = torch.rand(3, device='cuda').long().sum().item()\n"
        "torch.ones(4).cuda() + torch.ones(count + 1).cuda()",
        "^train.py:10: .*RuntimeError: .*; this may follow from: an integer .* assumed to be 1$",
    ),
    ("import os\ntrain(1)\nos._exit(2)", "^train.py left at train.py:11 "),
    ("train(1)\ninput('name? ')", "^train.py:10: .*EOFError.*waits for input"),
    ("import os\nif not os.fork():\n    train(9)", "starts processes at train.py:10"),
    (
        "from torch.multiprocessing import get_context\n"
        "process = get_context('fork').Process(target=train, args=(9,))\n"
        "process.start()\nprocess.join()",
        "starts processes at train.py:11",
    ),
    ("torch.load('none.pt')", "^train.py:9: .*none.pt'; with --fake-data, Flint makes"),
    ("from torch.nn import NotThere", "^train.py:9: .*NotThere.*install the version"),
    ("import not_installed_anywhere", "^train.py:9: .*install it beside Flint$"),
    ("import transformer_engine.pytorch", "beside Flint, without what .*: pip install --no-deps"),
    ("from xformers.ops import fmha", "without what needs a GPU: pip install --no-deps xformers$"),
    (
        "import torch.utils.cpp_extension as extension\nextension.CUDA_HOME = None\n"
        "extension.include_paths('cuda')",
        "^train.py:11: .*OSError: CUDA_HOME .*compiles kernels of its own.* start it without",
    ),
    (
        "import not_installed, json, nor_this.one\nfrom flash_attn import flash_attn_func",
        r"^train.py:9: .*'not_installed'; install it .* not found: nor_this \(train.py:9\)$",
    ),
    (
        "import importlib.metadata\nimportlib.metadata.version('not-installed')",
        "^train.py:10: .*not-installed; install it beside Flint",
    ),
    (
        "import torch.distributed.checkpoint as dcp\ndcp.load({}, checkpoint_id='none')",
        "^train.py:10: .*No such file.*none",
    ),
    (INFER + "        net(net.weight).sum().int().item()", "^an integer .* at train.py:17 "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), quick_rows(ENDS, ENDS[0], ENDS[2], ENDS[7]))
def test_a_program_without_a_step_is_one_line_with_its_own(refusal, text, said):
    assert re.search(said, refusal(TRAIN + text))


@pytest.mark.parametrize(
    ("sender", "said"),
    [
        ("src=1", "what rank 1 sends is not known at train.py:5"),
        ("", r"objects are received at train.py:5 from any rank: name the sender \(src=\)"),
    ],
)
def test_objects_that_no_rank_sends_are_refused_with_the_programs_line(refusal, sender, said):
    text = f"""
    import torch.distributed as dist
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        dist.recv_object_list([None], {sender})
    """
    assert re.fullmatch(said, refusal(text, world=2))


@pytest.mark.thorough
def test_a_program_that_takes_too_long_is_one_line_with_its_own(refusal):
    text = "import torch\nwhile True:\n    torch.ones(2, device='cuda') + 1\n"
    said = refusal(text, options=CaptureOptions(time_limit=2))
    assert re.search(r"took more than 2 s and was stopped at train.py:\d", said)


@pytest.mark.parametrize(
    ("text", "world", "found"),
    quick_rows(
        [
            (TRAIN + "train(5)", 1, ("optimizer", 2, "train.py:8")),
            (INFER, 1, ("Net", 2, "train.py:8")),
            (FUNCTIONS, 1, ("loop", 5, "train.py:5")),
            (SPAWN, 4, ("optimizer", 2, "train.py:10")),
        ],
        (SPAWN, 4, ("optimizer", 2, "train.py:10")),
    ),
)
def test_steps_are_listed_with_the_programs_line(request_of, text, world, found):
    [step] = steps(request_of(text, world=world, lists_steps=True)).steps
    assert (step.name, step.count, step.place) == found


def test_a_step_that_there_is_not_is_refused_with_those_that_there_are(request_of):
    with pytest.raises(UsageError, match=r"no such step; steps seen: optimizer at train.py:8"):
        steps(request_of(TRAIN + "train(3)", step=step_choice("epoch")))


@pytest.mark.parametrize(
    ("per_node", "said"),
    quick_rows(
        [
            (8, r"4 processes are started at train.py:13, .* --gpus-per-node 4"),
            (4, r"init_process_group\(world_size=4\) at train.py:5: the cluster has 8 .*--world 4"),
        ],
        (4, r"init_process_group\(world_size=4\) at train.py:5: the cluster has 8 .*--world 4"),
    ),
)
def test_a_cluster_that_a_program_does_not_fill_is_named_with_its_line(request_of, per_node, said):
    with pytest.raises(FlintError, match=said):
        steps(request_of(SPAWN, world=8, per_node=per_node))


@pytest.mark.thorough
def test_what_a_program_compiles_is_captured_as_kernels(tmp_path):
    (tmp_path / "train.py").write_text(COMPILED)
    out = tmp_path / "out"
    line = ("run", "--world", 2, "--level", "optimized", "--target", "h100", "-o", out, "--")
    done = flint(*line, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [program] = json.loads(flint("inspect", out, "--json", "--top", 1000).stdout)["programs"]
    kernels = [item["op"] for item in program["ops"] if item["op"].startswith("inductor.")]
    # gelu with the product's bias, forward and backward, at least; the optimizer is not compiled.
    assert len(kernels) >= 2
    assert load(out).level == "optimized"


@pytest.mark.thorough
@pytest.mark.parametrize(("step", "rows"), [("optimizer", 3), ("3", 4), ("optimizer:1", 2)])
def test_the_step_that_is_named_or_numbered_is_captured(tmp_path, step, rows):
    # Step n begins after the n-th optimizer step, so its batch has n + 1 rows.  The layer's product
    # and that for its weights' gradient: 2 FLOPs x rows x 4 x 4 each.
    (tmp_path / "train.py").write_text(TRAIN + "train(6)")
    [found] = captured(tmp_path, 1, str(tmp_path / "train.py"), options=("--step", step))
    assert found == {"collectives": {}, "flops": 2 * 2 * rows * 4 * 4}


@pytest.mark.thorough
def test_a_round_of_a_loop_is_captured_by_its_number(tmp_path):
    (tmp_path / "train.py").write_text(FUNCTIONS)
    [found] = captured(tmp_path, 1, str(tmp_path / "train.py"), options=("--step", "loop:3"))
    assert found == {"collectives": {}, "flops": 2 * 3 * 4 * 4}


@pytest.mark.thorough
def test_a_loop_of_inference_is_captured_call_by_call(tmp_path):
    (tmp_path / "infer.py").write_text(INFER)
    [found] = captured(tmp_path, 1, str(tmp_path / "infer.py"))
    assert found == {"collectives": {}, "flops": 2 * 8 * 4 * 4}


_SEARCHED = (
    ("torch.nn.Linear(4, 4)", "Half(4, 4)"),
    ("[rank])", "[rank], find_unused_parameters=True)"),
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "sizes"),
    # DDP reduces the gradients of 4 x 4 weights and 4 biases, 4 bytes each, in one bucket, and
    # where it looks for unused ones a map of 4 bytes for each of the two.
    [
        (SPAWN, [80]),
        (HALF + functools.reduce(lambda t, p: t.replace(*p), _SEARCHED, SPAWN), [80, 8]),
    ],
)
def test_a_program_that_spawns_its_ranks_is_captured_on_all_of_them(tmp_path, text, sizes):
    (tmp_path / "train.py").write_text(text)
    found = captured(tmp_path, 4, str(tmp_path / "train.py"))
    collectives = {"over 0, 1, 2, 3": [["all_reduce", size] for size in sizes]}
    assert found == [{"collectives": collectives, "flops": 2 * 2 * 8 * 4 * 4}] * 4
