"""Named reasons for light ops without a partner: as many ops as a reason gives, and none more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from flint.converters.profilers.torch_ops import op_facts
from flint.errors import FlintError
from flint.observed.classes import OpClass, aten_class
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.form_reasons import BARRIER, ROOTED
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.report.sanity_checks import check_alike
from flint.validation.rewrites.combined_collectives import COMBINED
from flint.validation.rewrites.cpu_substitutes import CAST, DECOMPOSED, FUNCTIONAL, HEADS
from flint.validation.rewrites.gloo import GLOO, on_own_threads, on_program_threads
from flint.validation.rewrites.light_ops import NUMBERS
from flint.validation.rewrites.table import SUBSTITUTES, match

X, ONE, W = (2, 16, 64), (2, 16, 1), (64,)


def op(name, *shapes, dtype="f32"):
    return OpFacts(aten_class(name), name, tuple((shape, dtype) for shape in shapes))


def collective(kind, elements, group=(0, 1)):
    return OpFacts(kind, str(kind), (((elements,), "f32"),), (4 * elements,), "f32", group)


def reasons(captured, executed, pairs=()):
    """Reason -> numbers of ops on both sides that have no partner because of it."""
    matching = of_host(captured, executed)
    for i, j in pairs:
        matching.pair(i, j, Evidence.SIZES)
    found = {}
    for rewrite in SUBSTITUTES:
        known = matching.explained.copy()
        before = len(matching.without_captured), len(matching.without_executed)
        rewrite(matching)
        after = len(matching.without_captured), len(matching.without_executed)
        for reason in matching.explained - known:
            found[reason] = after[0] - before[0], after[1] - before[1]
    return found


def of_host(captured, executed, backend="cpu", **more):
    """Ops of a recording that ran on a CPU, none of them matched yet."""
    rules = rules_for(executed, recorded=True, backend=backend)
    return Matching(captured, executed, rules, **more)


FORWARD = [
    op("aten::pow", X), op("aten::mean", X), op("aten::add_", ONE), op("aten::rsqrt", ONE),
    op("aten::mul", X, ONE), op("aten::mul", X, W),
]  # fmt: skip
#: d/dx of w x r, r = (mean x^2 + e)^-1/2, as autograd derives it op by op.
BACKWARD = [
    op("aten::mul", X, W), op("aten::mul", X, X), op("aten::sum", X), op("aten::mul", X, ONE),
    op("aten::mul", X, X), op("aten::sum", X), op("aten::pow", ONE), op("aten::mul", ONE),
    op("aten::mul", ONE, ONE), op("aten::div", X), op("aten::pow", X), op("aten::mul", X),
    op("aten::mul", X, X), op("aten::add", X, X),
]  # fmt: skip


@pytest.mark.parametrize(
    ("captured", "executed"),
    [
        (op("aten._fused_rms_norm.default", X, W), FORWARD),
        (op("aten._fused_rms_norm_backward.default", X, X, ONE, W), BACKWARD),
        (op("aten._fused_rms_norm_backward.default", X, ONE, X, W), BACKWARD),
    ],
)
def test_a_norm_is_taken_apart_into_all_of_its_parts(captured, executed):
    assert reasons([captured], executed) == {DECOMPOSED: (1, len(executed))}
    assert reasons([captured], executed[1:]) == {}
    # One that runs is not explained by a norm that has its parts already.
    more = [*executed, op("aten::pow", X)]
    assert reasons([captured], more) == {DECOMPOSED: (1, len(executed))}


def test_casts_around_a_norm_are_parts_of_it_if_it_is_not_in_float32():
    casts = [op("aten::_to_copy", X), op("aten::_to_copy", X), op("aten::_to_copy", W)]
    plain = op("aten._fused_rms_norm.default", X, W)
    assert reasons([plain], FORWARD + casts) == {DECOMPOSED: (1, len(FORWARD))}
    half = op("aten._fused_rms_norm.default", X, W, dtype="bf16")
    assert reasons([half], FORWARD + casts) == {DECOMPOSED: (1, len(FORWARD) + 3)}


def test_gloo_copies_as_often_as_its_collectives_need():
    """An all-gather of 8 elements by 2 ranks is copied in 2 parts; a reduce-scatter of 16 elements
    in a copy of 16, which may be divided, and of which 8 are the rank's."""
    pairs = [collective(OpClass.ALL_GATHER, 8), collective(OpClass.REDUCE_SCATTER, 16)]
    ops = [op("aten::copy_", (8,), (8,))] * 4 + [op("aten::clone", (16,))] * 2
    ops += [op("aten::div_", (4, 4))] * 2
    matching = of_host(pairs, [*pairs, *ops])
    for n in range(2):
        matching.pair(n, n, Evidence.SIZES)
    on_own_threads(matching)
    on_program_threads(matching)
    assert matching.without_executed == [2 + n for n in (0, 1, 2, 4, 6)]


