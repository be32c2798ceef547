"""Which step of a program is captured, from the ends that it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from flint.frontends.torch.cluster.device import Stream
from flint.frontends.torch.programs.rounds import OptimizerRounds
from flint.frontends.torch.programs.steps import Kind, Steps
from flint.launching.program import StepChoice


class Optimizer(SimpleNamespace):
    __hash__ = object.__hash__


def recorded(events, made="", same=(), none=(), patient=True, code="", **choice):
    """What happened between the last start and the end: (events, kind); None: no end.

    Optimizers of ``made`` are known from the start; those of ``same`` have the same parameters, and
    those of ``none`` have none.  Those of ``code`` have a step in the code that runs.
    """
    happened, found = [], []

    def start(_):
        happened.clear()

    def end(kind):
        if not found or found[0][1] is Kind.CALL:
            found[:] = [("".join(happened), kind)]  # a call may be an evaluation

    steps = Steps(StepChoice(**choice), start, end)
    rounds = OptimizerRounds(steps, patient=patient)
    optimizers = {
        name: Optimizer(param_groups=[{"params": ["shared" if name in same else name]}])
        for name in "ABC"
    }
    for name in none:
        optimizers[name].param_groups = [{"params": []}]
    for name in made:
        rounds.made(optimizers[name])
    rounds.expect([optimizers[name] for name in code])
    for event in events:
        happened.append(event)
        if event in optimizers:
            rounds.stepped(optimizers[event])
        elif event == "w":  # on a stream of its own
            with Stream():
                rounds.stepped(optimizers["A"])
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
        # StyleGAN's: both step twice, for penalties, in the first of each few rounds; or in all.
        ("A1A2B3B4A5B6A7B8A9B", {}, "6A7B"),
        ("A1A2B3B4A5A6B7B8A9A0B1B", {}, "7B8A9A0B"),
        ("ABC1ABC2ABC", {"number": 1}, "1ABC"),  # a container after those in it
        ("ABC1ABC2ABC3ABC", {}, "2ABC"),
        ("eeeA1A2A3A", {}, "2A"),  # an evaluation before the training
        ("w1w2w3A4A5A6A", {}, "5A"),  # a warm-up before a CUDA graph
        ("w" * 18 + "1w2w", {}, "1w"),  # too many for one
        ("1w2w3w", {"name": "optimizer", "patient": False}, "3w"),
        ("A1A2|A3A4|A5A6|", {}, "A5A6|"),  # marks go first
        ("A1|A2|A3|", {"name": "optimizer", "number": 1}, "1|A"),
    ],
)
def test_the_step_lies_between_two_ends_of_one_kind(events, choice, step):
    assert recorded(events, **choice)[0] == step


@pytest.mark.parametrize(
    ("events", "options", "step"),
    [
        ("A1A2A3A4A5B6A7A8A9B0A1A2A3B", {"made": "AB"}, "0A1A2A3B"),  # one that comes late
        ("A1A2A3A4A5B6A7A8A9B0A1A2A3B", {}, "2A"),  # which nobody has seen made
        ("AB1AB2AB3AB4", {"made": "ABC", "same": "AC"}, "2AB"),  # a container that never steps
        ("A1A2A3A4", {"made": "AB", "patient": False}, "2A"),
        ("AB1AB2AB3", {"made": "AB", "none": "A"}, "2AB"),  # a rank's that has no parameters
        ("A1A2A3A4", {"made": "AB", "none": "B"}, "2A"),
        ("A1" * 140, {"made": "AB"}, "1A"),  # one that never comes
        ("A1A2B3A4A5B6A7A8B", {"made": "AB", "same": "AB", "code": "AB"}, "6A7A8B"),  # DiLoCo
        ("A1A2A3", {"made": "AB", "same": "AB", "code": "A"}, "2A"),  # one that was replaced
    ],
)
def test_a_round_waits_for_an_optimizer_of_other_parameters(events, options, step):
    assert recorded(events, **options)[0] == step


@pytest.mark.parametrize(
    ("events", "options", "step"),
    [
        ("A1B2B3B4B5B", {"patient": False}, "3B"),  # as if the first had not been there
        ("A1B2C3B4C5B6C7B", {"patient": False}, "5B6C"),
        ("A1" + "B2" * 140, {}, "2B"),
        ("A1B2B3B4A5B6B7B8A9B0B1B", {}, "8A9B0B1B"),  # it comes again: a round of all
    ],
)
def test_an_optimizer_that_steps_only_once_is_in_no_round(events, options, step):
    """A warm-up's, with the same parameters; a program of few steps runs a second time."""
    assert recorded(events, same="AB", **options)[0] == step


