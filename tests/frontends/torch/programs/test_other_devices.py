"""Programs for TPUs: one that imports torch for its data is JAX's, one that trains with it is
refused.
"""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.support.command_line import failed
from tests.support.command_line import flint_with_torch as flint

JAX = """
import importlib.util
assert importlib.util.find_spec("torch") and importlib.util.find_spec("jax")
import torch
import jax, jax.numpy as jnp
rows = torch.utils.data.TensorDataset(torch.randn(64, 8))

@jax.jit
def step(w, x):
    return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w = jnp.ones((8, 4))
for (x,) in torch.utils.data.DataLoader(rows, batch_size=8):
    w = step(w, x.numpy())
"""
TORCH = """
import torch
x = torch.ones(4, 4, requires_grad=True)
optimizer = torch.optim.SGD([x])
while True:
    x.sum().backward()
    optimizer.step()
"""


def run(folder, text):
    (folder / "train.py").write_text(text)
    options = ("--world", 1, "--device", "tpu-v5p", "-o", folder / "out")
    return flint("run", *options, "--", "train.py", cwd=folder)


@pytest.mark.thorough
def test_a_jax_program_may_import_torch(tmp_path):
    done = run(tmp_path, JAX)
    assert done.returncode == 0, done.stderr
    workload = load(tmp_path / "out")
    assert workload.input["framework"] == "jax"
    assert sum(node.flops for node in workload.programs[0].graph) >= 2 * (2 * 8 * 8 * 4)


def test_a_pytorch_program_is_refused(tmp_path):
    assert "PyTorch programs see" in failed(run(tmp_path, TORCH), 2)


@pytest.mark.thorough
def test_one_that_only_imports_torch_is_refused(tmp_path):
    assert "PyTorch programs see" in failed(run(tmp_path, "import torch\ntorch.ones(3)"), 2)
