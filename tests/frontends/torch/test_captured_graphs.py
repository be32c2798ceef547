"""A step function that replays CUDA graphs: their ops are those of the step."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import flint  # noqa: E402
from flint.simulation.launches import OP  # noqa: E402


def build(mesh):
    """A graph of the gradients of two layers and their all-reduces, after a warm-up."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)).cuda()
    x = torch.ones(2, 4, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x).pow(2).mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients(model, x)
    return model, x, graph


def gradients(model, x):
    model(x).pow(2).mean().backward()
    for weight in model.parameters():
        torch.distributed.all_reduce(weight.grad)


def replayed(model, x, graph):
    graph.replay()


def eager(model, x, graph):
    model.zero_grad()
    gradients(model, x)


def test_a_replay_in_a_captured_function_is_the_ops_of_its_graph():
    """The same as the function without a graph, in their order."""
    found = []
    for step in (replayed, eager):
        workload = flint.capture(mesh=(2,), axes=("dp",), setup=build)(step).capture()
        [program] = workload.programs
        found.append([(node.op, node.source, node.work) for node in program.graph])
    assert found[0] == found[1]
    assert sum("all_reduce" in op for op, _, _ in found[0]) == 4


def part_graphed(model, x, graph):
    graph.replay()
    for weight in model.parameters():
        weight.grad.mul_(0.5)


def test_what_a_graph_launches_does_not_wait_for_the_host(tmp_path):
    """A replay is one launch.  Without the graph each op is launched: two products, a power and a
    mean; 1 for the loss's gradient, 1 for the mean's, 3 for the power's, 3 products and 2 sums for
    the layers'; 4 all-reduces.  Behind the graph only the scaling of the four gradients is."""
    seconds = {}
    for step in (replayed, eager, part_graphed):
        workload = flint.capture(mesh=(2,), axes=("dp",), setup=build)(step).capture()
        workload.save(tmp_path / step.__name__)
        (program,) = flint.load(tmp_path / step.__name__).simulate("dgx-h100").programs
        seconds[step.__name__] = program.launch_seconds
    assert seconds["replayed"] == 0
    assert seconds["eager"] == pytest.approx(18 * OP)
    assert seconds["part_graphed"] == pytest.approx(4 * OP)
