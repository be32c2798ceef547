"""What XLA's CPU backend makes of a program: told by name, and no difference beside it agrees."""

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
    BUFFERS,
    PROMOTED,
    PROMOTED_4_BITS,
    PROMOTED_8_BITS,
    SCATTERED,
    SWAPPED,
    WIDENED,
)
from flint.validation.report.page import CLASS_COLUMNS, class_rows
from flint.validation.rewrites.branches import CHOSEN, NOT_CHOSEN
from flint.validation.rewrites.gemm_forms import MULTIPLIED, RAGGED, SUMMED
from flint.validation.rewrites.removed_ops import CONSTANT, HOISTED, SCALED
from tests.support.shared import quick, quick_rows
from tests.validation import xla_steps
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

#: What 8 devices return differs in one tensor: one is not executed, another one not captured.
RETURNED = 2 * 8


@pytest.fixture(scope="module")
def runs(host_runs):
    """Real runs on host devices."""
    return Runs(host_runs, xla_steps)


@pytest.fixture(scope="module")
def compare(runs):
    """Report of a step's capture, of one branch, against the run of a step."""
    return runs.compare


def test_products_of_vectors_and_outer_products_are_found_as_multiplications(compare):
    report = compare("vectors")
    assert report.ok, named(report)
    # One and the outer product, and one per row of 16; the sum of many is one with that over all.
    assert report.explained == {MULTIPLIED: (2 + 16) * 8, SUMMED: 8}
    gemms = report.classes[OpClass.GEMM]
    assert (gemms.captured, gemms.executed, gemms.matched) == (20 * 8, 8, 19 * 8)
    assert gemms.by_name == 8  # and that is no match of sizes


@pytest.mark.thorough
def test_a_product_of_vectors_of_another_number_is_another_one(compare):
    report = compare("sixteen_vectors")
    assert report.ok, named(report)
    assert report.explained == {MULTIPLIED: 8}
    report = compare("sixteen_vectors", "four_vectors")
    assert report.failures == 8 + RETURNED
    assert "not executed dot_general 16x1x1x64 " in named(report)
    assert not compare("one_vector", "four_vectors").ok


@pytest.mark.thorough
def test_a_product_of_vectors_of_another_length_is_no_such_multiplication(compare):
    report = compare("vectors_changed", "vectors")
    assert not report.ok
    assert report.failures == 2 * 8 + RETURNED
    for dims in ("1x1x1x62", "1x1024x31x1"):
        assert f"not executed dot_general {dims} " in named(report)


def test_a_product_with_a_number_leaves_no_trace_and_is_no_match(compare):
    report = compare("number")
    assert report.ok, named(report)
    assert report.explained[SCALED] == 8
    gemms = report.classes[OpClass.GEMM]
    assert gemms.captured == gemms.matched + 8
    assert "8 have no partner for a named reason" in report.verdict


def test_a_product_with_a_number_that_is_not_known_before_must_run(compare):
    report = compare("given_number", "no_number")
    # The product, and the parameter that nothing else reads.
    assert report.failures == 2 * 8 + RETURNED
    assert "not executed dot_general 1x1024x1x1 " in named(report)


@pytest.mark.thorough
def test_an_outer_product_with_a_repeated_number_is_one_with_a_number(compare):
    report = compare("mean")
    assert report.ok, named(report)
    assert report.explained[SCALED] == 8


@pytest.mark.thorough
def test_an_outer_product_of_what_is_not_one_number_must_run(compare):
    report = compare("weighted", "mean")
    assert not report.ok
    assert "not executed dot_general 1x16x32x1" in named(report)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("float8_e5m2", PROMOTED_8_BITS),
        ("float8_e4m3fn", PROMOTED_8_BITS),
        ("int4", PROMOTED_4_BITS),
    ],
)
def test_small_numbers_are_sent_as_wider_ones(name, reason, compare):
    report = compare(name)
    assert report.ok, named(report)
    assert report.explained == {reason: 3 * 8, BUFFERS: 8}