def test_ops_on_gloos_threads_take_no_partner_of_the_programs_ops():
    gather = collective(OpClass.ALL_GATHER, 8)
    captured = [gather, op("aten.copy_.default", (8,), (8,))]
    executed = [gather, op("aten::copy_", (8,), (8,)), op("aten::copy_", (8,), (8,))]
    found = match(of_host(captured, executed, threads=[0, 1, 0]))
    assert [(i, j) for i, j, _ in found.pairs] == [(0, 0), (1, 2)]
    assert found.explained == {GLOO: 1}
    assert not found.unmatched_captured
    assert not found.unmatched_executed
    # On a device nothing is gloo's.
    found = match(of_host(captured, executed, "gpu", threads=[0, 1, 0]))
    assert list(found.unmatched_executed) == [2]


@pytest.mark.parametrize(
    ("kind", "named"), [(OpClass.ALL_REDUCE, "all-reduces"), (OpClass.ALL_GATHER, "all-gathers")]
)
def test_combined_collectives_are_identified_by_their_kind(kind, named):
    single = [collective(kind, 8), collective(kind, 16)]
    operands = (((8,), "f32"), ((16,), "f32"))
    both = OpFacts(kind, str(kind), operands, (32, 64), "f32", (0, 1))
    found = match(Matching(single, [both], rules_for([both], recorded=False, backend="cpu")))
    assert found.explained == {f"{named} that the compiler combined into one": 2}
    assert f"{named} that the compiler combined into one" == COMBINED[kind]


def test_functional_all_reduces_copy_once_each():
    reduce = collective(OpClass.ALL_REDUCE, 64)
    copies = [op("aten::clone", (64,)), op("aten::clone", (64,)), op("aten::clone", (32,))]
    assert reasons([reduce], [reduce, *copies], [(0, 0)]) == {FUNCTIONAL: (0, 1)}


def test_single_numbers_are_the_hosts_and_tensors_are_not():
    numbers = [op("aten::_foreach_add_", (), ()), op("aten::eq", (2, 2), dtype="i32")]
    assert reasons([], [*numbers, op("aten::add_", (2, 2)), op("aten::eq", (2, 2))]) == {
        NUMBERS: (0, 2)
    }


def test_heads_are_repeated_for_kernels_that_know_no_groups():
    ours = op("aten._scaled_dot_product_efficient_attention.default", (1, 8, 32, 16))
    theirs = op("aten::_scaled_dot_product_flash_attention_for_cpu", (1, 8, 32, 16), (1, 4, 32, 16))
    repeated = op("aten.clone.default", (1, 4, 2, 32, 16))
    joined = op("aten::clone", (1, 32, 8, 16))
    other = op("aten.clone.default", (1, 4, 3, 32, 16))
    found = reasons([ours, repeated, repeated, other], [theirs, joined], [(0, 0)])
    assert found == {HEADS: (2, 1)}


def test_attention_with_positions_first_is_copied_around_a_kernel():
    """Results of ``MultiheadAttention`` are (positions, batch, heads, width)."""
    ours = op("aten._scaled_dot_product_efficient_attention.default", (2, 4, 10, 8))
    theirs = op("aten::_scaled_dot_product_flash_attention_for_cpu", (2, 4, 10, 8))
    copies = [op("aten.clone.default", shape) for shape in ((10, 2, 4, 8), (10, 8, 8), (9, 8, 8))]
    assert reasons([ours, *copies], [theirs], [(0, 0)]) == {HEADS: (2, 0)}


