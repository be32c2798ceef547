"""One light op too many or too few, between two heavy ones, is another program."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flint.observed.classes import OpClass, aten_class  # noqa: E402
from flint.observed.columns import OpFacts  # noqa: E402
from flint.validation.matching.equivalence import rules_for  # noqa: E402
from flint.validation.matching.pairing import Matching  # noqa: E402
from flint.validation.matching.telling import telling  # noqa: E402
from flint.validation.rewrites.table import match  # noqa: E402
from flint.validation.validating import validate  # noqa: E402
from tests.support.shared import once  # noqa: E402
from tests.validation import torch_steps  # noqa: E402
from tests.validation.test_torch_runs import FORMS, profiled, traces  # noqa: E402

pytestmark = pytest.mark.xdist_group("validation-torch")

#: Gradients of two uses are added up, then there are a product and the optimizer.
STEP = ("aten::add", "aten::mm", "aten::_foreach_add_")


def facts(names, size=8):
    return [
        OpFacts(
            aten_class(name), name, (((size, size), "f32"),) * 2, dtype="f32",
            gemms=((1, size, size, size),) if aten_class(name) == OpClass.GEMM else None,
        )
        for name in names
    ]  # fmt: skip


def strange(captured, executed, backend="gpu"):
    """Names of captured and of executed ops that are a difference."""
    rules = rules_for(executed, recorded=True, backend=backend)
    matching = match(Matching(captured, executed, rules))
    trace = SimpleNamespace(form="kineto")
    rows = np.arange(len(executed))
    found = telling(matching, trace, rows)
    return tuple(
        sorted(ops[number].name for number in numbers)
        for ops, numbers in ((captured, found.captured), (executed, found.executed))
    )


@pytest.mark.parametrize(
    ("run", "missing", "more"),
    [
        (STEP, [], []),
        (STEP[:2], ["aten::_foreach_add_"], []),
        ((*STEP, "aten::_foreach_add_"), [], ["aten::_foreach_add_"]),
        (("aten::mul", *STEP[1:]), ["aten::add"], ["aten::mul"]),
        # As many additions as captured, another one of them: between other products.
        (("aten::add", "aten::add", "aten::mm"), ["aten::_foreach_add_"], ["aten::add"]),
    ],
    ids=["the same", "no optimizer", "twice", "another op", "the same name elsewhere"],
)
def test_names_are_counted_between_heavy_ops(run, missing, more):
    assert strange(facts(STEP), facts(run)) == (missing, more)


def test_ops_of_other_kinds_are_counted_too_except_random_numbers():
    """A transform is one op on every backend; the host draws numbers to choose a batch."""
    step = ("aten::_fft_r2c", *STEP)
    assert strange(facts(step), facts(STEP), "cpu") == (["aten::_fft_r2c"], [])
    assert strange(facts(STEP), facts(step), "cpu") == ([], ["aten::_fft_r2c"])
    assert strange(facts(STEP), facts(("aten::randperm", *STEP)), "cpu") == ([], [])


def test_what_a_step_begins_with_may_end_the_step_of_a_trace():
    """An average of the weights after their update; but what ends a step does not begin it."""
    averaged, ran = ("aten::lerp_", "aten::mm"), ("aten::mm", "aten::lerp_")
    assert strange(facts(averaged), facts(ran)) == ([], [])
    assert strange(facts(averaged), facts((*ran, "aten::lerp_"))) == ([], ["aten::lerp_"])
    assert moved(averaged, ran) == []
    assert moved(ran, averaged) == ["aten::lerp_"]


def test_an_op_of_other_sizes_in_the_place_of_one_tells_nothing_on_a_device():
    executed = [*facts(STEP[:2]), *facts(STEP[2:], size=4)]
    assert strange(facts(STEP), executed) == ([], [])


def test_an_op_of_other_sizes_in_the_place_of_one_is_another_one_on_the_host():
    executed = [*facts(STEP[:2]), *facts(STEP[2:], size=4)]
    assert strange(facts(STEP), executed, "cpu") == ([STEP[2]], [STEP[2]])


def moved(names, run):
    """Names of light ops that ran between other heavy ops than captured."""
    rules = rules_for(facts(run), recorded=True, backend="cpu")
    matching = match(Matching(facts(names), facts(run), rules))
    found = telling(matching, SimpleNamespace(form="kineto"), np.arange(len(run)))
    return [names[number] for number in sorted(found.moved)]


def test_an_op_that_runs_between_other_heavy_ones_is_another_program():
    names = ("aten::mm", "aten::sum", "aten::add", "aten::bmm")
    assert moved(names, [names[n] for n in (0, 2, 3, 1)]) == ["aten::sum"]
    assert moved(names, [names[n] for n in (2, 0, 1, 3)]) == ["aten::add"]
    assert moved(names, [names[n] for n in (0, 2, 1, 3)]) == []  # between the same two


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ran", [True, False], ids=["only run", "only captured"])
def test_an_optimizer_that_only_one_side_has_is_found(ran, form, tmp_path_factory):
    whole = torch_steps.STEPS["ddp_buckets"]
    missing = torch_steps.without_optimizer
    name = "ddp_buckets" if ran else "without_optimizer"
    folder = once(tmp_path_factory, f"torch-{name}", lambda folder: profiled(folder, name))
    report = validate((missing if ran else whole).capture(), traces(folder, form)[:1])
    assert not report.ok
    counted = {item.what for item in report.differences if item.counts}
    assert counted == {"not captured" if ran else "not executed"}
