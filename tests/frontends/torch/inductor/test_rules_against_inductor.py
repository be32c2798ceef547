"""Granularity ``inductor`` against what PyTorch's compiler makes of the same training step."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.cost.classes import KERNELS, kernel_classes  # noqa: E402
from flint.passes import apply  # noqa: E402
from tests.frontends.torch.inductor.test_compiled_steps import block  # noqa: E402


def given(mesh):
    model, x = block(mesh)
    return model, x, torch.empty_like(x)


def train(model, x, grad):
    for parameter in model.parameters():
        parameter.grad = None
    model(x).backward(grad)


def moved(graph):
    """Bytes of kernels of a MiB or more: of products, and of all others."""
    classes, found = kernel_classes(graph), {True: 0, False: 0}
    for node, size in enumerate((graph.bytes_read + graph.bytes_written).tolist()):
        if size >= 2**20:
            found[KERNELS[classes[node]] == "matmul"] += size
    return found[True], found[False]


def pointwise(graph):
    """Name and MiB of kernels of a MiB or more."""
    sizes = ((node.op, (node.work.read + node.work.written) // 2**20) for node in graph)
    return [(name, size) for name, size in sizes if size]


def test_the_rules_move_what_inductors_kernels_move():
    """At granularity ``kernel`` it is a fifth more.

    The gated activation and its gradient are two kernels, although nothing here makes the second
    wait for the first: PyTorch compiles forward and backward apart.  No kernel transposes what
    attention makes.
    """
    step = flint.capture(train, mesh=(1,), axes=("dp",), setup=given, framework="torch")
    opened = step.capture(options={"fuse": True}).programs[0].graph
    compiled = step.capture(level="optimized", target="h100").programs[0].graph
    real, ours = moved(apply(compiled, "kernel")), moved(apply(opened, "inductor"))
    assert sum(ours) == pytest.approx(sum(real), rel=0.05)
    assert sum(moved(apply(opened, "kernel"))) > 1.15 * sum(real)
    theirs = {size for name, size in pointwise(compiled) if "silu" in name}
    rules = apply(opened, "inductor")
    assert theirs <= {size for _, size in pointwise(rules)}
    assert not any(name == "transpose" for name, _ in pointwise(rules))


@pytest.mark.parametrize("which", ["queries", "keys"])
def test_attention_makes_its_result_like_its_queries(which):
    """``at::empty_like(q)``: with transposed keys alone, turning the result back is a kernel."""

    def inputs(mesh):
        return tuple(
            torch.empty(
                (2, 512, 8, 64) if turned else (2, 8, 512, 64), dtype=torch.bfloat16, device="cuda"
            )
            for turned in (which == "queries", which == "keys")
        )

    def attend(q, k):
        q, k = (q.transpose(1, 2), k) if which == "queries" else (q, k.transpose(1, 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, k)
        return y.transpose(1, 2).reshape(2, 512, 512)

    step = flint.capture(attend, mesh=(1,), axes=("dp",), setup=inputs, framework="torch")
    graph = apply(step.capture(options={"fuse": True}).programs[0].graph, "inductor")
    behind = [node.op for node in graph][-1]
    assert (behind == "transpose") == (which == "keys"), [node.op for node in graph]
