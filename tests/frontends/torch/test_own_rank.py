"""What only some rank does is captured, wherever in the mesh that rank is."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402
from tests.support.shared import quick, quick_rows  # noqa: E402

AXES = ("dp", "tp")


def setup(mesh):
    return mesh, torch.randn(4, 4, device=mesh.device_type)


def captured(step, shape):
    return flint.capture(step, mesh=shape, axes=AXES[: len(shape)], setup=setup).capture()


def products(workload):
    """Matrix products on every rank."""
    counts = np.zeros(workload.mesh.size, int)
    for program in workload.programs:
        counts[program.ranks.array()] += sum(".mm." in node.op for node in program.graph)
    return counts.tolist()


def by_rank(mesh, x):
    x = x @ x
    if dist.get_rank() == 1:
        x = x @ x
    return x


def by_place(mesh, x):
    if mesh["tp"].get_local_rank() != 1 or mesh.get_coordinate()[0] % 4 != 2:
        return x @ x
    return x @ x @ x


def by_environment(mesh, x):
    return x @ x @ x if int(os.environ["RANK"]) == 1 else x @ x


def by_table(mesh, x):
    return x @ x @ x if dist.get_rank() in {5} else x @ x


def by_many_comparisons(mesh, x):
    if any(dist.get_rank() == rank for rank in range(40)) and dist.get_rank() == 37:
        return x @ x @ x
    return x @ x


def to_rank_one(mesh, x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    root = dist.get_rank() == 1
    dist.gather(x, parts if root else None, dst=1)
    return parts[0] @ x if root else x @ x @ x


@pytest.mark.parametrize("shape", quick([(4,), (4, 2), (64, 64)], (4, 2)))
def test_what_only_rank_one_does_is_seen(shape):
    counts = products(captured(by_rank, shape))
    assert counts == [1, 2] + [1] * (len(counts) - 2)


def test_a_place_in_the_mesh_is_a_question_about_the_rank():
    counts = products(captured(by_place, (8, 2)))
    # Of (i, 1) those with i % 4 == 2: (2, 1) and (6, 1).
    assert [rank for rank, count in enumerate(counts) if count == 2] == [2 * 2 + 1, 6 * 2 + 1]


def by_group(mesh, x):
    if mesh.get_group("tp").rank() == 1 and dist.group.WORLD.rank() > 8:
        return x @ x @ x
    return x @ x


def by_node(mesh, x):
    return x @ x @ x if dist.get_node_local_rank() == 3 else x @ x


def test_a_place_in_a_group_is_a_question_about_the_rank():
    counts = products(captured(by_group, (8, 2)))
    assert [rank for rank, count in enumerate(counts) if count == 2] == [9, 11, 13, 15]


def test_a_place_in_a_node_is_a_question_about_the_rank():
    """Nodes of eight, as launchers say that start eight processes on each."""
    counts = products(captured(by_node, (32, 2)))
    assert [rank for rank, count in enumerate(counts) if count == 2] == list(range(3, 64, 8))


@pytest.mark.parametrize(
    ("step", "world", "odd"),
    quick_rows([(by_environment, 4, 1), (by_table, 8, 5)], (by_environment, 4, 1)),
)
def test_few_ranks_are_all_recorded_where_questions_are_not_seen(step, world, odd):
    counts = products(captured(step, (world,)))
    assert [rank for rank, count in enumerate(counts) if count == 2] == [odd]


def test_places_of_unseen_questions_are_reported_for_many_ranks():
    workload = captured(by_environment, (64,))
    (text,) = [text for text in workload.warnings if "environment" in text]
    assert "(RANK) at " in text and "test_own_rank.py" in text and "of 64 were" in text


@pytest.mark.thorough
def test_more_kinds_of_ranks_than_are_recorded_are_reported():
    workload = captured(by_many_comparisons, (64,))
    told = [text for text in workload.warnings if "compares its own rank" in text]
    assert bool(told) != (products(workload)[37] == 2)


def test_the_root_of_a_gather_is_recorded():
    assert products(captured(to_rank_one, (4,))) == [2, 1, 2, 2]


def by_own_rows_first(mesh, x):
    """A row of the mesh as numbers: another one on the ranks of another row."""
    first = mesh["tp"].mesh.tolist()[0]
    return x @ x @ x if dist.get_rank() == first else x @ x


def by_every_other_row(mesh, x):
    """As above, for two rows together: numbers that follow no axis of the mesh."""
    first = mesh["tp"].mesh.tolist()[0] // 16 * 16
    return x @ x @ x if dist.get_rank() == first else x @ x


def test_the_first_of_each_row_of_the_mesh_is_found_by_the_numbers_of_its_ranks():
    workload = captured(by_own_rows_first, (8, 8))
    assert [rank for rank, count in enumerate(products(workload)) if count == 2] == [
        *range(0, 64, 8)
    ]
    assert not workload.warnings


def test_a_comparison_of_ranks_with_numbers_that_follow_no_axis_is_reported():
    workload = captured(by_every_other_row, (8, 8))
    (text,) = workload.warnings
    assert "test_own_rank.py" in text and "with different numbers on different ranks" in text
