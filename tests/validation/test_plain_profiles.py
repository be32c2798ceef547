"""Honest pairs: models that Flint has not seen, profiled as any user does it, agree with captures.

PyTorch's are under ``torch.profiler.profile(record_shapes=True)`` and nothing else, JAX's under
``jax.profiler.trace``: no schedule, no marked steps, no option of ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.observed.reading import read_trace
from flint.post_execution.converting import convert_traces
from flint.validation.rewrites.gemm_forms import UNGROUPED
from flint.validation.validating import validate
from tests.post_execution.traces import Profile
from tests.support.children import run_script
from tests.support.shared import once, quick
from tests.validation import plain_jax
from tests.validation.totals import totals
from tests.validation.xla_runs import Runs, named

torch = pytest.importorskip("torch")

from tests.validation import plain_forms, plain_torch  # noqa: E402

STEPS = plain_torch.STEPS | plain_forms.STEPS
PLACES = {name: part.__name__ for part in (plain_torch, plain_forms) for name in part.STEPS}

JAX = ("cnn", "grouped_cnn", "fsdp_mixer", "tp_heads", "gru", "moe", "pipeline", "top_k")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Files of a step's name, by rank."""

    def run(name):
        def profile(folder):
            script = Path(__file__).parent / "plain_profiling.py"
            run_script(script, folder, f"{PLACES[name]}:{name}", imported="torch")

        return sorted(once(tmp_path_factory, f"plain-{name}", profile).glob("rank*.json"))

    return run


@pytest.mark.xdist_group("validation-plain-torch")
@pytest.mark.parametrize("name", quick(STEPS, "ddp_depthwise"))
def test_a_plain_profile_of_pytorch_agrees_with_the_capture(name, profiled):
    """The steps are found, three of them, and of the first the profile warms up alone."""
    files = profiled(name)
    assert read_trace(files[0]).steps == ("step#0", "step#1", "step#2")
    report = validate(STEPS[name].capture(), files)
    assert report.ok, (report.verdict, report.differences[:4], report.contradictions[:4])
    found = totals(report)
    assert found["matched"] == found["captured"] > 0
    assert found["by_name"] == 0
    assert not report.uncompared


@pytest.mark.xdist_group("validation")
@pytest.mark.parametrize("name", quick(JAX))
def test_a_plain_profile_of_jax_agrees_with_the_capture(name, host_runs):
    report = Runs(host_runs, plain_jax).compare(name)
    assert report.ok, (report.verdict, named(report))
    assert totals(report)["captured"] > 0
    # The weight's gradient of the convolution with a channel per group, on eight devices.
    assert report.explained.get(UNGROUPED, 0) == (8 if name == "grouped_cnn" else 0)


def test_the_last_step_is_converted_and_others_or_all_by_choice(tmp_path):
    """Three steps of three ops each that work: two products and an update."""
    profile = Profile(0, 1)
    for number in range(3):
        trained(profile, 100 * number)
    path = profile.write(tmp_path / "rank0.json")
    workload = convert_traces([path])
    assert len(workload.programs[0].graph) == 3
    [said] = [text for text in workload.warnings if "an optimizer step" in text]
    assert "step#2 of 3 is converted; --step 1 takes another, --step all the whole trace" in said
    assert workload.simulate().step_seconds == pytest.approx(48e-6)
    assert len(convert_traces([path], step="0").programs[0].graph) == 3
    assert len(convert_traces([path], step="step#1").programs[0].graph) == 3
    whole = convert_traces([path], step="all")
    assert len(whole.programs[0].graph) == 9
    assert whole.simulate().step_seconds == pytest.approx(246e-6)