def test_a_reduction_in_another_type_is_one_that_autocast_cast():
    captured = op("aten._log_softmax.default", (2, 16), dtype="bf16")
    assert reasons([captured], [op("aten::_log_softmax", (2, 16))]) == {CAST: (1, 1)}
    assert reasons([captured], [op("aten::_log_softmax", (2, 8))]) == {}


def test_heavy_ops_are_never_explained_away():
    product = op("aten::mm", (8, 8), (8, 8))
    assert reasons([product], [op("aten::mm", (8, 8), (8, 4))]) == {}


def test_a_group_that_the_trace_tells_must_be_the_captured_one():
    """Even where the trace does not tell the groups of other collectives."""
    captured = [collective(OpClass.ALL_REDUCE, 8), collective(OpClass.ALL_REDUCE, 8)]
    executed = [replace(captured[0], group=None), replace(captured[1], group=(0, 2))]
    found = match(of_host(captured, executed))
    assert [(i, j) for i, j, _ in found.pairs] == [(0, 0)]
    assert (list(found.unmatched_captured), list(found.unmatched_executed)) == ([1], [1])


@pytest.mark.parametrize(("peer", "paired"), [(3, 1), (2, 0), (-1, 1)])
def test_messages_go_to_the_captured_rank_where_the_trace_tells_it(peer, paired):
    sent = replace(collective(OpClass.SEND, 8, None), peer=3)
    executed = replace(sent, peer=peer)
    assert len(match(of_host([sent], [executed])).pairs) == paired


@pytest.mark.parametrize(
    ("a", "b", "product"),
    [
        ((64, 32), (4, 32, 16), (1, 64, 16, 32)),  # runs of 64 rows, each with one of 4 matrices
        ((32, 64), (64, 16), (1, 32, 16, 64)),  # sums over runs of 64
        ((4, 8, 32), (4, 32, 16), (4, 8, 16, 32)),
    ],
)
def test_a_grouped_product_is_one_of_all_rows(a, b, product):
    given = [[(a, "bf16")], [(b, "bf16")], [((4,), "i32")]]
    facts = op_facts("aten::_grouped_mm", given)
    assert (facts.kind, facts.dtype, facts.gemms) == (OpClass.GEMM, "bf16", (product,))


@pytest.mark.parametrize(
    ("facts", "elements", "reason"),
    [
        (op_facts("c10d::barrier", [[]]), 1, BARRIER),
        (op_facts("c10d::reduce_", [[((8,), "f32")]]), 8, ROOTED),
    ],
)
def test_collectives_that_captures_write_as_all_reduces(facts, elements, reason):
    captured = replace(collective(OpClass.ALL_REDUCE, elements, None), name="all_reduce")
    found = match(of_host([captured], [facts]))
    assert len(found.pairs) == 1
    assert found.explained == {reason: 1}


def heavy(name, kind, *shapes, gemms=None):
    """An op that must match."""
    return OpFacts(kind, name, tuple((shape, "f32") for shape in shapes), dtype="f32", gemms=gemms)


FLASH = "aten._flash_attention_backward.default"
CUDNN = "aten._scaled_dot_product_cudnn_attention_backward.default"
LIBRARYS, SOUND, TAPS = "aten.mkldnn_convolution.default", (4, 4, 12), (16, 4, 3)
IMAGES, GRADIENT, WEIGHT, KEYS = (2, 3, 32, 32), (2, 8, 16, 16), (8, 3, 7, 7), (1, 8, 32, 8)


