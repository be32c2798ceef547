"""What XLA's CPU backend makes of a program: told by name, and no difference beside it agrees."""

from __future__ import annotations

import pytest

from flint.observed.classes import OpClass
from flint.validation.matching.form_reasons import (
    BUFFERS,
    PROMOTED,
    PROMOTED_4_BITS,
    PROMOTED_8_BITS,
    SWAPPED,
    WIDENED,
)
from flint.validation.report.page import CLASS_COLUMNS, class_rows
from flint.validation.rewrites.gemm_forms import MULTIPLIED, RAGGED, SUMMED
from flint.validation.rewrites.removed_ops import CONSTANT, SCALED
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
def test_a_product_of_vectors_of_another_length_is_not_such_a_multiplication(compare):
    report = compare("vectors_changed", "vectors")
    assert not report.ok
    assert report.failures == 2 * 8 + RETURNED
    for dims in ("1x1x1x62", "1x1024x31x1"):
        assert f"not executed dot_general {dims} " in named(report)


def test_a_product_with_a_number_leaves_no_trace_and_is_not_a_match(compare):
    report = compare("number")
    assert report.ok, named(report)
    assert report.explained[SCALED] == 8
    gemms = report.classes[OpClass.GEMM]
    assert gemms.captured == gemms.matched + 8
    assert "8 are unmatched for a known reason" in report.verdict


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
def test_a_type_that_both_have_on_the_way_is_not_a_difference(name, compare):
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
def test_all_reduces_of_as_many_bytes_are_distinguished_by_type_and_reduction(compare):
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


def test_a_sum_of_constants_is_not_a_communication(compare):
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
