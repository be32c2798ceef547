"""Which rows are compared, if execution traces put ops into the wrong one or next to it."""

from __future__ import annotations

import numpy as np

from flint.converters.profilers.torch_ops import op_facts
from flint.observed.rows import ObservedRows
from flint.observed.selection import selected


def chosen(rows, names, form="pytorch-et"):
    """Numbers of the rows that are taken, of (name, shapes, parent) of one thread."""
    found = ObservedRows("trace")
    for name, shapes, parent in rows:
        tensors = [[(shape, "f32")] for shape in shapes]
        found.add(op_facts(name, tensors), rank=0, step=0, parent=parent)
    trace = found.finish(form=form, backend="cpu", world=1, steps=("all",))
    return selected(trace, np.arange(len(rows)), names)[0].tolist()


A, B, PART = (8, 8), (8, 4), (4, 8)


def test_of_an_op_of_a_subclass_the_ops_on_its_part_are_taken():
    rows = [("aten::mul", [A, A], -1), ("PythonSubclass", [A], 0), ("aten::mul", [PART, PART], 1)]
    assert chosen(rows, {"mul"}) == chosen(rows, {"mul"}, "kineto") == [2]
    # Even where it has another name than the op itself, which a capture has too.
    rows[2] = ("aten::pow", [PART], 1)
    assert chosen(rows, {"mul"}) == [2]


def test_a_sum_that_fills_is_one_op_and_a_mean_is_the_sum_and_division_inside():
    rows = [
        ("aten::sum", [A], -1), ("aten::fill_", [B], 0),
        ("aten::mean", [A], -1), ("aten::sum", [A], 2), ("aten::div_", [B], 2),
    ]  # fmt: skip
    assert chosen(rows, set()) == [0, 3, 4]
    assert chosen(rows, {"mean"}) == [0, 2]


def test_what_follows_an_op_that_never_ended_is_not_inside_of_it():
    rows = [
        ("aten::copy_", [A, A], -1), ("autograd::engine::evaluate_function: MmBackward0", [], 0),
        ("aten::mm", [A, B], 1), ("aten::add_", [B, B], 0),
    ]  # fmt: skip
    assert chosen(rows, {"copy", "mm", "add"}) == [0, 2, 3]
    assert chosen(rows, {"copy", "mm", "add"}, "kineto") == [0]  # times do not err


def test_a_product_that_holds_a_view_of_the_next_one_is_over():
    rows = [("aten::mm", [A, B], -1), ("aten::t", [A], 0), ("aten::mm", [B, PART], 0)]
    assert chosen(rows, {"mm"}) == [0, 2]


def test_two_equal_ops_one_inside_of_the_other_follow_each_other():
    assert chosen([("aten::mul", [A, A], -1), ("aten::mul", [A, A], 0)], {"mul"}) == [0, 1]


def test_a_collective_holds_no_other_ops_of_its_thread():
    rows = [
        ("c10d::allreduce_", [A], -1), ("autograd::engine::evaluate_function: X", [], 0),
        ("c10d::allreduce_", [B], 1),
    ]  # fmt: skip
    assert chosen(rows, set()) == [0, 2]


def test_the_end_of_an_op_that_is_said_to_follow_it_is_inside():
    rows = [
        ("aten::mm", [A, B], -1), ("PythonSubclass", [A], -1), ("aten::mm", [PART, B], 1),
        ("aten::zeros_like", [A], -1), ("aten::empty_like", [A], 3), ("aten::zero_", [A], -1),
    ]  # fmt: skip
    assert chosen(rows, {"mm", "zeros_like"}) == [2, 3]


def test_what_an_op_on_a_list_calls_is_inside_as_often_as_the_list_is_long():
    rows = [("aten::_foreach_mul_", [A, A, A], -1), ("aten::mul_", [A], 0)]
    rows += [("aten::mul_", [A], -1), ("aten::mul", [A, A], 2)] + [("aten::mul_", [A], -1)] * 2
    assert chosen(rows, {"_foreach_mul", "mul"}) == [0, 5]
    # If it called none, it is a separate kernel, and what follows is not inside.
    assert chosen(rows[:1] + rows[2:3], {"_foreach_mul", "mul"}) == [0, 1]


def test_a_product_that_only_keeps_its_arguments_never_ran():
    rows = [("aten::mm", [A, B], -1), ("aten::detach", [A], 0), ("detach", [A], 1)]
    assert chosen(rows, {"mm"}, "kineto") == []
    rows.append(("aten::resolve_conj", [A], 0))
    assert chosen(rows, {"mm"}, "kineto") == [0]


def test_a_product_that_a_mode_answers_after_its_arguments_are_saved_never_ran():
    """As PyTorch 2.13 records a product that a selective checkpoint has kept (real profile)."""
    rows = [
        ("aten::addmm", [A, A, A], -1), ("aten::detach", [A], 0), ("detach", [A], 1),
        ("PythonDispatchMode", [], 2), ("aten::detach", [A], 3), ("PythonDispatchMode", [], 0),
    ]  # fmt: skip
    assert chosen(rows, {"addmm"}, "kineto") == []
    rows += [("aten::addmm", [A, A, A], 5), ("aten::resolve_conj", [A], 6)]  # it is let run
    assert chosen(rows, {"addmm"}, "kineto") == [6]


def test_an_op_that_no_capture_has_is_taken_if_it_makes_its_result_itself():
    rows = [
        ("aten::fft_rfft", [A], -1), ("aten::_fft_r2c", [A], 0), ("aten::empty", [], 1),
        ("aten::_linalg_check_errors", [A], -1), ("aten::any", [A], 3),
        ("aten::is_coalesced", [A], -1),
    ]  # fmt: skip
    assert chosen(rows, set(), "kineto") == [1, 4]
