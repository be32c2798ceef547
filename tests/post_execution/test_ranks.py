"""Traces of several ranks, and of some of them: groups, messages, sizes, who is missing.

Longer than 300 lines because each case writes the traces of several ranks out by hand.
"""

from __future__ import annotations

import numpy as np
import pytest

from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.errors import FlintError, UsageError
from flint.graph.graph import NodeKind
from flint.post_execution import load_rank
from flint.post_execution.converting import convert_traces
from flint.post_execution.exchanges import REDUCES
from flint.post_execution.waits import UNAWAITED
from tests.converters.chakra.consumer import execute
from tests.post_execution.traces import COMMS, WORK, Profile, described, edges
from tests.support.shared import quick


def written(profiles, tmp_path):
    """The workload of some ranks, and the folder with its traces, which every consumer can run."""
    paths = [profile.write(tmp_path / f"rank{p}.json") for p, profile in enumerate(profiles)]
    workload = convert_traces(paths)
    folder = tmp_path / "out"
    workload.save(folder)
    assert check(folder).ok
    result = execute(load_trace_set(folder))
    assert result.complete
    return workload, folder


def step(rank, world, group, count=1000, name="allreduce"):
    """A product, a collective, a product that waits for it."""
    profile = Profile(rank, world)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 10, name=name, count=count, group=group)
    profile.work(20, 31, 5)
    return profile


@pytest.mark.parametrize(
    ("name", "kind", "sent", "got"),
    [
        ("allreduce", "all_reduce", 4000, 4000),
        ("_allgather_base", "all_gather", 4000, 8000),  # the shard that each puts in
        ("_reduce_scatter_base", "reduce_scatter", 4000, 2000),  # the full input
        ("all_to_allv", "all_to_all", 4000, 4000),
    ],
)
def test_sizes_are_bytes_of_what_a_rank_puts_in(tmp_path, name, kind, sent, got):
    """1000 elements of four bytes in a group of two."""
    name = "alltoall" if name == "all_to_allv" else name
    workload, _ = written([step(rank, 2, (0, 1), name=name) for rank in (0, 1)], tmp_path)
    [item] = workload.programs[0].graph.tables.communications
    assert (item.kind, item.bytes_in, item.bytes_out) == (kind, sent, got)


@pytest.mark.parametrize("times", [2, 4])
def test_equal_collectives_are_described_once(tmp_path, times):
    """However often it runs: two sizes, so two entries, in traced and untraced ranks' programs."""
    profile = Profile(0, 2)
    for number in range(times):
        profile.collective(100 * number, 100 * number + 20, 10, count=1000)
        profile.collective(100 * number + 50, 100 * number + 70, 10, count=3000)
    workload, _ = written([profile], tmp_path)
    for program in workload.programs:
        graph = program.graph
        assert [item.bytes_in for item in graph.tables.communications] == [4000, 12000]
        assert graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist() == [0, 1] * times


def test_a_reduce_to_one_rank_is_an_all_reduce_and_reported(tmp_path):
    workload, _ = written([step(rank, 2, (0, 1), name="reduce") for rank in (0, 1)], tmp_path)
    [item] = workload.programs[0].graph.tables.communications
    assert (item.kind, item.bytes_in) == ("all_reduce", 4000)
    assert workload.warnings[REDUCES] == 2


def test_groups_that_differ_by_rank_are_one_partition(tmp_path):
    """0 and 2 reduce, 1 and 3 reduce: two rows of the groups of stride 2."""
    profiles = [step(rank, 4, (rank % 2, rank % 2 + 2)) for rank in range(4)]
    workload, _ = written(profiles, tmp_path)
    [communicator] = workload.communicators
    assert communicator.groups.table().tolist() == [[0, 2], [1, 3]]


def test_a_group_without_even_spacing_stands_alone(tmp_path):
    """0, 1 and 3 of 4 reduce; 2 only computes."""
    profiles = [step(rank, 4, (0, 1, 3)) for rank in range(4)]
    profiles[2] = Profile(2, 4)
    profiles[2].work(0, 10, 5)
    workload, _ = written(profiles, tmp_path)
    [communicator] = workload.communicators
    assert communicator.groups.table().tolist() == [[0, 1, 3]]


