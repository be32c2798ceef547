"""Loops and conditionals as XLA's CPU backend runs them: what leaves a loop, which branch ran."""

from __future__ import annotations

from collections import Counter

import pytest

from flint.converters.profilers.xplane.branches import taken
from flint.converters.profilers.xplane.loops import iterations
from flint.converters.profilers.xplane.program import Program
from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.observed.classes import OpClass
from flint.validation.matching.form_reasons import (
    SCATTERED,
    SWAPPED,
)
from flint.validation.rewrites.branches import CHOSEN, NOT_CHOSEN
from flint.validation.rewrites.removed_ops import HOISTED
from tests.validation import xla_control_flow
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture, of one branch, against the run of a step."""
    return Runs(host_runs, xla_control_flow).compare


def test_a_gather_that_leaves_a_loop_runs_once_for_all_iterations(compare):
    report = compare("accumulation")
    assert report.ok, named(report)
    assert set(report.explained) <= {HOISTED, SCATTERED, SWAPPED}
    gathers = report.classes[OpClass.ALL_GATHER]
    assert report.explained[HOISTED] == gathers.captured - gathers.executed > 0
    assert gathers.matched == gathers.executed


def test_a_gather_of_what_changes_in_a_loop_must_run_in_each_iteration(compare):
    report = compare("accumulation_changed", "accumulation")
    assert not report.ok
    assert report.explained.get(HOISTED, 0) == 0
    assert "not executed all_gather" in named(report)


@pytest.mark.thorough
def test_what_leaves_two_loops_runs_once(compare):
    report = compare("loops")
    assert report.ok, named(report)
    reduces, gemms = report.classes[OpClass.ALL_REDUCE], report.classes[OpClass.GEMM]
    # In 3 iterations of 5: an all-reduce and w @ w, and on what they are used for.
    assert (reduces.captured, reduces.executed) == (15 * 8, 8)
    assert (gemms.captured, gemms.executed) == (45 * 8, 31 * 8)
    assert report.explained == {HOISTED: 28 * 8}
    assert (reduces.matched, gemms.matched) == (8, 31 * 8)  # what did not run is no match


def test_a_loop_that_something_leaves_runs_as_often_as_captured(compare):
    report = compare("four_times")
    assert report.ok, named(report)
    assert report.explained == {HOISTED: 3 * 8}
    report = compare("six_times", "four_times")
    assert not report.ok
    assert HOISTED not in report.explained
    assert report.failures == 5 * 8
    assert not compare("six_times", "one_time").ok  # which has no loop


@pytest.mark.thorough
def test_what_changes_in_the_outer_loop_may_leave_the_inner_one_only(compare):
    report = compare("loops_changed", "loops")
    assert not report.ok
    assert "not executed all_reduce" in named(report)


def test_a_branch_that_data_did_not_choose_is_reported_and_the_other_one_compared(compare):
    report = compare("branches")  # the dear branch is captured, 4 products in each iteration
    assert report.ok, named(report)
    assert report.explained[NOT_CHOSEN] == 2 * 4 * 8
    assert report.explained[CHOSEN] == 2 * 2 * 8
    assert report.classes[OpClass.GEMM].matched == (2 + 2 * 4) * 8  # and x @ x.T @ x


@pytest.mark.thorough
def test_a_step_of_which_only_the_branch_that_was_not_captured_has_products(compare):
    report = compare("alone")  # 4 products in each branch
    assert report.ok, named(report)
    assert report.explained == {NOT_CHOSEN: 4 * 8, CHOSEN: 4 * 8}
    report = compare("alone", branch=0)  # the one that ran
    assert report.ok, named(report)
    assert not report.explained
    with pytest.raises(FlintError, match="only 0 match"):
        compare("alone", "alone_changed")


@pytest.mark.parametrize(
    ("branch", "not_chosen", "chosen"), [(0, 0, 4 * 2), (1, 5 * 2, 2 * 2), (2, 5 * 2, 2 * 2)]
)
def test_of_three_branches_each_ran_as_often_as_the_trace_says(branch, not_chosen, chosen, compare):
    """Data chose the branches 3, 2 and 2 times; all but the first have two products."""
    report = compare("choices", branch=branch)
    assert report.ok, named(report)
    assert report.explained.get(NOT_CHOSEN, 0) == not_chosen * 8
    assert report.explained.get(CHOSEN, 0) == chosen * 8


@pytest.mark.thorough
def test_two_conditionals_of_the_same_branches_are_reported_one_by_one(compare):
    report = compare("twice_large", "never_large")
    assert report.ok, named(report)
    assert report.explained[NOT_CHOSEN] == report.explained[CHOSEN] == 2 * 2 * 8


def test_a_conditional_of_other_ops_tells_nothing_of_what_was_chosen(compare):
    report = compare("decided")
    assert report.ok, named(report)
    assert report.explained[NOT_CHOSEN] == report.explained[CHOSEN] == 2 * 8
    report = compare("decided", "undecided")  # where only the light ops are conditional
    assert not report.ok
    assert report.failures == (2 + 2) * 8
    assert CHOSEN not in report.explained


def test_the_verdict_counts_captured_ops(compare):
    report = compare("twice_large", "once_large")
    assert report.ok, named(report)
    total = sum(one.captured for kind, one in report.classes.items() if kind.must_match)
    ran = f"of {total} collectives, GEMMs, convolutions and attentions {total - 16} ran as captured"
    assert ran in report.verdict
    assert (
        "captured, 16 are unmatched for a known reason" in report.verdict
    )  # two products per rank


def test_the_branch_of_the_capture_needs_no_reason_where_it_ran(compare):
    report = compare("exchanges", branch=0)  # of lax.cond the one where the predicate is false
    assert report.ok, named(report)
    assert CHOSEN not in report.explained


def test_a_branch_that_communicates_otherwise_is_compared_with_the_one_that_ran(compare):
    report = compare("exchanges", branch=1)
    assert report.ok, named(report)
    assert report.explained[NOT_CHOSEN] == report.explained[CHOSEN] == 8
    assert report.classes[OpClass.ALL_GATHER].explained == 8
    assert report.classes[OpClass.ALL_REDUCE].explained == 8


@pytest.mark.parametrize(
    ("name", "run", "branch"), [("branches_changed", "branches", None),
                                ("exchanges_changed", "exchanges", 1)],
)  # fmt: skip
def test_a_branch_of_other_sizes_is_not_the_one_that_ran(name, run, branch, compare):
    report = compare(name, run, branch)
    assert not report.ok
    assert CHOSEN not in report.explained
    assert NOT_CHOSEN not in report.explained
    assert "not captured" in named(report)


@pytest.mark.parametrize(
    ("ran", "trips", "times"),
    [
        ({"loop": 1, "a": 3, "b": 3}, 0, (3,)),
        ({"loop": 1, "a": 3, "b": 6}, 0, (3,)),  # an op of two kernels
        ({"loop": 2}, 4, (8,)),  # nothing of its body is recorded: the compiler's own count
        ({"loop": 2}, 0, ()),
    ],
)
def test_iterations_of_a_loop_are_counted_by_the_ops_of_its_body_that_ran(ran, trips, times):
    module = pb.HloModuleProto()
    config = b'{"known_trip_count":{"n":"%d"}}' % trips if trips else b""
    loop = module.computations.add(id=1).instructions.add(name="loop", opcode="while")
    loop.backend_config = config
    loop.called_computation_ids.append(2)
    body = module.computations.add(id=2)
    for name in "ab":
        body.instructions.add(name=name, opcode="tanh")
    assert [one.times for one in iterations(Program(module, "trace"), {(0, 0): Counter(ran)})] == [
        times
    ]


def conditional(*branches):
    """A module with one conditional; a branch is a list of instructions' names."""
    module = pb.HloModuleProto()
    entry = module.computations.add(id=1)
    choice = entry.instructions.add(name="choice", opcode="conditional")
    for number, names in enumerate(branches, 2):
        choice.called_computation_ids.append(number)
        inside = module.computations.add(id=number)
        for name in names:
            inside.instructions.add(name=name, opcode="tanh")
    return module


@pytest.mark.parametrize(
    ("branches", "ran", "times"),
    [
        ((["a"], ["b", "c"]), {"choice": 4, "a": 1, "b": 3, "c": 3}, (1, 3)),
        ((["a", "d"], ["b"]), {"choice": 4, "a": 1, "d": 2, "b": 3}, (1, 3)),  # d: two kernels
        ((["a"], []), {"choice": 4, "a": 1}, (1, 3)),
        ((["a"], ["b"]), {"a": 1, "b": 3}, (1, 3)),  # the conditional itself is not recorded
        ((["a"], [], []), {"choice": 4, "a": 1}, None),  # nobody knows which of the silent ones
        ((["a"], ["b"]), {}, None),
    ],
)
def test_taken_branches_are_counted_by_their_ops_that_ran(branches, ran, times):
    found = [
        one.times for one in taken(Program(conditional(*branches), "trace"), {(0, 0): Counter(ran)})
    ]
    assert found == ([] if times is None else [times])
