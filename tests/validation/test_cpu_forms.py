"""Ops that the CPU runs in another form than an accelerator, by hand-made ops of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.converters.profilers.torch_ops import op_facts
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.cpu_substitutes import CAST
from flint.validation.rewrites.foreach import FOREACH
from flint.validation.rewrites.light_ops import (
    CHECKED,
    CONJUGATES,
    ERRORS,
    NOTHING,
    NUMBERS,
    SPREAD,
)
from flint.validation.rewrites.listed_arguments import UNRECORDED
from flint.validation.rewrites.table import match


def ops(*named):
    """Ops by name and the shapes of their tensors."""
    return [
        op_facts(f"aten::{name}", [[(shape, "f32")] for shape in shapes]) for name, *shapes in named
    ]


def lists(name, *shapes):
    """A captured op on a list of tensors, named as in programs."""
    facts = op_facts(f"aten::{name.partition('.')[0]}", [[(shape, "f32") for shape in shapes]])
    return replace(facts, name=f"aten.{name}")


def compared(captured, executed):
    return match(Matching(captured, executed, rules_for(executed, recorded=True, backend="cpu")))


def is_whole(matching):
    return not matching.unmatched_captured and not matching.unmatched_executed


@pytest.mark.parametrize(
    ("name", "shapes", "size"),
    [
        ("mv", ((5, 7), (7,)), (1, 5, 1, 7)),
        ("addmv", ((5,), (5, 7), (7,)), (1, 5, 1, 7)),
        ("dot", ((7,), (7,)), (1, 1, 1, 7)),
    ],
)
def test_products_of_vectors_have_sizes(name, shapes, size):
    """As spectral norms compute them; a vector of another length is none of them."""
    assert ops((name, *shapes))[0].gemms == (size,)
    assert ops((name, *shapes[:-1], (6,)))[0].gemms is None


def test_an_op_that_writes_into_an_empty_tensor_is_of_the_others_size():
    matching = compared(
        [lists("_foreach_abs.default", (3,), (5,))], ops(("abs", (3,), (0,)), ("abs", (5,)))
    )
    assert is_whole(matching) and matching.explained[FOREACH] == 1


def test_empty_tensors_of_a_list_do_not_run():
    """A rank's part of a parameter with fewer rows than ranks."""
    matching = compared(
        [lists("_foreach_lerp_.Scalar", *[(3,), (0, 5)] * 2)],
        ops(("lerp_", (3,), (3,)), ("lerp_", (0, 5), (0, 5))),
    )
    assert is_whole(matching) and matching.explained[FOREACH] == 1


SCALED = [
    lists("_foreach_mul.ScalarList", (3,), (5,)),
    lists("_foreach_addcdiv_.Scalar", *[(3,), (5,)] * 3),
]
DIVIDED = ops(("addcdiv_", (3,), (3,), (3,)), ("addcdiv_", (5,), (5,), (5,)))


def test_a_factor_of_a_list_is_an_argument_of_the_ops_on_single_tensors():
    matching = compared(SCALED, DIVIDED)
    assert is_whole(matching) and matching.explained[FOREACH] == 2


def test_a_factor_without_the_op_that_takes_it_is_missing():
    assert list(compared(SCALED[:1], DIVIDED).unmatched_captured) == [0]


def test_ops_on_empty_tensors_do_nothing():
    matching = compared(ops(("add", (3,))), ops(("mul", (0, 3), (0, 3)), ("add", (3,))))
    assert is_whole(matching) and matching.explained[NOTHING] == 1


def test_the_range_of_classes_is_checked_before_they_are_scattered():
    scattered = ("scatter_", (6, 4), (6, 1))
    matching = compared(ops(scattered), ops(("aminmax", (6,)), scattered))
    assert is_whole(matching) and matching.explained[CHECKED] == 1
    assert not is_whole(compared(ops(scattered), ops(("aminmax", (7,)), scattered)))


def integers(name, shape):
    return op_facts(f"aten::{name}", [[(shape, "i32")]])


def test_whether_factorisations_failed_is_read_once_for_each_batch():
    factor = ("linalg_cholesky_ex", (4, 8, 8))
    matching = compared(ops(factor), [*ops(factor), integers("any", (4,))])
    assert is_whole(matching) and matching.explained[ERRORS] == 1
    for others in ([integers("any", (5,))], [integers("any", (4,))] * 2, ops(("any", (4,)))):
        assert not is_whole(compared(ops(factor), [*ops(factor), *others]))


def test_a_rank_looks_for_itself_in_a_mesh():
    found = op_facts("aten::nonzero", [[((2, 2), "i1")]])
    matching = compared([], [integers("eq", (2, 2)), found])
    assert is_whole(matching) and matching.explained[NUMBERS] == 2
    assert not is_whole(compared([], [integers("eq", (2, 3)), found]))


def test_the_gradient_of_a_maximum_masks_by_another_op():
    masks = [(name, (9,)) for name in ("isnan", "logical_and", "logical_or_", "mul")]
    matching = compared(ops(*masks), ops(("masked_fill_", (9,))))
    assert is_whole(matching) and matching.explained[SPREAD] == 5


