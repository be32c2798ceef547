"""Programs that capture CUDA graphs: their ops run when a graph is replayed, and not before."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from flint import load
from tests.programs.comparing import captured
from tests.support.command_line import flint_with_torch as flint

#: Layers 4 -> 8 -> 4 and a batch of 2 rows, after a warm-up of three steps as PyTorch asks for.
MODEL = """
import os, sys, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
x = torch.ones(2, 4, device="cuda")

def gradients():
    model(x).pow(2).mean().backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)

def warm_up():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
"""
#: Gradients by a graph, or without one.
GRADIENTS = """
if sys.argv[1] == "graph":
    warm_up()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients()
for _ in range(5):
    x.copy_(torch.randn(2, 4))
    if sys.argv[1] == "graph":
        graph.replay()
    else:
        optimizer.zero_grad()
        gradients()
    optimizer.step()
"""
#: Two graphs of one step each, the second of which has twice the rows.
WHOLE = """
warm_up()
graphs = []
for rows in (2, 4):
    optimizer.zero_grad()
    x = torch.ones(rows, 4, device="cuda")
    graphs.append(torch.cuda.CUDAGraph())
    with torch.cuda.graph(graphs[-1]):
        gradients()
        optimizer.step()
for _ in range(4):
    graphs[0].replay()
    graphs[1].replay()
"""
#: A part of a model as graphs, called twice for each step.
CALLABLE = """
part = torch.cuda.make_graphed_callables(model, (x,))
last = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD([*model.parameters(), *last.parameters()])
for _ in range(5):
    optimizer.zero_grad()
    for _ in range(2):
        last(part(torch.randn(2, 4, device="cuda"))).mean().backward()
    optimizer.step()
"""
#: FLOPs of a product of any of the two layers, per row; and bytes of the gradients.
PRODUCT, SIZES = 2 * 4 * 8, [128, 32, 128, 16]
#: Two forward, and backward two for the weights and one for the hidden layer's input.
PRODUCTS = 5


def _of_each(steps, rows):
    return [{"collectives": {"over 0, 1": [["all_reduce", size] for size in SIZES] * steps},
             "flops": PRODUCTS * PRODUCT * rows}] * 2  # fmt: skip


def test_a_replayed_graph_is_the_ops_that_it_captured_in_their_order(tmp_path):
    """The same as the loop without a graph, with the input that is written between replays."""
    (tmp_path / "train.py").write_text(MODEL + GRADIENTS)
    graphs = []
    for way in ("graph", "eager"):
        done = flint(
            "run", "--world", 2, "-o", tmp_path / way, "--", "torchrun", "train.py", way,
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert ("captured: a warm-up, not the step (3 times)" in done.stderr) is (way == "graph")
        [program] = load(tmp_path / way).programs
        graphs.append([(node.op, node.source, node.work) for node in program.graph])
    replayed, eager = graphs
    assert replayed == eager


@pytest.mark.thorough
def test_an_optimizer_in_a_graph_steps_at_each_replay(tmp_path):
    """The third replay, which is the first graph's: of two rows, not of four."""
    (tmp_path / "train.py").write_text(MODEL + WHOLE)
    assert captured(tmp_path, 2, "torchrun", "train.py") == _of_each(1, 2)


def test_graphed_callables_run_forward_and_backward_each_time(tmp_path):
    """Of the last layer: one product forward and two backward, of 4 x 4; the model's input needs
    no gradient."""
    (tmp_path / "train.py").write_text(MODEL + CALLABLE)
    flops = 2 * 2 * (PRODUCTS * PRODUCT + 3 * 2 * 4 * 4)
    of_each = {"collectives": {}, "flops": flops}
    assert captured(tmp_path, 2, "torchrun", "train.py") == [of_each] * 2
