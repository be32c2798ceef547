"""Trainings that a loop begins one after the other, as for several settings."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from flint.launching import named_code
from flint.launching.code_behind import calls_of, loop_around
from tests.support.command_line import flint_with_torch as flint

PROGRAM = """
import torch

def train(width):
    model = torch.nn.Linear(64, width, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        optimizer.step()

for width in (16, 32):
    train(width)
"""


def made():
    return calls_of(sys._getframe(1))


def in_each_round():
    for _ in range(1):
        before = made()
        for _ in range(2):
            found = loop_around(before, sys._getframe())
    return found


def stepped():
    before = made()
    for _ in range(2):
        found = loop_around(before, sys._getframe())
    return found


def in_front_of_epochs():
    before = made()
    for _ in range(2):
        for _ in range(2):
            found = loop_around(before, sys._getframe())
    return found


def in_a_loop_that_is_over():
    for _ in range(2):
        before = made()
    for _ in range(2):
        found = loop_around(before, sys._getframe())
    return found


@pytest.mark.parametrize(
    ("program", "lines_below"),
    [
        (in_each_round, 1),
        (in_front_of_epochs, None),
        (in_a_loop_that_is_over, None),
        (stepped, None),
    ],
)
def test_a_loop_is_around_what_was_made_in_it_and_what_steps_in_it(
    program, lines_below, monkeypatch
):
    monkeypatch.setattr(named_code, "is_own_file", lambda file: file == __file__)
    first = program.__code__.co_firstlineno
    found = program().rpartition(":")[2]
    assert found == (str(first + lines_below) if lines_below else "")


def test_a_loop_that_calls_a_training_is_named_by_its_line(tmp_path):

    (tmp_path / "train.py").write_text(PROGRAM)
    done = flint("run", "--world", 1, "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "each round of the loop at train.py:11 makes an optimizer" in done.stderr
