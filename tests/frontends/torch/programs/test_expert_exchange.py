"""Programs that exchange experts' tokens with deep_ep, where it is not installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from flint import load
from tests.support.children import HUNG
from tests.support.command_line import flint_with_torch as flint

#: 64 tokens of 32 elements on each of 4 ranks, of which each goes to 2 of 8 experts: those of one
#: rank, 2i and 2i + 1 modulo 8.
PROGRAM = """
import os, torch, torch.distributed as dist
from deep_ep import Buffer
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
buffer = Buffer(dist.group.WORLD, 1 << 20)
layer = torch.nn.Linear(32, 32, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, choices, weights):
        counts, rdma, experts, goes, event = buffer.get_dispatch_layout(choices, 8)
        rows, local, shares, each, handle, event = buffer.dispatch(
            x, topk_idx=choices, topk_weights=weights, num_tokens_per_rank=counts,
            is_token_in_rank=goes, num_tokens_per_expert=experts)
        event.current_stream_wait()
        ctx.handle = handle
        return rows, local, shares, torch.tensor(each)
    @staticmethod
    def backward(ctx, grad, _, shares, __):
        x, weights, _ = buffer.combine(grad.contiguous(), ctx.handle, topk_weights=shares)
        return x, None, weights

for _ in range(3):
    x = layer(torch.ones(64, 32, device="cuda", dtype=torch.bfloat16))
    choices = (torch.arange(128, device="cuda") % 8).view(64, 2)
    weights = torch.rand(64, 2, device="cuda", requires_grad=True)
    rows, local, shares, each = Dispatch.apply(x, choices, weights)
    assert each.tolist() == [64, 64], each
    chosen = local[local >= 0]
    assert len(chosen) == 128
    (rows * shares.sum(1, keepdim=True).to(rows.dtype)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deep_ep") is not None, reason="deep_ep is installed"
)


@pytest.mark.thorough
def test_a_token_goes_once_to_each_rank_and_its_gradient_comes_back(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    command = ("--world", 4, "-o", "out", "--", "torchrun", "--nproc-per-node", 4, "train.py")
    done = flint("run", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "deep_ep is not installed" in done.stderr
    (program,) = load(tmp_path / "out").programs
    sent = [n.communication for n in program.graph if n.op == "all_to_all"]
    found = [(item.dtypes, item.operand_bytes, item.result_bytes) for item in sent]
    rows, weights, choices = 64 * 32 * 2, 64 * 2 * 4, 64 * 2 * 8
    counts = 4 * (1 + 2) * 8  # for each rank: tokens, and tokens of its experts
    assert sorted(found) == sorted(
        [(("bf16",), (rows,), (rows,))] * 2
        + [(("f32",), (weights,), (weights,))] * 2
        + [(("i64",), (choices,), (choices,)), (("i64",), (counts,), (counts,))]
    )


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    run = subprocess.run(
        [sys.executable, "-m", "tests.frontends.torch.programs.expert_processes", str(folder)],
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "result.json").read_text())


@pytest.mark.thorough
def test_on_real_ranks_experts_sums_are_those_of_the_formula(processes):
    """A token times the sum of its experts' factors, weighted; weights come back as they were."""
    for found in processes:
        assert found["made"] < 1e-5
        assert found["weights"] < 1e-6


def test_on_real_ranks_rows_are_counted_and_sent_once(processes):
    for found in processes:
        assert found["counted"] and found["once"] and found["same"]