def test_a_collective_of_one_rank_is_not_an_exchange(tmp_path):
    """Alone in its group: its kernel computes, and no other rank is needed for it."""
    profiles = [step(rank, 2, (rank,)) for rank in (0, 1)]
    workload, _ = written(profiles, tmp_path)
    assert not workload.communicators
    assert len(workload.programs[0].graph) == 3


def message(profile, name, ts, start, peer):
    key = "Dst Rank" if name == "send" else "Src Rank"
    profile.collective(ts, start, 10, name=name, group=(0, 1), **{key: str(peer)})


def test_messages_find_their_peers(tmp_path):
    """Rank 0 sends its product to 1, which multiplies what it gets: the RECV waits for the SEND."""
    first, second = Profile(0, 2), Profile(1, 2)
    first.work(0, 10, 5)
    message(first, "send", 10, 20, 1)
    message(second, "recv", 0, 20, 0)
    second.work(10, 31, 5)
    workload, _ = written([first, second], tmp_path)
    sends, receives = (program.graph for program in workload.programs)
    assert [node.op for node in sends] == ["aten::mm: gemm", "send"]
    assert [node.op for node in receives] == ["recv", "aten::mm: gemm"]
    assert edges(sends) == {(0, 1)} and edges(receives) == {(0, 1)}
    pair = sends[1].communication.permutation
    assert pair.target.tolist() == [1, -1]


def test_messages_of_one_batch_do_not_wait_for_each_other(tmp_path):
    """Both ranks receive first and then send, in one kernel at the end of the batch.

    One after the other they would wait forever.  The kernel's 10 us are counted once.
    """
    profiles = []
    for rank in (0, 1):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5)
        message(profile, "recv", 10, None, 1 - rank)
        message(profile, "send", 16, None, 1 - rank)
        batch = profile.op("record_param_comms", 22, 4, **{"Collective name": "coalesced"})
        profile.kernel(batch, 23, 30, 10, "ncclDevKernel_SendRecv", 20)
        profile.work(40, 50, 5)
        profiles.append(profile)
    workload, _ = written(profiles, tmp_path)
    graph = workload.programs[0].graph
    assert [node.op for node in graph][1:3] == ["recv", "send"]
    assert (1, 2) not in edges(graph)
    assert graph.measured_by_node().tolist() == [5000, 0, 10000, 5000]


@pytest.mark.parametrize("resolved", [True, False])
def test_who_waits_for_a_batch_waits_for_all_of_its_messages(resolved, tmp_path):
    """Received first and sent last, in one kernel until 40; the product at 41 needs what came.

    An event that is recorded behind the batch is one behind its last message, the one sent.
    """
    profiles = []
    for rank in (0, 1):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5)
        message(profile, "recv", 10, None, 1 - rank)
        message(profile, "send", 16, None, 1 - rank)
        batch = profile.op("record_param_comms", 22, 4, **{"Collective name": "coalesced"})
        profile.kernel(batch, 23, 30, 10, "ncclDevKernel_SendRecv", COMMS)
        if resolved:
            profile.waits(28, WORK, COMMS, 27)
        profile.work(30, 41, 5)
        profiles.append(profile)
    workload, _ = written(profiles, tmp_path)
    for program in workload.programs:
        assert [node.op for node in program.graph][1:3] == ["recv", "send"]
        assert {(1, 3), (2, 3)} <= edges(program.graph)
    assert UNAWAITED not in workload.warnings


def test_a_collective_that_the_traces_rank_is_none_of_is_refused(tmp_path):
    path = step(0, 4, (1, 2)).write(tmp_path / "rank0.json")
    with pytest.raises(FlintError, match=r"allreduce among the ranks 1, 2 in a trace.*of rank 0"):
        convert_traces([path])


def test_a_trace_with_an_unknown_rank_must_be_named_by_it(tmp_path):
    profile = Profile(0, 3)
    del profile.info["rank"]
    profile.collective(10, 20, 10, group=(1, 2))
    with pytest.raises(FlintError, match=r"taken as rank 0, because nothing names its rank"):
        convert_traces([profile.write(tmp_path / "some.json")])


def test_a_group_with_a_rank_twice_is_not_a_group(tmp_path):
    path = step(0, 4, (0, 0)).write(tmp_path / "rank0.json")
    with pytest.raises(FlintError, match="does not record the group of allreduce"):
        convert_traces([path], strict=True)


