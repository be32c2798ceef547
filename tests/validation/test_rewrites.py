"""Buffers side by side, and what of a chain of all-reduces may run as one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.validation.rewrites.all_reduce_chains import _product
from flint.validation.rewrites.all_reduces import _adding_up

MESH = Mesh((2, 2, 2), ("a", "b", "c"))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_sizes_that_are_found_add_up_and_are_found_if_there_are_some(sizes, data):
    some = data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))
    wanted = sum(sizes[place] for place in some)
    found = _adding_up(sizes, wanted, False)
    assert found is not None
    assert sum(sizes[place] for place in found) == wanted


@given(st.lists(st.integers(2, 40).map(lambda n: 2 * n), max_size=12))
def test_what_does_not_add_up_is_not_found(sizes):
    assert _adding_up(sizes, 7, False) is None
    assert _adding_up(sizes, 7, True) is None


def test_the_group_of_a_chain_is_everybody_whose_values_meet():
    a, b, c = (along_axes(MESH, (axis,)) for axis in "abc")
    for rank in range(8):
        # Worked out by running the reduction: each rank's value is a power of two.
        values = 2 ** np.arange(8).reshape(2, 2, 2)
        for groups, axes in (((a,), (0,)), ((a, b), (0, 1)), ((c, a, b), (2, 0, 1))):
            summed = values
            for axis in axes:
                summed = np.broadcast_to(summed.sum(axis, keepdims=True), (2, 2, 2))
            told = int(summed.reshape(-1)[rank])
            assert _product(groups, rank) == tuple(n for n in range(8) if told >> n & 1)


def test_a_chain_over_the_same_axis_twice_is_not_a_single_all_reduce():
    a, whole = along_axes(MESH, ("a",)), along_axes(MESH, ("a", "b"))
    assert _product((a, a), 0) == ()
    assert _product((a, whole), 3) == ()
