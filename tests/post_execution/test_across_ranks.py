"""Groups that no trace names, from the traces of several ranks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.observed.across_ranks import Ungrouped, groups_across
from flint.post_execution.converting import convert_traces
from flint.post_execution.inferred_groups import ACROSS
from flint.post_execution.meetings import CONTRADICTORY, NO_BYTES
from tests.post_execution.traces import Profile
from tests.support.shared import examples

UNNAMED = {"Process Group Ranks": None}


def grid(world, size, stride):
    """Ranks -> its row of the division into groups of so many ranks, so far apart."""
    return {
        rank: tuple(
            range(base := rank - rank // stride % size * stride, base + size * stride, stride)
        )
        for rank in range(world)
    }


def lockstep(rows, lane, times, spread, draw, size=4000, members=-1):
    """Of each rank the collectives of its row: members leave together, rows when they want."""
    found = {rank: [] for rank in rows}
    for number in range(times):
        for row in set(rows.values()):
            end = 1_000_000 * number + draw.randrange(spread)
            for rank in row:
                begin = end - 40_000 - draw.randrange(60_000)
                found[rank].append(Ungrouped(number, "all_reduce", size, members, lane, begin, end))
    return found


@settings(max_examples=examples(60), deadline=None)
@given(
    shape=st.sampled_from([(2, 2, 2), (2, 4, 1), (4, 2, 2), (2, 2, 3), (3, 2, 2)]),
    axis=st.integers(0, 2),
    told=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_rows_of_a_mesh_are_identified_by_who_is_there_at_the_same_time(shape, axis, told, seed):
    """Rows drift by far more than a collective lasts; their members leave together."""
    world, size = shape[0] * shape[1] * shape[2], shape[axis]
    stride = 1
    for other in shape[axis + 1 :]:
        stride *= other
    rows = grid(world, size, stride)
    ranks = lockstep(rows, 7, 40, 900_000, random.Random(seed), members=size if told else -1)
    if size == 1:
        return
    found = groups_across(ranks, {}, world)
    assert {rank: set(groups.values()) for rank, groups in found.items()} == {
        rank: {row} for rank, row in rows.items()
    }


@pytest.mark.parametrize("size", [2, 4, 8])
def test_ranks_in_step_are_distinguished_by_when_they_leave(size):
    """All ranks are in every collective at the same time; only members leave together."""
    rows, draw = grid(8, size, 1), random.Random(5)
    ranks = {rank: [] for rank in rows}
    for number in range(12):
        for row in sorted(set(rows.values())):
            end = 1_000_000 * number + draw.randrange(300_000)
            for rank in row:
                over = end + draw.randrange(10_000)
                ranks[rank].append(
                    Ungrouped(number, "all_reduce", 64, -1, -1, 1_000_000 * number - 1, over)
                )
    found = groups_across(ranks, {}, 8)
    assert {rank: set(groups.values()) for rank, groups in found.items()} == {
        rank: {row} for rank, row in rows.items()
    }


def test_ranks_that_are_always_there_together_are_one_group():
    rows = grid(8, 8, 1)
    found = groups_across(lockstep(rows, 7, 5, 900_000, random.Random(1)), {}, 8)
    assert all(set(groups.values()) == {tuple(range(8))} for groups in found.values())


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_few_collectives_do_not_tell_a_group_from_its_parts(times):
    rows = grid(4, 4, 1)
    known = {rank: frozenset({rows[rank], (rank & 2, rank & 2 | 1)}) for rank in rows}
    ranks = lockstep(rows, 7, times, 900_000, random.Random(1))
    assert groups_across(ranks, known, 4) == {rank: {} for rank in rows}


def test_pairs_that_could_be_either_stay_unknown():
    """All four ranks leave every collective at the same moment: any pairs are as good."""
    ranks = lockstep(grid(4, 4, 1), 7, 5, 900_000, random.Random(1), members=2)
    assert groups_across(ranks, {}, 4) == {0: {}, 1: {}, 2: {}, 3: {}}


def test_a_rank_without_a_traced_partner_stays_unknown():
    ranks = lockstep(grid(8, 2, 1), 7, 5, 900_000, random.Random(1), members=2)
    assert groups_across({0: ranks[0], 4: ranks[4]}, {}, 8) == {0: {}, 4: {}}


def test_listed_groups_go_before_all_others():
    """{0, 3} and {1, 2}: no grid has such rows."""
    rows = {0: (0, 3), 3: (0, 3), 1: (1, 2), 2: (1, 2)}
    ranks = lockstep(rows, 7, 20, 900_000, random.Random(1))
    known = {rank: frozenset({row, (0, 1, 2, 3)}) for rank, row in rows.items()}
    found = groups_across(ranks, known, 4)
    assert {rank: set(groups.values()) for rank, groups in found.items()} == {
        rank: {row} for rank, row in rows.items()
    }


def profiles(groups, ahead=(0, 0, 0, 0), times=6, named=False):
    """Four ranks of two parallel axes: pairs on one stream, and the other pairs on another."""
    draw = random.Random(3)
    found = [Profile(rank, 4) for rank in range(4)]
    for number in range(times):
        for place, rows in enumerate(groups):
            for row in rows:
                end = 10_000 * (number + 1) + 5_000 * place + draw.randrange(3_000)
                for rank in row:
                    begin = end - 30 - draw.randrange(30)
                    more = {} if named else {**UNNAMED, "Group size": None}
                    found[rank].collective(
                        begin - 5_000 + ahead[rank], begin + ahead[rank], end - begin,
                        count=1000 * (place + 1), group=row, stream=20 + place, **more,
                    )  # fmt: skip
    return found


TENSOR, DATA = ((0, 1), (2, 3)), ((0, 2), (1, 3))


@pytest.mark.parametrize("ahead", [(0, 0, 0, 0), (0, 0, 70_000, 70_000)], ids=["one", "two hosts"])
def test_traces_without_any_group_have_those_of_traces_with_them(tmp_path, ahead):
    def written(name, **more):
        items = profiles((TENSOR, DATA), ahead, **more)
        return convert_traces(
            [p.write(tmp_path / f"{name}/rank{p.info['rank']}.json") for p in items]
        )

    told, untold = written("told", named=True), written("untold")
    assert untold.warnings[ACROSS] == 48
    assert [c.groups.table().tolist() for c in told.communicators] == [
        c.groups.table().tolist() for c in untold.communicators
    ]


def test_strict_refuses_groups_of_other_ranks_traces(tmp_path):
    paths = [p.write(tmp_path / f"rank{p.info['rank']}.json") for p in profiles((TENSOR, DATA))]
    with pytest.raises(FlintError, match="--strict"):
        convert_traces(paths, strict=True)


def test_ranks_that_do_not_run_the_same_keep_their_kernels(tmp_path):
    """Without a group all ranks are assumed, which the numbers of collectives contradict."""
    paths = []
    for rank in (0, 1):
        profile = Profile(rank, 2)
        for number in range(2 + rank):
            profile.collective(
                100 * number, 100 * number + 20, 10, **UNNAMED, **{"Group size": None}
            )
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    workload = convert_traces(paths)
    assert workload.warnings[CONTRADICTORY] == 5
    assert not workload.communicators
    assert workload.programs[1].graph.measured_by_node().sum() == 30_000


def test_collectives_of_empty_tensors_keep_their_time(tmp_path):
    """A step from 5 to 105 us, of which an all-reduce of nothing takes 60 (rank 1: 40)."""
    paths = []
    for rank in (0, 1):
        profile = Profile(rank, 2)
        profile.kernel(profile.op("aten::mm", 0, 4), 1, 5, 30 + 20 * rank)
        profile.collective(20, 40 + 20 * rank, 60 - 20 * rank, count=0)
        profile.collective(50, 100, 5, count=256)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    workload = convert_traces(paths)
    assert workload.warnings[NO_BYTES] == 2
    assert workload.simulate("dgx-h100").step_seconds == pytest.approx(100e-6)
