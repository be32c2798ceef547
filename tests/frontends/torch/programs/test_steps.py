"""Which step of a program is captured, from the ends that it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
from flint.frontends.torch.programs.steps import Kind, OptimizerRounds, Steps
from flint.launching.program import StepChoice


def recorded(events, **choice):
    """What happened between the last start and the end: (events, kind); None: no end."""
    happened, found = [], []

    def start(_):
        happened.clear()

    def end(kind):
        if not found or found[0][1] is Kind.CALL:
            found[:] = [("".join(happened), kind)]  # a call may be an evaluation

    steps = Steps(StepChoice(**choice), start, end)
    rounds = OptimizerRounds(steps)
    optimizers = {name: SimpleNamespace() for name in "ABC"}
    for event in events:
        happened.append(event)
        if event in optimizers:
            rounds.stepped(optimizers[event])
        elif event == "|":
            steps.ended("step", Kind.MARK)
        elif event == "e":
            steps.ended("GPT", Kind.CALL)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("events", "choice", "step"),
    [
        ("A1A2A3A", {}, "2A"),  # the second whole one
        ("A1A2A3A", {"number": 1}, "1A"),
        ("A1A2A3A", {"number": 3}, "3A"),
        ("A1B2A3B4A5B6A7B", {}, "4A5B"),  # two in turn: each round is one step
        ("A1A2B3A4A5B6A7A8B", {}, "6A7A8B"),  # one that comes only after several of another
        ("A1B2B3A4B5B6A7B8B", {}, "6A7B8B"),
        ("ABC1ABC2ABC", {"number": 1}, "1ABC"),  # a container after those in it
        ("ABC1ABC2ABC3ABC", {}, "2ABC"),
        ("eeeA1A2A3A", {}, "2A"),  # an evaluation before the training
        ("A1A2|A3A4|A5A6|", {}, "A5A6|"),  # marks go first
        ("A1|A2|A3|", {"name": "optimizer", "number": 1}, "1|A"),
    ],
)
def test_the_step_lies_between_two_ends_of_one_kind(events, choice, step):
    assert recorded(events, **choice)[0] == step


def test_calls_without_gradients_are_a_step_of_their_own_kind():
    assert recorded("e1e2e3e") == ("2e", Kind.CALL)


def test_a_program_that_ends_early_has_no_step():
    assert recorded("A1A") is None