def trained(profile, begin, optimizers=1, logged=False):
    """A step of 80 us: a product, its gradient on autograd's thread, optimizers, a loss."""
    profile.op("aten::mm", begin, 10)
    profile.op("autograd::engine::evaluate_function: MmBackward0", begin + 20, 10, tid=2)
    profile.op("aten::mm", begin + 21, 5, tid=2)
    for number in range(optimizers):
        profile.span("Optimizer.step#SGD.step", begin + 40 + 10 * number, 8)
        profile.op("aten::_foreach_add_", begin + 41 + 10 * number, 5)
    if logged:
        profile.op("aten::mean", begin + 70, 5)


@pytest.mark.parametrize("settings", [{}, {"optimizers": 2}, {"logged": True}], ids=str)
def test_steps_that_nothing_marks_are_distinguished_by_the_optimizers(tmp_path, settings):
    """Each has a product forward and one backward, an update per optimizer, and what it logs."""
    profile = Profile(0, 1)
    for number in range(3):
        trained(profile, 100 * number, **settings)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    names = [
        sorted(trace.facts[kind].name for kind in trace.op[trace.step == step]) for step in range(3)
    ]
    wanted = ["aten::mm"] * 2 + ["aten::_foreach_add_"] * settings.get("optimizers", 1)
    wanted += ["aten::mean"] * settings.get("logged", False)
    wanted += ["autograd::engine::evaluate_function: MmBackward0"]
    assert names == [sorted(wanted)] * 3


def test_ops_after_the_last_step_are_not_part_of_it(tmp_path):
    """Two steps, after which the model is tried on two other batches."""
    profile = Profile(0, 1)
    for number in range(2):
        trained(profile, 100 * number)
    profile.op("aten::mm", 300, 10)
    profile.op("aten::mm", 320, 10)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    assert trace.steps == ("step#0", "step#1")
    assert [int((trace.step == step).sum()) for step in (0, 1, -1)] == [4, 4, 2]


def test_a_batch_in_parts_begins_with_the_first_part_whatever_else_that_does(tmp_path):
    """Two backward passes for each update; the second step once begins with other ops."""
    profile = Profile(0, 1)
    for number in range(3):
        for part in range(2):
            begin = 200 * number + 60 * part
            profile.op("aten::rand", begin, 2)
            if (number, part) == (1, 0):
                profile.op("c10d::broadcast_", begin + 3, 2)
            for place in range(16):
                profile.op("aten::mm", begin + 6 + place, 1)
            profile.op("autograd::engine::evaluate_function: A", begin + 30, 10)
            profile.op("aten::mm", begin + 31, 5)
        profile.span("Optimizer.step#SGD.step", 200 * number + 130, 8)
        profile.op("aten::_foreach_add_", 200 * number + 131, 5)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    products = [fact.name == "aten::mm" for fact in trace.facts]
    assert [sum(products[op] for op in trace.op[trace.step == step]) for step in range(3)] == [
        34
    ] * 3


def kinds(profile, *names):
    """Updates, each after the gradient of an op of these names, of a forward pass and its own."""
    for number, name in enumerate(names):
        begin = 100 * number
        profile.op(f"aten::{name}", begin, 10)
        profile.op(f"autograd::engine::evaluate_function: {name}Backward0", begin + 20, 10, tid=2)
        profile.span("Optimizer.step#SGD.step", begin + 40, 8)
        profile.op("aten::_foreach_add_", begin + 41, 5)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("DGDG", [("D", "G"), ("D", "G")]),  # a GAN: two optimizers by turns
        ("DDDGDDDG", [("D", "D", "D", "G")] * 2),
        ("DDDDDG", []),  # one round of a critic and its generator
        ("DG", []),
        ("DGD", []),
        ("GDD", []),
    ],
)
def test_only_what_repeats_itself_is_distinguished(tmp_path, names, found):
    profile = Profile(0, 1)
    kinds(profile, *names)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    ops = [
        tuple(
            trace.facts[kind].name.removeprefix("aten::")
            for kind in trace.op[trace.step == number]
            if trace.facts[kind].name in ("aten::D", "aten::G")
        )
        for number in range(len(trace.steps))
    ]
    assert ops == (found or [tuple(names)])