def test_ranks_without_a_trace_answer_and_are_reported(tmp_path):
    """Rank 0 of 4 in a group with 2, and one of everybody: 1 and 3 meet it once, 2 twice."""
    profile = step(0, 4, (0, 2))
    profile.collective(40, 60, 10, group=(0, 1, 2, 3))
    workload, folder = written([profile], tmp_path)
    ranks = {program.name: str(program.ranks) for program in workload.programs}
    assert sorted(ranks.values()) == ["0", "1 of every 2", "2"]
    assert [len(program.graph) for program in workload.programs] == [4, 1, 2]
    [text] = [text for text in workload.warnings if text.startswith("no trace of")]
    assert "3 of 4 ranks (1, 2, 3)" in text and "--ranks 0" in text
    assert len(list((folder / "et").glob("*.et"))) == 4


def test_a_message_from_a_rank_without_a_trace_comes_when_it_is_needed(tmp_path):
    """Rank 1 gets a message before it enters the collective; rank 0 must send before, too."""
    profile = Profile(1, 2)
    message(profile, "recv", 0, 10, 0)
    profile.work(10, 21, 5)
    profile.collective(20, 30, 10)
    workload, _ = written_only(profile, tmp_path)
    answer = workload.programs[1].graph
    assert [node.op for node in answer] == ["send", "all_reduce"]


def written_only(profile, tmp_path):
    path = profile.write(tmp_path / "trace.json")
    workload = convert_traces([path])
    folder = tmp_path / "out"
    workload.save(folder)
    assert check(folder).ok
    assert execute(load_trace_set(folder)).complete
    return workload, folder


@pytest.mark.parametrize("count", quick([2**8, 2**10], 2**8))
def test_many_ranks_are_answered_by_as_many_programs_as_there_are_groups(count, tmp_path):
    """So many groups of so many ranks each; in the thorough run, a million ranks."""
    profile = step(0, count**2, tuple(range(0, count**2, count)))
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    first, *others = (program.ranks.size for program in workload.programs)
    assert first == 1 and sorted(others) == [count - 1, count**2 - count]


def test_two_traces_of_one_rank_are_refused(tmp_path):
    paths = [step(0, 2, (0, 1)).write(tmp_path / name) for name in ("a.json", "b.json")]
    with pytest.raises(UsageError, match="both for rank 0"):
        convert_traces(paths)


def test_traces_of_different_steps_are_refused_by_the_first_difference(tmp_path):
    paths = [
        step(rank, 2, (0, 1), count=1000 * (rank + 1)).write(tmp_path / f"rank{rank}.json")
        for rank in (0, 1)
    ]
    with pytest.raises(FlintError, match=r"number 1 among the ranks 0, 1 is all_reduce of 4,000"):
        convert_traces(paths)


def test_a_rank_that_runs_fewer_collectives_is_named(tmp_path):
    longer = step(0, 2, (0, 1))
    longer.collective(40, 60, 10)
    paths = [longer.write(tmp_path / "rank0.json"), step(1, 2, (0, 1)).write(tmp_path / "r1.json")]
    with pytest.raises(FlintError, match="ranks 0 and 1 do not run the same step: 2 and 1"):
        convert_traces(paths)


def test_runs_of_different_sizes_are_refused(tmp_path):
    paths = [
        step(0, 2, (0, 1)).write(tmp_path / "a.json"),
        step(1, 4, (0, 1)).write(tmp_path / "b"),
    ]
    with pytest.raises(FlintError, match="runs with 2 and 4 ranks"):
        convert_traces(paths)


def test_a_collective_of_unknown_size_stays_a_kernel_with_its_time(tmp_path):
    profile = step(0, 2, (0, 1))
    for event in profile.events:
        event["args"].pop("In msg nelems", None)
    path = profile.write(tmp_path / "rank0.json")
    workload = convert_traces([path])
    told = convert_traces([step(0, 2, (0, 1)).write(tmp_path / "told" / "rank0.json")])
    assert not workload.programs[0].graph.tables.communications
    times = [item.programs[0].graph.measured_by_node().tolist() for item in (workload, told)]
    assert times[0] == times[1]
    said = "has no bytes of allreduce (profile with record_shapes=True); the execution trace"
    assert any(said in text for text in workload.warnings)
    with pytest.raises(FlintError, match=r"--strict.*does not record the bytes of allreduce"):
        convert_traces([path], strict=True)


