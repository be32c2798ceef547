"""Groups and permutations in words."""

import numpy as np
import pytest

from flint.mesh.group_names import group_name, permutation_name
from flint.mesh.groups import StridedGroups, TableGroups, along_axes, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation

MESH = Mesh((4, 2, 8), ("stage", "data", "model"))


@pytest.mark.parametrize(
    ("axes", "name"),
    [
        (("model",), "model"),
        (("data",), "data"),
        (("stage", "model"), "stage+model"),
        (("data", "model"), "data+model"),
        (("model", "data"), "model+data"),
    ],
)
def test_groups_along_axes_have_the_names_of_the_axes(axes: tuple[str, ...], name: str) -> None:
    assert group_name(along_axes(MESH, axes), MESH) == name


def test_one_group_of_all_is_everybody() -> None:
    assert group_name(everybody(64), MESH) == "all ranks"


def test_all_of_a_mesh_with_one_axis_is_that_axis() -> None:
    assert group_name(everybody(8), Mesh((8,), ("data",))) == "data"
    assert group_name(everybody(8), Mesh((1, 8, 1), ("stage", "data", "model"))) == "data"


def test_groups_of_one_are_nobody_else() -> None:
    assert group_name(StridedGroups(64, ()), MESH) == "one rank"


def test_a_part_of_an_axis_is_written_as_shardy_writes_sub_axes() -> None:
    # Ranks 0..3 are the inner 4 of model's 8: what stands before them in the axis has size 2.
    assert group_name(from_table(64, np.arange(64).reshape(16, 4)), MESH) == "model:(2)4"
    # Ranks 0 and 4 differ in the outer part of model, which nothing stands before.
    outer = np.array([[8 * i + j, 8 * i + j + 4] for i in range(8) for j in range(4)])
    assert group_name(from_table(64, outer), MESH) == "model:(1)2"


def test_groups_that_fit_no_axes_are_counted() -> None:
    table = TableGroups(64, np.array([[0, 1, 2], [7, 9, 40]]))
    assert group_name(table, MESH) == "table of 2 groups"
    alone = TableGroups(64, np.array([[7, 9, 40]]))
    assert group_name(alone, MESH) == "table of 1 group"


def _shift(delta: int, wraps: bool) -> np.ndarray:
    ranks = np.arange(64)
    place = ranks % 8 + delta
    inside = np.ones(64, bool) if wraps else (place >= 0) & (place < 8)
    return np.stack([ranks, ranks - ranks % 8 + place % 8], axis=1)[inside]


def test_a_ring_names_its_axis_and_step() -> None:
    assert permutation_name(permutation(64, _shift(1, True)), MESH) == "model (+1, ring)"
    assert permutation_name(permutation(64, _shift(-1, True)), MESH) == "model (-1, ring)"


def test_an_open_shift_is_a_chain() -> None:
    assert permutation_name(permutation(64, _shift(1, False)), MESH) == "model (+1, chain)"


@pytest.mark.parametrize(("source", "target"), [(0, 1), (2, 1), (1, 3)])
def test_a_hop_between_two_places_of_an_axis_names_them(source: int, target: int) -> None:
    ranks = np.arange(64)
    sources = ranks[ranks // 16 == source]
    pairs = np.stack([sources, sources + 16 * (target - source)], axis=1)
    assert permutation_name(permutation(64, pairs), MESH) == f"stage {source} -> {target}"
    assert "table" in permutation_name(permutation(64, pairs[1:]), MESH)


def test_any_other_permutation_is_counted() -> None:
    pairs = np.array([[0, 5], [5, 9], [9, 0]])
    assert permutation_name(permutation(64, pairs), MESH) == "table of 3 pairs"
