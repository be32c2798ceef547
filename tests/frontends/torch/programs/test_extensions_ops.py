"""Ops of extensions: a kernel for GPUs alone ends a program with a line that says so."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
import torch

from flint.errors import FlintError
from flint.frontends.torch.failures import _TORCHS
from tests.frontends.torch.in_child import record_in_child
from tests.support.command_line import flint_with_torch as flint

#: Its kernel is a function of C++ that refuses the tensors that it is given.
TRAINS = """
import sys, torch
library = torch.library.Library("own_rows", "DEF")
library.define("lookup(Tensor weights, Tensor rows) -> Tensor")
refuses = torch._C._functorch._assert_wrapped_functional
if sys.argv[1]:
    library.impl("lookup", refuses, sys.argv[1])
layer = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
device = "cpu" if sys.argv[1] == "CPU" else "cuda"
for _ in range(3):
    rows = torch.ones(2, dtype=torch.long, device=device)
    torch.ops.own_rows.lookup(torch.ones(8, 4, device=device), rows)
    layer(torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""
OWN = "train.py:13: own_rows.lookup is an op of an extension, whose own kernel has no stand-in"


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("CompositeImplicitAutograd", f"{OWN} in a capture: RuntimeError: at::functionalization"),
        ("Meta", f"{OWN} in a capture: RuntimeError: at::functionalization"),
        ("", f"{OWN} in a capture: what it gives is not known without it"),
        ("CPU", "train.py:13: the program failed: RuntimeError: at::functionalization"),
    ],
    ids=("composite", "meta", "none", "host"),
)
def test_a_program_ends_with_the_op_and_its_line(key, line, tmp_path):
    """Of an op on the host, which runs as it does without Flint, the error stays as it is."""
    (tmp_path / "train.py").write_text(TRAINS)
    done = flint("run", "--world", "2", "-o", "out", "--", "python", "train.py", key, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith(f"flint: {line}")
    assert ("start the program without it" in done.stderr) == line.startswith(OWN)
    assert done.stderr.count("\n") == 1


def test_a_step_ends_with_them_too():
    def setup(mesh):
        return (torch.ones(4, device=mesh.device_type),)

    def step(x):
        library = torch.library.Library("own_steps", "DEF")
        library.define("lookup(Tensor weights) -> Tensor")
        return torch.ops.own_steps.lookup(x)

    found = r".*test_extensions_ops.py:\d+: own_steps.lookup is an op of an extension"
    with pytest.raises(FlintError) as error:
        record_in_child(step, setup, (1,), ("x",))
    assert re.match(found, str(error.value))


NAMESPACES = """
import torch, torch.distributed.tensor, torch.distributed.fsdp, torch.utils.checkpoint
from torch._inductor import compile_fx
for name in torch._C._dispatch_get_all_op_names():
    print(name.partition("::")[0])
"""


@pytest.mark.thorough
def test_all_of_pytorchs_own_namespaces_are_known():
    """Those of all ops that a process has which imports nothing else."""
    done = subprocess.run([sys.executable, "-c", NAMESPACES], capture_output=True, check=True)
    assert set(done.stdout.decode().split()) <= _TORCHS
