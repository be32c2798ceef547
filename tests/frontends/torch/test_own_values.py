"""Numbers that follow from the own rank: what Python computes, rank by rank."""

from __future__ import annotations

import math
import operator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("torch")

import numpy as np

from flint.frontends.torch import context
from flint.frontends.torch.context import Capture
from flint.frontends.torch.shims.own_values import OwnRank, OwnText, everywhere
from flint.frontends.torch.shims.places import note_families

WORLD = 12
TWO = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv,
    operator.and_, operator.or_, operator.xor, operator.rshift, operator.lshift, operator.pow,
    divmod, lambda x, y: y - x,
)  # fmt: skip
DIVIDED = (
    lambda x, y: y // (x + 1), lambda x, y: y % (x + 1), lambda x, y: divmod(y, x + 1)[1],
)  # fmt: skip
ONE = (operator.neg, operator.pos, abs, operator.invert, round, math.floor, math.ceil, math.trunc)
COMPARED = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
NUMBERS = st.one_of(st.integers(1, 9), st.sampled_from([8, 2**40, 2**63 - 1, 2**64, 0x9E3779B9]))


@pytest.fixture(autouse=True)
def begun():
    before = context.capture()
    yield context.begin(Capture((WORLD,)))
    context.begin(before)


def ranks():
    """The own rank 3 of 12."""
    return OwnRank(3, np.arange(WORLD))


def asked():
    """Which ranks are answered yes, or how values differ, of all that was asked."""
    return [item.kinds().tolist() for item in context.capture().evidence.all()]


@given(st.sampled_from(TWO + DIVIDED), NUMBERS, st.sampled_from(TWO + DIVIDED), st.integers(1, 7))
def test_arithmetic_is_that_of_python_on_every_rank(first, one, second, other):
    bits = (operator.and_, operator.or_, operator.xor, operator.rshift, operator.lshift)
    assume(first is not operator.truediv or second not in bits)
    small = first in (operator.lshift, operator.pow) or second in (operator.lshift, operator.pow)
    one = one % 10 if small else one
    firsts = [first(rank, one) for rank in range(WORLD)]
    # A rank on which the program would divide by zero has no value to compare.
    assume(second not in DIVIDED or -1 not in firsts)
    made = first(ranks(), one)
    made = second(made[0] if isinstance(made, tuple) else made, other)
    wanted = [second(part[0] if isinstance(part, tuple) else part, other) for part in firsts]
    for item, values in zip(
        made if isinstance(made, tuple) else [made],
        zip(*wanted, strict=True) if isinstance(made, tuple) else [wanted],
        strict=True,
    ):
        assert item == values[3]
        assert np.asarray(everywhere(item)).tolist() == pytest.approx(list(values), rel=1e-12)


@given(st.sampled_from(ONE), st.integers(-5, 5))
def test_so_are_functions_of_one_number(function, shift):
    for divided in (False, True):
        if divided and function is operator.invert:
            continue

        def number(rank, divided=divided):
            return (rank + shift) / 4 if divided else rank + shift

        wanted = [function(number(rank)) for rank in range(WORLD)]
        made = function(number(ranks()))
        assert made == wanted[3] and everywhere(made).tolist() == wanted


@given(st.sampled_from(COMPARED), st.integers(-1, 12), st.booleans())
def test_a_comparison_is_a_question_that_every_rank_is_asked(compare, number, turned):
    context.begin(Capture((WORLD,)))
    if turned:
        compare(number, ranks())
        wanted = [compare(number, rank) for rank in range(WORLD)]
    else:
        compare(ranks(), number)
        wanted = [compare(rank, number) for rank in range(WORLD)]
    assert asked() == ([list(map(int, wanted))] if len(set(wanted)) == 2 else [])


def test_truth_is_a_question():
    assert ranks() and asked() == [[0] + [1] * 11]


def test_membership_in_lists_is_a_question_for_each_until_one_is_found():
    assert ranks() in [1, 3, 5]
    assert asked() == [[int(rank == at) for rank in range(WORLD)] for at in (1, 3)]


@given(
    st.one_of(
        st.lists(st.integers(-1, 15)),
        st.tuples(st.integers(0, 15)),
        st.frozensets(st.integers(0, 15)),
        st.builds(range, st.integers(0, 9), st.integers(0, 20), st.integers(1, 3)),
    )
)
def test_a_followed_membership_tells_all_members_at_once(container):
    context.begin(Capture((WORLD,)))
    assert ranks().followed_among(container) == (3 in container)
    members = tuple(rank for rank in range(WORLD) if rank in container)
    found = list(context.capture().groups_asked.values())
    assert found == ([{members: None}] if members else []) and not asked()


def test_a_membership_among_ranks_that_follow_from_the_own_one_is_a_question_for_each():
    own = ranks()
    assert own.followed_among([own - 1, own])
    assert not asked() and not context.capture().groups_asked  # the same answers on every rank


def test_groups_that_are_translates_do_not_tell_ranks_apart_and_others_do():
    """On a mesh of 3 by 4, its rows; then the ends of its columns."""
    context.begin(Capture((3, 4)))
    for first in range(0, WORLD, 4):
        ranks().followed_among(range(first, first + 4))
    note_families()
    found = context.capture().evidence.all()
    (each,) = [item.kinds().reshape(3, 4) for item in found if item.close]
    assert len(found) == 1 and (each == each[:, :1]).all() and len({*each[:, 0].tolist()}) == 3
    for ends in ([0, 8], [1, 9], [2, 10], [3, 11]):
        ranks().followed_among(ends)
    note_families()
    found = [item.kinds() for item in context.capture().evidence.all() if not item.close]
    assert [(item == item[0]).tolist() for item in found] == [[True] * 4 + [False] * 4 + [True] * 4]


@pytest.mark.parametrize("use", [lambda x: x in {1, 5}, int, {0: "a", 3: "b"}.get])
def test_few_values_that_leave_tell_ranks_apart_by_each(use):
    use(ranks() % 4)
    assert [rank % 4 for rank in range(WORLD)] in asked()
    assert not context.capture().unseen


def test_a_text_is_compared_as_the_number_that_it_is():
    assert (
        OwnText("3", "RANK", np.arange(WORLD)) == "3"
        and OwnText("3", "RANK", np.arange(WORLD)) != "03"
    )
    assert asked() == [[int(rank == 3) for rank in range(WORLD)]]


def test_of_many_values_that_leave_the_usual_ones_are_distinguished_and_the_rest_is_unseen():
    context.begin(Capture((64,)))
    int(OwnText("7", "RANK", np.arange(64)))
    (text,) = context.capture().unseen
    assert "read from the environment (RANK)" in text and "test_own_values.py" in text
    odd = {tuple(np.flatnonzero(item)) for item in asked()}
    assert odd == {(0,), (63,), tuple(range(0, 64, 8))}


def test_a_rank_pickles_and_hashes_as_the_number_that_it_is():
    import pickle

    assert pickle.loads(pickle.dumps(ranks())) == 3 and hash(ranks()) == hash(3)


def test_types_equal_those_of_plain_numbers():
    """As configuration libraries check them: ``type(value) in (int, str)``."""
    text = OwnText("3", "RANK", np.arange(WORLD))
    for value, kind, other in ((ranks(), int, str), (ranks() / 2, float, int), (text, str, int)):
        assert type(value) in {kind} and operator.eq(type(value), kind)
        assert type(value) not in {other} and operator.ne(type(value), other)
        assert {kind: "plain"}[type(value)] == "plain"