def test_a_mesh_must_have_as_many_ranks_as_the_run(tmp_path):
    path = step(0, 4, (0, 1)).write(tmp_path / "rank0.json")
    assert convert_traces([path], mesh=(2, 2), axes=("a", "b")).mesh.shape == (2, 2)
    with pytest.raises(UsageError, match="has 8 ranks; the traces are from a run with 4"):
        convert_traces([path], mesh=(8,))


def test_collectives_are_ordered_over_all_ranks(tmp_path):
    """Rank 0 meets 1 and then 2; rank 1 and 2 meet each other between."""
    pairs = {0: [(0, 1), (0, 2)], 1: [(0, 1), (1, 2)], 2: [(1, 2), (0, 2)]}
    profiles = []
    for rank, groups in pairs.items():
        profile = Profile(rank, 3)
        for number, group in enumerate(groups):
            profile.collective(20 * number, 20 * number + 10, 5, group=group)
        profiles.append(profile)
    workload, _ = written(profiles, tmp_path)
    assert np.prod([len(program.graph) for program in workload.programs]) == 8


def test_orders_that_contradict_each_other_are_refused(tmp_path):
    """A chain of communications per rank cannot have both orders: 0-1, 1-2, 2-0 in a circle."""
    pairs = {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)]}
    paths = []
    for rank, groups in pairs.items():
        profile = Profile(rank, 3)
        for number, group in enumerate(groups):
            profile.collective(20 * number, 20 * number + 10, 5, group=group)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    with pytest.raises(FlintError, match="conflicting orders"):
        convert_traces(paths)


def test_traces_read_in_processes_of_their_own_are_the_same(tmp_path, monkeypatch):
    """Four ranks, two at a time; a damaged one gives the same message as alone."""
    paths = [step(rank, 4, (0, 1, 2, 3)).write(tmp_path / f"rank{rank}.json") for rank in range(4)]
    one_by_one = described(convert_traces(paths))
    monkeypatch.setattr(load_rank, "_jobs", lambda files: 2)
    assert described(convert_traces(paths)) == one_by_one
    paths[2].write_text('{"traceEvents": [{"ph": "X", "ts": "soon"}]}')
    with pytest.raises(FlintError, match="an event without times"):
        convert_traces(paths)


def test_as_many_traces_are_read_at_a_time_as_memory_is_free_for(tmp_path, monkeypatch):
    """Files of 20 MB, which need four times as much each."""
    paths = [tmp_path / f"rank{rank}.json" for rank in range(8)]
    for path in paths:
        with path.open("wb") as file:
            file.truncate(20_000_000)
    monkeypatch.setattr(load_rank, "processors", lambda: 6)
    for free, jobs in [(1_000_000_000, 6), (250_000_000, 3), (1, 1), (None, 6)]:
        monkeypatch.setattr(load_rank, "free_memory", lambda free=free: free)
        assert load_rank._jobs(paths) == jobs
    assert load_rank._jobs(paths[:0]) == 1


@pytest.mark.parametrize(
    ("later", "first", "second", "sent"),
    [(0, [7, 17], [0, 27], 5), (1000, [12, 22], [0, 27], 0)],
    ids=["one clock", "a clock that is far ahead"],
)
def test_a_message_is_over_when_it_is_received(tmp_path, later, first, second, sent):
    """Sent at 20 and recorded until 100, as gloo does until its sender asks; received from 3 to 25.

    On one clock, whose zero is the begin at 3, rank 0 works from 7 and sends from 17, for 5.  A
    thousand later by its own clock, it would send at 1020 what is received at 25: it is ahead by
    at least 995, so that rank 1 receives from 998 and rank 0 works from 1010.
    """
    sender, receiver = Profile(0, 2), Profile(1, 2)
    sender.work(later, later + 10, 5)
    told = {"group": (0, 1)}
    sender.collective(later + 10, later + 20, 80, name="send", **told, **{"Dst Rank": "1"})
    receiver.collective(0, 3, 22, name="recv", **told, **{"Src Rank": "0"})
    receiver.work(5, 30, 5)
    workload, _ = written([sender, receiver], tmp_path)
    starts = [program.timing.start // 1000 for program in workload.programs]
    assert [item.tolist() for item in starts] == [first, second]
    assert workload.programs[0].graph.measured_by_node().tolist() == [5000, 1000 * sent]