@pytest.mark.parametrize("missing", ["isnan", "logical_and", "mul"])
def test_other_masks_are_none_of_a_maximum(missing):
    names = [name for name in ("isnan", "logical_and", "logical_or_", "mul") if name != missing]
    matching = compared(ops(*((name, (9,)) for name in names)), ops(("masked_fill_", (9,))))
    assert not is_whole(matching)


def rotated(copies):
    """The gradient of a product with complex numbers whose conjugate is copied first."""
    angles = ((16, 1, 4), "complex<f32>")
    values = ((4, 16, 4, 4), "complex<f32>")
    product = op_facts("aten::mul", [[values], [angles]])
    return [*[op_facts("aten::clone", [[angles]])] * copies, product]


def test_a_profile_has_the_copy_of_a_conjugate_within_the_op_that_reads_it():
    matching = compared(rotated(copies=1), rotated(copies=0))
    assert is_whole(matching) and matching.explained[CONJUGATES] == 1


def test_no_more_conjugates_are_copied_than_ops_read():
    assert len(compared(rotated(copies=2), rotated(copies=0)).unmatched_captured) == 1


#: Queries, keys and values of 2 x 4 heads, and a mask of the keys of each sequence.
FORWARD = ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))


def masked(name, *masks):
    facts = op_facts(f"aten::{name}", [[(shape, "f32")] for shape in (*FORWARD, *masks)])
    return replace(facts, gemms=((8, 5, 7, 8), (8, 5, 8, 7)))


@pytest.mark.parametrize("mask", [(2, 4, 1, 7), (2, 1, 5, 7), (1, 1, 1, 7), (5, 7)])
def test_a_mask_of_attention_may_be_broadcast(mask):
    captured = masked("_scaled_dot_product_efficient_attention", (2, 4, 5, 7))
    executed = masked("_scaled_dot_product_attention_math", mask)
    assert is_whole(compared([captured], [executed]))


def test_a_tensor_of_other_sizes_is_no_mask():
    captured = masked("_scaled_dot_product_efficient_attention", (2, 4, 5, 7))
    executed = masked("_scaled_dot_product_attention_math", (2, 4, 1, 6))
    assert not is_whole(compared([captured], [executed]))


def test_an_op_that_autocast_widens_on_accelerators_alone_runs_in_a_half_type():
    wide, half = (op_facts("aten::exp", [[((6,), kind)]]) for kind in ("f32", "bf16"))
    assert compared([wide], [half]).explained[CAST] == 2
    assert not is_whole(compared([half], [wide]))


def typed(name, *kinds):
    return op_facts(f"aten::{name}", [[((8, 8), kind)] for kind in kinds])


def test_what_autocast_widens_on_accelerators_has_casts_around_it():
    """``noise * (0.5 * x).exp()`` and its gradient's products; no cast of another size."""
    wide = [
        typed("_to_copy", "bf16"), typed("exp", "f32"), typed("mul", "bf16", "f32"),
        typed("mul", "f32", "bf16"), typed("mul", "f32", "f32"), typed("_to_copy", "f32"),
    ]  # fmt: skip
    half = [typed("exp", "bf16"), *[typed("mul", "bf16", "bf16")] * 3]
    assert is_whole(compared(wide, half))
    more = op_facts("aten::_to_copy", [[((8, 9), "bf16")]])
    assert list(compared([*wide, more], half).unmatched_captured) == [6]


def test_two_tensors_are_not_one_whose_other_is_unrecorded():
    """An index may be unrecorded, but a product of a tensor with itself reads no other tensor."""
    wide, half = typed("mul", "bf16", "f32"), typed("mul", "bf16", "bf16")
    assert compared([wide], [half]).explained == {CAST: 2}
    taken = op_facts("aten::index", [[((8, 8), "f32")], [((3,), "i64")]])
    assert compared([taken], [op_facts("aten::index", [[((8, 8), "f32")]])]).explained == {
        UNRECORDED: 1
    }


#: 8 numbers of each of four ranks, reduced and scattered, or scattered by each and summed.
REDUCED = OpFacts(
    OpClass.REDUCE_SCATTER, "reduce_scatter", (((32,), "f32"),), (128,), "f32", (0, 1, 2, 3),
    reduction="add",
)  # fmt: skip
SCATTERS = [
    OpFacts(OpClass.OTHER_COLLECTIVE, name, operands)
    for _ in range(4)
    for name, operands in (("c10d::scatter_", (((8,), ""),)), ("scatter", None))
]


def test_the_gradient_of_a_gather_is_scattered_and_summed_by_gloo():
    matching = compared([REDUCED], [*SCATTERS, *ops(("sum", (4, 8)))])
    assert is_whole(matching)
    assert [j for _, j, _ in matching.pairs] == [0, 2, 4, 6]


@pytest.mark.parametrize("ran", [SCATTERS[:6], SCATTERS[:6] + ops(("sum", (4, 8)))], ids=len)
def test_fewer_scatters_than_ranks_are_no_gradient_of_a_gather(ran):
    assert list(compared([REDUCED], ran).unmatched_captured) == [0]
