"""Light ops of a recording that look alike: tensors alone, or a tensor and a number."""

from __future__ import annotations

import pytest

from flint.converters.profilers.torch_ops import op_facts
from flint.observed.classes import OpClass, aten_class
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.foreach import FOREACH
from flint.validation.rewrites.listed_arguments import UNREAD
from flint.validation.rewrites.table import match

X, NUMBER, MASK = ((4, 8), "f32"), ((), "f64"), ((4, 8), "i1")


def captured(name, *operands):
    return OpFacts(aten_class(name), name, operands, dtype="f32")


def executed(name, *operands):
    return op_facts(f"aten::{name}", [[operand] for operand in operands])


def matched(ops, run):
    """(captured, executed) pairs, and the reasons."""
    rules = rules_for(run, recorded=True, backend="cpu")
    assert not rules.by_name
    matching = match(Matching(ops, run, rules))
    return [(i, j) for i, j, _ in matching.pairs], matching.explained


def test_a_sum_with_a_number_is_not_a_sum_of_two_tensors():
    """The sum of gradients did not run; the optimizer's sums with its epsilon did."""
    ops = [captured("aten.add.Tensor", X, X), captured("aten._foreach_add_.Scalar", X, X)]
    assert {facts.kind for facts in ops} == {OpClass.ELEMENTWISE}
    pairs, explained = matched(ops, [executed("add_", X, NUMBER)] * 2)
    assert pairs == [(1, 0), (1, 1)]
    assert explained[FOREACH] == 1 and not explained[UNREAD]


def test_a_number_in_the_place_of_a_tensor_is_another_op():
    ops = [captured("aten.where.self", MASK, X, X)]
    assert matched(ops, [executed("where", MASK, X, NUMBER)])[0] == []
    assert matched(ops, [executed("where", MASK, X, X)])[0] == [(0, 0)]


def test_a_number_is_listed_by_the_profiler_alone():
    ops = [captured("aten.add.Tensor", X), captured("aten.add.Tensor", X, ((), "f32"))]
    assert matched(ops, [executed("add", X, NUMBER)] * 2)[0] == [(0, 0), (1, 1)]


def test_a_tensor_that_is_written_to_is_listed_by_the_profiler_alone():
    """DDP divides a gradient by the number of ranks into its bucket."""
    ops = [captured("aten.mul.out", X), captured("aten.mul.Tensor", X)]
    run = [executed("mul", X, NUMBER, X), executed("mul", X, NUMBER)]
    pairs, explained = matched(ops, run)
    assert pairs == [(0, 0), (1, 1)] and not explained


def test_among_ops_that_look_alike_the_one_between_the_same_products_is_the_captured_one():
    """The CPU multiplies in pieces for a norm before the first product; the capture has a norm."""
    product = executed("mm", ((4, 8), "f32"), ((8, 8), "f32"))
    ops = [product, *(product, captured("aten.mul.Tensor", X, X)) * 2]
    times = executed("mul", X, X)
    run = [product, times, times, product, times, product, times]
    assert matched(ops, run)[0] == [(0, 0), (1, 3), (2, 4), (3, 5), (4, 6)]


def test_a_sum_whose_factor_is_listed_is_looked_for_between_the_same_products_first():
    """The CPU adds up in pieces for a norm before the second product; and in the stretch of the
    captured sum, it divides a gradient before that and not after it.
    """
    product = executed("mm", ((4, 8), "f32"), ((8, 8), "f32"))
    weight = ((8,), "f32")
    ops = [product, product, captured("aten.add.Tensor", X, X), captured("aten.mul.out", weight)]
    total = executed("add_", X, X, NUMBER)
    run = [product, total, product, executed("mul", weight, NUMBER, weight), total]
    assert sorted(matched(ops, run)[0]) == [(0, 0), (1, 2), (2, 4), (3, 3)]


@pytest.mark.parametrize("ran", [3, 2])
def test_counters_of_steps_on_the_device_are_numbers_on_the_host(ran):
    """``torch.set_default_device`` puts an optimizer's counters of three parameters there."""
    counter = ((), "f32")
    ops = [captured("aten._foreach_add_.Scalar", counter, counter, counter)]
    run = [executed("add_", counter, NUMBER)] * ran
    rules = rules_for(run, recorded=True, backend="cpu")
    matching = match(Matching(ops, run, rules))
    assert list(matching.unmatched_captured) == ([] if ran == 3 else [0])
    assert not matching.unmatched_executed