@pytest.mark.parametrize("name", quick(["int8", "int4"], "int4"))
def test_other_numbers_are_not_what_was_sent(name, compare):
    report = compare(name, "float8_e5m2")
    assert not report.ok
    assert "not executed all_gather" in named(report)


SENT = [
    ("float8_e5m2", "float16"), ("float16", "float8_e5m2"), ("int4", "int8"), ("int8", "int4"),
    ("float8_e4m3fn", "float8_e5m2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "run"), quick_rows(SENT, ("int4", "int8")))
def test_what_is_sent_as_the_same_type_was_of_the_captured_one(name, run, compare):
    report = compare(name, run)
    assert report.failures == 2 * 3 * 8
    for kind in ("all_gather", "collective_permute", "all_to_all"):
        assert f"not executed {kind}" in named(report)


@pytest.mark.parametrize("name", quick(["half", "eighths"], "half"))
def test_products_of_narrow_floats_are_computed_in_float32(name, compare):
    report = compare(name)
    assert report.ok, named(report)
    assert report.explained == {WIDENED: 8}
    assert report.identified == 2 * 8  # also the product in float32 keeps its own line


NARROWER = [("half", "full"), ("eighths", "half"), ("half", "one_half")]


@pytest.mark.parametrize(("name", "run"), quick_rows(NARROWER, ("half", "full")))
def test_a_product_of_floats_that_never_were_so_narrow_is_another_one(name, run, compare):
    report = compare(name, run)
    assert not report.ok
    assert "not executed dot_general 1x16x32x64 (batch, m, n, k) f" in named(report)


@pytest.mark.parametrize("name", quick(["carried_narrow", "carried_wide", "one_half"], "one_half"))
def test_a_type_that_both_have_on_the_way_is_no_difference(name, compare):
    report = compare(name)
    assert report.ok, named(report)
    assert report.classes[OpClass.GEMM].matched == report.classes[OpClass.GEMM].captured


@pytest.mark.parametrize(
    ("name", "run", "failures"),
    [
        # Whose products are the same, so that only what ran more is left.
        ("full", "half", 8 + RETURNED),
        ("one_half", "half", 2 * 8 + RETURNED),
        ("carried_wide", "carried_narrow", 2 * 4 * 8),
    ],
)
def test_a_product_of_floats_that_were_narrower_is_another_one(name, run, failures, compare):
    report = compare(name, run)
    assert report.failures == failures
    assert "f32 converted from f16" in named(report)


def test_a_product_in_float32_of_what_was_bfloat16_is_not_called_another_type(compare):
    report = compare("two_widths")
    assert report.ok, named(report)
    assert report.explained == {PROMOTED: 8}


def test_what_a_loop_changes_is_no_longer_of_the_type_that_it_began_with(compare):
    report = compare("carried_narrow", "carried_wide")
    assert report.failures == 2 * 4 * 8
    assert "not executed dot_general 1x16x64x64 (batch, m, n, k) f16" in named(report)


def test_a_program_is_called_with_the_types_of_its_capture(compare):
    report = compare("in_bfloat16")
    assert report.ok, named(report)
    assert PROMOTED in report.explained
    report = compare("in_float32", "in_bfloat16")  # computes and sends the same float32
    assert not report.ok
    # Both parameters, and of the 5 ops the 4 that read what was bfloat16.
    assert report.failures == 2 * (2 + 4) * 8 + RETURNED
    assert "not executed 1 x a parameter 64x4xf32\n" in named(report)
    assert "not captured 1 x a parameter 64x4xbf16\n" in named(report)


def test_a_program_is_called_with_the_shapes_of_its_capture(compare):
    assert compare("narrow_beside").ok
    report = compare("wide_beside", "narrow_beside")  # whose products are the same
    assert not report.ok
    assert "not executed 1 x a parameter 4x16xf32\n" in named(report)
    assert "not captured 1 x a parameter 4x8xf32\n" in named(report)


def test_what_an_all_reduce_reduces_with_is_compared(compare):
    assert compare("by_maximum").ok
    report = compare("by_sum", "by_maximum")
    assert not report.ok
    assert report.failures == 2 * 8
    assert "256 bytes f32 maximum among" in named(report)


@pytest.mark.thorough
def test_all_reduces_of_as_many_bytes_are_told_apart_by_type_and_reduction(compare):
    report = compare("four_sums")
    assert report.ok, named(report)
    assert report.classes[OpClass.ALL_REDUCE].matched == 4 * 8


@pytest.mark.thorough
def test_a_ragged_product_runs_as_a_dense_one_of_all_its_groups(compare):
    """Of 32 x 16 by 16 x 24 in 4 groups: sums of 4 * 16 and 4 * 24, and 4 products of 32 rows."""
    report = compare("four_groups")
    assert report.ok, named(report)
    assert report.explained[RAGGED] == 3 * 8
    report = compare("eight_groups", "four_groups")
    assert report.failures == 2 * 3 * 8
    assert RAGGED not in report.explained


@pytest.mark.thorough
def test_two_products_of_the_same_values_over_other_dims_are_two(compare):
    assert compare("both_gradients").explained.keys() <= {SWAPPED}
    report = compare("both_gradients", "one_gradient")
    assert not report.ok
    assert report.failures == 8


def test_a_sum_of_constants_is_no_communication(compare):
    report = compare("constants")
    assert report.ok, named(report)
    assert report.explained == {CONSTANT: 8}
    assert report.classes[OpClass.ALL_REDUCE].matched == 8


@pytest.mark.parametrize("name", quick(["constant_first", "constant_second"], "constant_first"))
def test_of_sums_that_look_alike_as_many_may_be_missing_as_are_of_constants(name, compare):
    report = compare(name)
    assert report.ok, named(report)
    assert report.explained[CONSTANT] == 8
    assert report.classes[OpClass.ALL_REDUCE].matched == 8


def test_a_sum_of_what_ranks_have_must_run(compare):
    report = compare("constants_changed", "constants")
    assert not report.ok
    assert "not executed all_reduce" in named(report)


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


def test_a_branch_that_data_did_not_choose_is_told_and_the_other_one_compared(compare):
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
def test_two_conditionals_of_the_same_branches_are_told_one_by_one(compare):
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


def test_the_table_accounts_for_every_captured_op(compare):
    report = compare("constants")
    rows = [dict(zip((name.lstrip("?>") for name in CLASS_COLUMNS), row, strict=True))
            for row in class_rows(report)]  # fmt: skip
    [sums] = [row for row in rows if row["class"] == "all-reduce"]
    assert [sums[name] for name in ("captured", "matched", "by name", "explained")] == [
        "16", "8", "0", "8"
    ]  # fmt: skip


def test_a_multiplication_that_was_a_product_has_its_time_where_it_was_fused(compare):
    assert compare("vectors").times.classes[OpClass.ELEMENTWISE].unknown == 0


def test_the_verdict_counts_captured_ops(compare):
    report = compare("twice_large", "once_large")
    assert report.ok, named(report)
    total = sum(one.captured for kind, one in report.classes.items() if kind.must_match)
    ran = f"of {total} collectives, GEMMs, convolutions and attentions {total - 16} ran as captured"
    assert ran in report.verdict
    assert (
        "captured, 16 have no partner for a named reason" in report.verdict
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
        ({"loop": 2}, 4, (8,)),  # nothing of its body is recorded: the compiler's own count
        ({"loop": 2}, 0, ()),
    ],
)
def test_how_often_a_loop_iterates_is_told_by_what_ran_of_its_body(ran, trips, times):
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
        ((["a"], []), {"choice": 4, "a": 1}, (1, 3)),
        ((["a"], ["b"]), {"a": 1, "b": 3}, (1, 3)),  # the conditional itself is not recorded
        ((["a"], [], []), {"choice": 4, "a": 1}, None),  # nobody knows which of the silent ones
        ((["a"], ["b"]), {}, None),
    ],
)
def test_how_often_branches_were_taken_is_told_by_what_ran_of_them(branches, ran, times):
    found = [
        one.times for one in taken(Program(conditional(*branches), "trace"), {(0, 0): Counter(ran)})
    ]
    assert found == ([] if times is None else [times])
