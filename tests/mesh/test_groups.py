"""Symbolic groups against tables of ranks made with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.mesh.group_names import axes_of
from flint.mesh.groups import (
    Groups,
    StridedGroups,
    TableGroups,
    along_axes,
    everybody,
    from_iota,
    from_table,
)
from flint.mesh.mesh import Mesh

Rows = NDArray[np.int64]

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@st.composite
def meshes_and_axes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A mesh shape, and some of its axes in some order."""
    shape = draw(SHAPES)
    axes = draw(st.permutations(range(len(shape))))
    return tuple(shape), tuple(axes[: draw(st.integers(0, len(shape)))])


def rows_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> Rows:
    """Groups along ``axes``, members in the order of the axes, groups by lowest member."""
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    ranks = np.arange(math.prod(shape)).reshape(shape).transpose([*rest, *axes])
    return ranks.reshape(-1, math.prod(shape[axis] for axis in axes))


def assert_says(groups: Groups, rows: Rows) -> None:
    """All that ``groups`` answers agrees with ``rows`` (padded with -1, ordered as the table)."""
    assert groups.table().tolist() == rows.tolist()
    assert groups.count == len(rows)
    assert groups.size == rows.shape[1]
    ranks = np.arange(groups.world)
    number, position, sizes = (
        groups.number(ranks),
        groups.position(ranks),
        groups.group_size(ranks),
    )
    seen = 0
    for row_number, padded in enumerate(rows.tolist()):
        row = [rank for rank in padded if rank >= 0]
        for place, rank in enumerate(row):
            assert (number[rank], position[rank], sizes[rank]) == (row_number, place, len(row))
            assert groups.members(rank).tolist() == row
            seen += 1
    assert (number >= 0).sum() == seen


@given(meshes_and_axes())
def test_along_mesh_axes(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, axes = case
    names = tuple(f"a{i}" for i in range(len(shape)))
    mesh = Mesh(shape, names)
    groups = along_axes(mesh, tuple(names[axis] for axis in axes))
    assert_says(groups, rows_along(shape, axes))


@given(meshes_and_axes())
def test_axes_are_found_again(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, axes = case
    names = tuple(f"a{i}" for i in range(len(shape)))
    mesh = Mesh(shape, names)
    groups = along_axes(mesh, tuple(names[axis] for axis in axes))
    found = axes_of(groups, mesh)
    assert found is not None
    assert found == tuple(names[axis] for axis in axes if shape[axis] > 1)


@given(meshes_and_axes())
def test_a_dense_table_is_interned_as_strides(
    case: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    shape, axes = case
    rows = rows_along(shape, axes)
    groups = from_table(rows.size, rows)
    assert isinstance(groups, StridedGroups)
    assert_says(groups, rows)


@given(meshes_and_axes(), st.data())
def test_order_of_groups_in_a_table_does_not_matter(
    case: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    rows = rows_along(*case)
    shuffled = rows[data.draw(st.permutations(range(len(rows))))]
    assert from_table(rows.size, shuffled) == from_table(rows.size, rows)


@given(meshes_and_axes())
def test_equal_partitions_are_equal_whatever_mesh_they_come_from(
    case: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    shape, axes = case
    names = tuple(f"a{i}" for i in range(len(shape)))
    by_axes = along_axes(Mesh(shape, names), tuple(names[axis] for axis in axes))
    by_table = from_table(math.prod(shape), rows_along(shape, axes))
    assert by_axes == by_table
    assert hash(by_axes) == hash(by_table)


@st.composite
def iotas(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]:
    reshape = tuple(draw(SHAPES))
    world = math.prod(reshape)
    size = draw(st.sampled_from([d for d in range(1, world + 1) if world % d == 0]))
    return (world // size, size), reshape, tuple(draw(st.permutations(range(len(reshape)))))


@given(iotas())
def test_iota_form(case: tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]) -> None:
    shape, reshape, transpose = case
    rows = np.arange(math.prod(reshape)).reshape(reshape).transpose(transpose).reshape(shape)
    groups = from_iota(shape, reshape, transpose)
    if isinstance(groups, StridedGroups):
        rows = rows[np.argsort(rows.min(axis=1))]
    assert_says(groups, rows)


@st.composite
def ragged_tables(draw: st.DrawFn) -> tuple[int, Rows]:
    """Any ranks in any groups, some ranks in none."""
    world = draw(st.integers(1, 12))
    ranks = draw(st.permutations(range(world)))
    cuts = sorted(draw(st.sets(st.integers(1, world), max_size=4)))
    pieces = [ranks[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    longest = max((len(piece) for piece in pieces), default=1)
    rows = [piece + [-1] * (longest - len(piece)) for piece in pieces]
    return world, np.array(rows, dtype=np.int64).reshape(-1, longest)


@given(ragged_tables())
def test_any_table(case: tuple[int, Rows]) -> None:
    world, rows = case
    groups = from_table(world, rows)
    if isinstance(groups, StridedGroups):
        rows = rows[np.argsort(rows.min(axis=1))]
    assert_says(groups, rows)


@given(meshes_and_axes())
def test_complement_of_a_partition(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, axes = case
    rows = rows_along(shape, axes)
    groups = from_table(rows.size, rows)
    assert isinstance(groups, StridedGroups)
    other = groups.complement()
    assert other.size * groups.size == rows.size
    ranks = np.arange(rows.size)
    pairs = set(zip(groups.number(ranks).tolist(), other.number(ranks).tolist(), strict=True))
    assert len(pairs) == rows.size


def test_a_million_ranks_need_no_table() -> None:
    mesh = Mesh((1 << 17, 8), ("data", "model"))
    groups = along_axes(mesh, ("data",))
    assert groups.dims == ((1 << 17, 8),)
    assert groups.members(1 << 19)[:2].tolist() == [0, 8]


def test_everybody_is_one_group() -> None:
    assert_says(everybody(6), np.arange(6)[None, :])
    assert_says(everybody(1), np.zeros((1, 1), dtype=np.int64))


def test_groups_that_split_an_axis_unevenly_are_a_table() -> None:
    groups = from_table(4, np.array([[0, 3], [1, 2]]))
    assert isinstance(groups, TableGroups)


@pytest.mark.parametrize("rows", [[[0, 1], [1, 2]], [[0, 9]]])
def test_contradictory_tables_are_errors(rows: list[list[int]]) -> None:
    with pytest.raises(FlintError):
        from_table(4, np.array(rows))


def test_iota_of_another_number_of_ranks_is_an_error() -> None:
    with pytest.raises(FlintError):
        from_iota((2, 3), (2, 4), (0, 1))


def test_unknown_axis_is_an_error() -> None:
    with pytest.raises(FlintError):
        along_axes(Mesh((4,), ("data",)), ("model",))