#: Batches that ``unmarked_training.py`` draws.
DRAWN = {"gan": 9, "gan_once": 3, "hooks": 3, "lbfgs": 3, "outer": 9}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("train", "steps"), [("gan", 3), ("gan_once", 1), ("hooks", 1), ("lbfgs", 3), ("outer", 3)]
)
def test_steps_of_real_training_are_whole(train, steps, tmp_path):
    """Two models by turns; an optimizer for each parameter within the backward pass; a closure;
    local steps."""
    path = tmp_path / "rank0.json"
    run_script(Path(__file__).with_name("unmarked_training.py"), train, path)
    trace = read_trace(path)
    assert len(trace.steps) == steps
    drawn = [fact.name == "aten::randn" for fact in trace.facts]
    counts = [sum(drawn[op] for op in trace.op[trace.step == step]) for step in range(steps)]
    assert counts == [DRAWN[train] // steps] * steps


def test_a_profile_that_begins_within_a_step_has_the_others_whole(tmp_path):
    """The first update follows a part of the gradients; a forward pass is cut off at the end."""
    profile = Profile(0, 1)
    for number in range(3):
        begin = 100 * number
        if number:
            profile.op("aten::mm", begin, 10)
            profile.op("autograd::engine::evaluate_function: A", begin + 20, 5, tid=2)
        profile.op("autograd::engine::evaluate_function: B", begin + 30, 5, tid=2)
        profile.span("Optimizer.step#SGD.step", begin + 40, 8)
        profile.op("aten::_foreach_add_", begin + 41, 5)
    profile.op("aten::mm", 300, 10)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    assert trace.steps == ("step#0", "step#1", "step#2")
    assert [int((trace.step == step).sum()) for step in (0, 1, 2, -1)] == [2, 4, 4, 1]


def test_an_optimizer_that_steps_after_several_steps_of_another_ends_their_round(tmp_path):
    """Local steps, three before each outer one, which no backward pass precedes."""
    profile = Profile(0, 1)
    for number in range(6):
        trained(profile, 100 * number)
        if number % 3 == 2:
            profile.span("Optimizer.step#Outer.step", 100 * number + 60, 8)
            profile.op("aten::_foreach_add_", 100 * number + 61, 5)
    trace = read_trace(profile.write(tmp_path / "rank0.json"))
    assert [int((trace.step == step).sum()) for step in (0, 1, -1)] == [13, 13, 0]


def test_updates_within_the_backward_pass_end_no_step(tmp_path):
    """As by hooks that step an optimizer for each parameter as soon as it has its gradient."""
    profile = Profile(0, 1)
    profile.op("aten::mm", 0, 10)
    for number in range(4):
        begin = 20 + 20 * number
        profile.op("autograd::engine::evaluate_function: AccumulateGrad", begin, 15)
        profile.span("Optimizer.step#SGD.step", begin + 2, 8)
        profile.op("aten::add_", begin + 3, 5)
    assert read_trace(profile.write(tmp_path / "rank0.json")).steps == ("whole trace",)


def test_a_single_step_is_the_whole_trace(tmp_path):
    profile = Profile(0, 1)
    trained(profile, 0)
    assert read_trace(profile.write(tmp_path / "rank0.json")).steps == ("whole trace",)


def test_updates_without_any_op_of_their_thread_mark_no_steps(tmp_path):
    """Gradients on autograd's thread before and after an update that does nothing."""
    profile = Profile(0, 1)
    profile.op("aten::mm", 0, 5)
    for begin in (10, 110):
        profile.op("autograd::engine::evaluate_function: MmBackward0", begin, 10, tid=2)
        profile.span("Optimizer.step#SGD.step", begin + 40, 8)
    assert read_trace(profile.write(tmp_path / "rank0.json")).steps == ("whole trace",)