@pytest.mark.parametrize(
    ("captured", "listed", "agrees"),
    [
        # Weights of 8x3x7x7: a product of 3 * 7 * 7 by 8, whose sum is over 2 * 16 * 16.
        (heavy("aten.convolution_backward.default", OpClass.CONVOLUTION, IMAGES, GRADIENT,
               gemms=((1, 147, 8, 512),)), (GRADIENT, IMAGES, WEIGHT), True),
        (heavy("aten.convolution_backward.default", OpClass.CONVOLUTION, IMAGES, GRADIENT,
               gemms=((1, 147, 8, 512),)), (GRADIENT, IMAGES, (8, 3, 9, 9)), False),
        (heavy(FLASH, OpClass.ATTENTION, KEYS), (KEYS, KEYS), True),
        (heavy(FLASH, OpClass.ATTENTION, KEYS), (KEYS, (2, *KEYS[1:])), False),
        (heavy(FLASH, OpClass.ATTENTION, KEYS), (KEYS, (1, 2, 32, 8)), True),  # 4 heads a group
        (heavy(FLASH, OpClass.ATTENTION, KEYS), (KEYS, (1, 3, 32, 8)), False),
        # The log-sum-exp of cuDNN's has a last dim of 1, the CPU's has three dims.
        (heavy(CUDNN, OpClass.ATTENTION, KEYS, (1, 8, 32, 1)), (KEYS, (1, 8, 32)), True),
        (heavy(CUDNN, OpClass.ATTENTION, KEYS, (1, 8, 32, 1)), (KEYS, (1, 2, 32, 8)), True),
        (heavy(LIBRARYS, OpClass.CONVOLUTION, SOUND, TAPS),
         ((4, 4, 1, 12), (16, 4, 1, 3)), True),  # over one dim as over two
        (heavy(LIBRARYS, OpClass.CONVOLUTION, SOUND, TAPS), ((4, 4, 1, 12), (16, 4, 1, 5)), False),
        (heavy(LIBRARYS, OpClass.CONVOLUTION, SOUND, TAPS), ((4, 4, 2, 12), (16, 4, 1, 3)), False),
    ],
)  # fmt: skip
def test_ops_that_must_match_list_nothing_that_is_not_theirs(captured, listed, agrees):
    name = "aten::" + captured.name.split(".")[1]
    executed = heavy(name, captured.kind, *listed)
    found = match(of_host([captured], [executed]))
    assert bool(found.pairs) == agrees


@pytest.mark.parametrize("explained", [0, 6])
def test_an_explained_difference_is_not_evidence_that_a_trace_is_of_the_step(explained):
    ours = [heavy("dot", OpClass.GEMM, gemms=((1, 8, 8, 8),))] * 8
    theirs = [heavy("dot", OpClass.GEMM, gemms=((1, 9, 9, 9),))] * 8
    found = of_host(ours, theirs)
    found.without_captured = list(range(explained))
    with pytest.raises(FlintError, match="of another model"):
        check_alike(SimpleNamespace(path="trace"), found)


@pytest.mark.parametrize(
    ("theirs", "what"),
    [
        (range(8, 0, -1), "8 are the same ones in another order"),
        ([*range(1, 9)] * 5, "8 of the captured ones are among those in the trace"),
        (range(1, 5), "4 of those in the trace are among the captured ones"),
        (range(11, 19), "of another model"),
        (range(1, 4), "of another model"),  # too few to tell
    ],
)
def test_a_step_that_is_cut_elsewhere_is_not_told_as_another_model(theirs, what):
    """Products of other sizes each: 8 captured ones, none of which has a partner."""
    ours = [heavy("dot", OpClass.GEMM, gemms=((1, size, 8, 4),)) for size in range(1, 9)]
    ran = [heavy("mm", OpClass.GEMM, gemms=((1, 8, size, 4),)) for size in theirs]
    with pytest.raises(FlintError, match=what):
        check_alike(SimpleNamespace(path="trace"), of_host(ours, ran))


def test_a_step_of_which_every_op_is_explained_is_not_another_one():
    ours = [heavy("dot", OpClass.GEMM, gemms=((1, 8, 8, 8),))] * 8
    theirs = [heavy("dot", OpClass.GEMM, gemms=((1, 9, 9, 9),))] * 8
    found = of_host(ours, theirs)
    found.explain("reason", list(range(8)), list(range(8)))
    check_alike(SimpleNamespace(path="trace"), found)


def test_of_a_step_of_which_nothing_ran_nothing_is_concluded():
    ours = [heavy("dot", OpClass.GEMM, gemms=((1, 8, 8, 8),))]
    found = of_host(ours, [])
    found.explain("reason", [0], [])
    with pytest.raises(FlintError, match="can be compared"):
        check_alike(SimpleNamespace(path="trace"), found)
