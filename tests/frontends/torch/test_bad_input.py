"""``flint capture`` of PyTorch steps that cannot be captured: one line and a status."""

from __future__ import annotations

import pytest

from flint.frontends.torch import versions
from tests.support.command_line import flint_here
from tests.support.shared import quick_rows

pytest.importorskip("torch")

FILE = """\
import os
import torch
from torch import nn


def build(mesh):
    with torch.device("meta"):
        model = nn.Linear(64, 64)
    model.to_empty(device=mesh.device_type)
    return model, torch.randn(8, 64, device=mesh.device_type)


def reads_an_integer(model, x):
    count = int((x > 0).sum().item())
    return torch.relu(x[:count])


def reads_a_mask(model, x):
    return x[x > 0].sum()


def does_not_fit(model, x):
    return model(torch.relu(x)[:, :3])


def to_numpy(model, x):
    return (x > 0).sum().cpu().numpy()


def fails(model, x):
    raise KeyError(torch.relu)


def dies(model, x):
    torch.relu(x)
    os.abort()


def good(model, x):
    return torch.relu(model(x))


def too_large_a_mesh(mesh):
    torch.distributed.device_mesh.init_device_mesh("cuda", (4, 4))


def not_divided(mesh):
    from torch.distributed.pipelining import PipelineStage

    return model  # noqa: F821


def becomes_sparse(model, x):
    return x.to_sparse()


def becomes_nested(model, x):
    return torch.nested.nested_tensor([x, x[:2]], device="cuda")
"""
COMMON = ("--mesh", "4", "--axes", "dp", "--setup", "build")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch_bad")
    (path / "train.py").write_text(FILE)
    return path


#: What is wrong, and what is said of it.
BAD = [
    (("train.py:reads_an_integer", *COMMON), "train.py:14"),
    (("train.py:reads_a_mask", *COMMON),
     "the step's first run failed at train.py:19: DynamicOutputShapeException: "
     "aten.nonzero.default: the result's shape depends on values"),
    (("train.py:does_not_fit", *COMMON), "failed at train.py:23: RuntimeError"),
    (("train.py:to_numpy", *COMMON), "an integer tensor becomes a numpy array at train.py:27"),
    (("train.py:fails", *COMMON), "failed at train.py:31: KeyError"),
    (("train.py:dies", *COMMON), "died of SIGABRT"),
    (("train.py:good", *COMMON[:4], "--setup", "too_large_a_mesh"),
     "setup failed at train.py:44: RuntimeError: Mesh should not be bigger than default world "
     "size 4, but found 16 ranks"),
    (("train.py:good", *COMMON[:4], "--setup", "not_divided"),
     "setup failed at train.py:50: NameError"),
    (("train.py:becomes_sparse", *COMMON), "to_sparse at train.py:54 makes a sparse tensor on"),
    (("train.py:becomes_nested", *COMMON), "nested_tensor at train.py:58 makes a nested tensor"),
    (("train.py:good", *COMMON, "--memory-limit", "0.01"), "raise the memory limit"),
    (("train.py:good", *COMMON, "--time-limit", "0.001"), "raise the time limit"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), quick_rows(BAD, BAD[0], BAD[5]))
def test_bad_input_is_one_line(arguments, said, folder, tmp_path):
    run = flint_here("capture", *arguments, "-o", tmp_path / "out", cwd=folder)
    assert run.returncode == 1, run.stderr
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith("flint: ")
    assert said in lines[0]
    assert list(tmp_path.iterdir()) == []


LEVELS = [
    (("--level", "logical"), "choose from: partitioned, optimized"),
    (("--level", "optimized"), "needs a target (--target)"),
    (("--level", "optimized", "--target", "tpu-v5p"), "PyTorch compiles only for GPUs"),
    (("--level", "optimized", "--target", "h100", "--xla-option", "a=b"), "not for PyTorch"),
]


@pytest.mark.parametrize(("level", "said"), quick_rows(LEVELS, LEVELS[0], LEVELS[2]))
def test_a_level_or_a_target_that_pytorch_has_not_is_a_usage_error(level, said, folder, tmp_path):
    run = flint_here(
        "capture", "train.py:good", *COMMON, *level, "-o", tmp_path / "out", cwd=folder
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_another_version_of_torch_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "KNOWN_VERSIONS", ">=9.9,<10")
    run = flint_here("capture", "train.py:good", *COMMON, "-o", tmp_path / "out", cwd=folder)
    assert run.returncode == 1
    assert "torch 2." in run.stderr
    assert ">=9.9,<10" in run.stderr