def test_a_program_that_ends_while_only_its_first_optimizer_is_missing_is_no_single_round():
    rounds = OptimizerRounds(Steps(StepChoice(), lambda _: None, lambda _: None))
    first, other = (Optimizer(param_groups=[{"params": ["weight"]}]) for _ in range(2))
    for optimizer in (first, other, other):
        rounds.stepped(optimizer)
    assert rounds.waits and rounds.name == "optimizer"


def test_groups_that_one_optimizer_steps_in_turn_are_one_round():
    """As DeepSpeed's ZeRO steps: each group alone, of the same optimizer, in every iteration."""
    ends = []
    rounds = OptimizerRounds(Steps(StepChoice(number=1), lambda _: None, ends.append))
    groups = [{"params": [name, f"{name} of a layer"]} for name in ("bias", "norm", "weight")]
    optimizer = Optimizer(param_groups=groups)
    rounds.made(optimizer)
    for at in range(9):
        optimizer.param_groups = groups[at % 3 : at % 3 + 1]
        rounds.stepped(optimizer)
        optimizer.param_groups = groups
        assert len(ends) == (at >= 5)  # the second round ends the first step; others do not count


def test_an_optimizer_with_more_parameters_than_before_is_the_same():
    ends = []
    rounds = OptimizerRounds(Steps(StepChoice(), lambda _: None, ends.append))
    optimizer = Optimizer(param_groups=[{"params": ["head"]}])
    for _ in range(3):
        rounds.stepped(optimizer)
        optimizer.param_groups = [*optimizer.param_groups, {"params": [len(ends)]}]
    assert len(ends) == 1


@pytest.mark.parametrize(("others", "said"), [("B", 0), ("C", 1), ("BC", 1)])
def test_an_outer_optimizer_that_is_not_in_the_step_is_named(others, said, monkeypatch):
    """C has A's parameters, as DiLoCo's outer optimizer does; B has others, and is waited for."""
    notices = []
    monkeypatch.setattr(
        "flint.frontends.torch.programs.rounds.capture",
        lambda: SimpleNamespace(notice=notices.append),
    )
    rounds = OptimizerRounds(Steps(StepChoice(), lambda _: None, lambda _: None))
    groups = {"A": "inner", "B": "other", "C": "inner"}
    made = {name: Optimizer(param_groups=[{"params": [own]}]) for name, own in groups.items()}
    for name in ("A", *others):
        rounds.made(made[name])
    for name in "AA":
        rounds.stepped(made[name])
    rounds.note()
    assert len(notices) == said
    rounds.stepped(made["C"])  # now it belongs to the round
    rounds.note()
    assert len(notices) == said


def test_a_program_that_ends_before_a_late_optimizer_steps_has_no_step_yet():
    assert recorded("A1A2A3A4", made="AB") is None


def test_calls_without_gradients_are_a_step_of_their_own_kind():
    assert recorded("e1e2e3e") == ("2e", Kind.CALL)


def test_a_program_that_ends_early_has_no_step():
    assert recorded("A1A") is None


def test_optimizers_that_a_backward_passs_hooks_step_are_no_warm_up(monkeypatch):
    """FSDP's streams run such hooks, of each parameter's own optimizer."""
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: 0)
    assert recorded("w1w2w3w")[0] == "2w"
