"""Numbers that a user gives for lines that read tensors on the device (``--value``)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from flint.errors import UsageError
from flint.launching.stated_values import Numbers, numbers_of
from flint.workload.loading import load
from tests.support.command_line import failed, flint_with_torch

#: An assigner's step: how many candidates each object has follows from the scores.
PROGRAM = """
import torch
model = torch.nn.Linear(64, 32, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    scores = model(torch.ones(16, 64, device="cuda"))
    count = scores.sum(1).clamp(1, 10).int().max().item()
    best, _ = scores.topk(count, dim=1)
    optimizer.zero_grad()
    (best @ best.t()).sum().backward()
    optimizer.step()
"""


def run(folder, *options):
    (folder / "train.py").write_text(PROGRAM)
    return flint_with_torch(
        "run", "--world", 1, *options, "-o", "out", "--", "python", "train.py", cwd=folder
    )


def test_sizes_follow_from_the_number_of_a_line(tmp_path):
    """16 x 16 x 5: the product of the five best scores of each of 16 rows; 2 FLOPs each."""
    done = run(tmp_path, "--value", "train.py:7=5")
    assert done.returncode == 0, done.stderr
    assert "a value is read at train.py:7: 5, as --value says" in done.stderr
    [program] = load(tmp_path / "out").programs
    products = [node.work.flops for node in program.graph if node.op == "aten.mm.default"]
    assert 2 * 16 * 16 * 5 in products


def test_a_line_that_reads_nothing_is_reported(tmp_path):
    stated = "train.py:7=5", "--value", "train.py:9=3", "--mask-share", "train.py:7=0.5"
    done = run(tmp_path, "--value", *stated)
    assert "--value train.py:9=3: this line reads no value that is not known" in done.stderr
    assert "--mask-share train.py:7=0.5: this line reads no value that is not" in done.stderr
    assert "--value train.py:7=5:" not in done.stderr


def test_without_it_the_error_names_the_line_and_the_option(tmp_path):
    said = failed(run(tmp_path), 1)
    assert "read at train.py:7" in said and "state it (--value of flint run)" in said


def test_a_number_that_the_tensor_cannot_hold_is_refused(tmp_path):
    said = failed(run(tmp_path, "--value", "train.py:7=5.5"), 2)
    assert said == "flint: --value: 5.5 at train.py:7 is read from a tensor of torch.int32"


@pytest.mark.parametrize("text", ["5", "train.py:7", "train.py:7=", "train.py:7=many", "a:1=inf"])
def test_what_is_no_line_with_a_number_is_refused(text):
    with pytest.raises(UsageError, match="expected FILE:LINE=NUMBER"):
        numbers_of([text])


def test_a_line_has_one_number():
    with pytest.raises(UsageError, match="given twice"):
        numbers_of(["a.py:1=2", "a.py:1=3"])


def test_a_line_is_named_by_the_end_of_its_path():
    numbers = Numbers({"losses.py:42": 10.0})
    assert numbers.at("yolox/losses.py:42") == numbers.at("losses.py:42") == 10
    assert numbers.at("more_losses.py:42") is numbers.at("losses.py:4") is None
