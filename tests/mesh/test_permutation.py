"""Permutations against the list of pairs that they are made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.mesh.permutation import Shift, permutation, target_of


@st.composite
def shifts(draw: st.DrawFn) -> tuple[int, Shift]:
    """An axis of a mesh, and a shift along it."""
    size = draw(st.integers(2, 8))
    stride = draw(st.integers(1, 6))
    world = size * stride * draw(st.integers(1, 4))
    delta = draw(st.integers(1 - size, size - 1).filter(bool))
    return world, Shift(size, stride, delta, draw(st.booleans()))


def pairs_along_axis(world: int, shift: Shift) -> list[tuple[int, int]]:
    """The pairs of a shift, coordinate by coordinate."""
    pairs = []
    for rank in range(world):
        outer, rest = divmod(rank, shift.size * shift.stride)
        place, inner = divmod(rest, shift.stride)
        moved = place + shift.delta
        if shift.wraps or 0 <= moved < shift.size:
            moved %= shift.size
            pairs.append((rank, (outer * shift.size + moved) * shift.stride + inner))
    return pairs


@given(shifts())
def test_every_shift_along_an_axis_is_recognised(case: tuple[int, Shift]) -> None:
    world, shift = case
    made = permutation(world, np.array(pairs_along_axis(world, shift)))
    assert made.shift is not None
    assert made.shift.wraps == shift.wraps
    assert np.array_equal(target_of(world, made.shift), made.target)


@given(shifts())
def test_target_of_a_shift_is_its_pairs(case: tuple[int, Shift]) -> None:
    world, shift = case
    target = target_of(world, shift)
    assert [(r, int(t)) for r, t in enumerate(target) if t >= 0] == pairs_along_axis(world, shift)


@given(
    st.integers(1, 24).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.integers(0, n)))
)
def test_pairs_come_back(case: tuple[list[int], int]) -> None:
    targets, kept = case
    pairs = list(enumerate(targets))[:kept]
    made = permutation(len(targets), np.array(pairs).reshape(-1, 2))
    assert [(r, int(t)) for r, t in enumerate(made.target) if t >= 0] == pairs
    assert sorted((int(s), r) for r, s in enumerate(made.source) if s >= 0) == sorted(pairs)
    assert made.pairs == kept
    if made.shift is not None:
        assert np.array_equal(target_of(made.world, made.shift), made.target)


def test_ring_both_ways_round() -> None:
    up = permutation(8, np.array([(i, (i + 1) % 8) for i in range(8)]))
    down = permutation(8, np.array([(i, (i - 1) % 8) for i in range(8)]))
    assert up.shift == Shift(8, 1, 1, wraps=True)
    assert down.shift == Shift(8, 1, -1, wraps=True)


def test_open_chain_of_pipeline_stages() -> None:
    made = permutation(8, np.array([(i, i + 2) for i in range(6)]))
    assert made.shift == Shift(4, 2, 1, wraps=False)


def test_exchange_of_neighbours() -> None:
    made = permutation(4, np.array([(0, 1), (1, 0), (2, 3), (3, 2)]))
    assert made.shift == Shift(2, 1, 1, wraps=True)


@pytest.mark.parametrize("pairs", [[], [(0, 0), (1, 1)], [(0, 3), (3, 0)]])
def test_what_is_not_a_shift(pairs: list[tuple[int, int]]) -> None:
    assert permutation(8, np.array(pairs).reshape(-1, 2)).shift is None


@pytest.mark.parametrize("pairs", [[(0, 1), (0, 2)], [(0, 2), (1, 2)], [(0, 8)], [(-1, 0)]])
def test_contradictory_pairs_are_errors(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(FlintError):
        permutation(8, np.array(pairs))
