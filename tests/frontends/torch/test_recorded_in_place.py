"""Gradients that PyTorch puts into new zeros in place, which it does otherwise where a mode looks.

What it does where none looks, its own ExecutionTraceObserver sees.
"""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ExecutionTraceObserver  # noqa: E402

from tests.frontends.torch.in_child import record_in_child  # noqa: E402
from tests.frontends.torch.real.observed import observed_ops  # noqa: E402

TAKEN = {
    "index": lambda x, i: x[i],
    "index of two dims": lambda x, i: x[i, i],
    "gather": lambda x, i: x.gather(0, i[:, None].expand(5, 16)),
    "index_select": lambda x, i: x.index_select(0, i),
    "topk": lambda x, i: x.topk(3, 1)[0],
    "max": lambda x, i: x.max(0)[0],
    "sort": lambda x, i: x.sort(1)[0],
    "take": lambda x, i: x.take(i),
}
NAMES = ("index_put", "_index_put_impl", "scatter", "scatter_add", "index_add", "put")
WATCHED = {f"aten::{name}{end}" for name in NAMES for end in ("", "_")}


def given(mesh):
    x = torch.ones(100, 16, device=mesh.device_type, requires_grad=True)
    return x, torch.tensor([3, 1, 1, 0, 7], device=mesh.device_type)


@pytest.mark.parametrize("name", TAKEN)
def test_a_gradient_is_put_into_zeros_as_pytorch_observes_it(name, tmp_path):
    def step(x, i):
        x.grad = None
        TAKEN[name](x, i).sum().backward()

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    ours = [op.name.rsplit(".", 1)[0].replace(".", "::") for op in ops if op.phase == "backward"]
    x, i = torch.ones(100, 16, requires_grad=True), torch.tensor([3, 1, 1, 0, 7])
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    observer.start()
    step(x, i)
    observer.stop()
    observer.unregister_callback()
    nodes = json.loads((tmp_path / "trace.json").read_text())["nodes"]
    observed = observed_ops(nodes, WATCHED)
    assert [op for op in ours if op in WATCHED] == observed
    assert len(observed) == 1 and observed[0].endswith("_")


class Own(torch.autograd.Function):
    """A gradient whose writer wants a sum beside the zeros."""

    @staticmethod
    def forward(ctx, x, i):
        ctx.save_for_backward(i)
        return x[i]

    @staticmethod
    def backward(ctx, gradient):
        (i,) = ctx.saved_tensors
        return gradient.new_zeros(100, 16).index_add(0, i, gradient), None


def test_a_users_gradient_is_what_the_user_wrote():
    def step(x, i):
        x.grad = None
        Own.apply(x, i).sum().backward()

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    assert [op.name for op in ops if "index_add" in op.name] == ["aten.index_add.default"]
