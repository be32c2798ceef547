"""The sender of a broadcast in profiles, against what c10d's arguments say."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.observed.across_ranks import Ungrouped, groups_across
from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile


def profile(rank, root, group=(0, 1, 2, 3)):
    """A broadcast of NCCL's: the op of c10d records the root, the record in it the group."""
    made = Profile(rank, 4)
    made.work(0, 10, 5)
    inputs = ["", "", str(root), "0", "False", "-1"]
    made.op("c10d::broadcast_", 9, 10, 1, **{"Concrete Inputs": inputs, "Input Dims": [[]] * 6})
    made.collective(10, 20, 10, name="broadcast", group=group)
    made.work(20, 31, 5)
    return made


def converted(profiles, folder, **options):
    paths = [made.write(folder / f"rank{rank}.json") for rank, made in enumerate(profiles)]
    return convert_traces(paths, **options)


def groups(workload, rank=0):
    [item] = workload.programs[rank].graph.tables.communications
    assert item.kind == "collective_broadcast"
    return item.groups.table().tolist()


@pytest.mark.parametrize("root", range(4))
def test_the_recorded_root_sends_first(root, tmp_path):
    """StableHLO's rule: the first rank of a group sends to the others."""
    workload = converted([profile(rank, root) for rank in range(4)], tmp_path)
    others = [rank for rank in range(4) if rank != root]
    assert all(groups(workload, rank) == [[root, *others]] for rank in range(4))
    workload.save(tmp_path / "out")


def test_the_root_is_a_place_in_its_group(tmp_path):
    """Ranks 0 and 2, 1 and 3: the second of each sends."""
    profiles = [profile(rank, 1, (rank % 2, rank % 2 + 2)) for rank in range(4)]
    workload = converted(profiles, tmp_path)
    assert groups(workload) == groups(workload, 1) == [[2, 0], [3, 1]]


def test_a_rank_that_does_not_record_the_root_has_that_of_the_others(tmp_path):
    profiles = [profile(rank, "" if rank == 0 else 2) for rank in range(3)]
    workload = converted(profiles, tmp_path)
    assert all(groups(workload, rank) == [[2, 0, 1, 3]] for rank in range(4))


def test_a_scaled_run_keeps_the_roots_place(tmp_path):
    """Three of four ranks are before the root on their axis; the mirrors' rows repeat that."""
    workload = converted(
        [profile(rank, 3) for rank in range(4)], tmp_path, scale_out={"dp": 2}, axes=("x",)
    )
    assert groups(workload) == [[3, 0, 1, 2], [7, 4, 5, 6]]


def test_two_roots_of_one_broadcast_are_refused(tmp_path):
    with pytest.raises(FlintError, match=r"from rank 1 on the one and .* from rank 2 on the other"):
        converted([profile(rank, max(1, rank)) for rank in range(3)], tmp_path)


def test_a_group_has_a_place_for_its_root():
    """Three ranks are needed for a third one to send, however well two of them fit in time."""
    times = {0: 0, 1: 0, 2: 10**6, 3: 10**6}
    ranks = {
        rank: [Ungrouped(n, "collective_broadcast", 64, -1, -1, at, at + 10, 2) for n in range(5)]
        for rank, at in times.items()
    }
    pairs = {(0, 1), (2, 3), (0, 1, 2, 3)}
    known = {rank: frozenset(one for one in pairs if rank in one) for rank in ranks}
    assert (0, 1) not in groups_across(ranks, known, 4)[0].values()
