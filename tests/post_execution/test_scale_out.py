"""Measured ranks mirrored on larger meshes, against runs of the same programs on as many ranks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flint
from flint.cli.parsing import parse_scale_out
from flint.errors import UsageError
from flint.post_execution.converting import convert_traces
from flint.post_execution.sums_of_shards import SUMS
from flint.simulation.running import simulate
from tests.post_execution.traces import Profile
from tests.support.command_line import failed, flint_here
from tests.support.shared import examples

#: Gloo's profiles of one program on 2 and on 4 ranks each; ``record.py`` there made them.
RUNS = Path(__file__).parents[1] / "data" / "scale_out"


def run_of(program, ranks):
    return [RUNS / f"{program}_{ranks}_rank{rank}.json.gz" for rank in range(ranks)]


def exchanged(workload, rank):
    """What a rank exchanges, in order: kind, bytes that it puts in and gets, members."""
    [program] = [item for item in workload.programs if item.ranks.contains([rank])[0]]
    graph = program.graph
    items = [graph.tables.communications[i] for i in graph.detail[graph.detail >= 0].tolist()]
    return [
        (item.kind, item.operand_bytes, item.result_bytes, item.groups.members(rank).tolist())
        for item in items
    ]


@pytest.mark.parametrize("text", ["dp=" + "9" * 5000, "dp=²", "dp=４", "dp=0", "dp=4,dp=4", "=4"])
def test_a_size_that_is_not_a_number_is_one_short_line(text, tmp_path):
    run = flint_here("convert", *run_of("ddp", 2), "--scale-out", text, "-o", "out", cwd=tmp_path)
    assert len(failed(run, 2)) < 200


def test_more_ranks_than_are_mirrored_are_refused():
    with pytest.raises(UsageError, match="the limit is 16,777,216"):
        convert_traces(run_of("ddp", 2), scale_out={"dp": 2**31 - 1})


@pytest.mark.parametrize("measured", [1, 2])
@pytest.mark.parametrize("program", ["ddp", "moe"])
def test_two_ranks_scaled_to_four_exchange_what_four_did(program, measured):
    real = convert_traces(run_of(program, 4))
    scaled = convert_traces(run_of(program, 2)[:measured], scale_out={"dp": 4})
    assert scaled.mesh.axes == ("dp",)
    for rank in range(4):
        assert exchanged(scaled, rank) == exchanged(real, rank)


def test_shards_are_those_of_four_ranks_but_for_padding():
    """24 rows divide by 4.  30 do not: FSDP2 pads each tensor to 32 rows, of 24 numbers and of one,
    of which the profile of 2 ranks, 15 rows each, shows nothing.
    """
    real = convert_traces(run_of("fsdp", 4))
    scaled = convert_traces(run_of("fsdp", 2)[:1], scale_out={"dp": 4})
    padded = 0
    for rank in range(4):
        for ours, theirs in zip(exchanged(scaled, rank), exchanged(real, rank), strict=True):
            assert (ours[0], ours[3]) == (theirs[0], theirs[3])
            whole = max(sum(theirs[1]), sum(theirs[2]))
            if whole == 32 * 25 * 4:
                padded += 1
                assert max(sum(ours[1]), sum(ours[2])) == math.ceil(30 * 25 / 4) * 4 * 4
            else:
                assert ours == theirs
    assert padded == 4 * 3  # gathered forward and backward, and reduced


def test_what_is_resized_is_modelled_and_what_is_not_keeps_its_time(tmp_path):
    """Four ranks, 2 x 2: one all-reduce along tp, one along dp, which is scaled."""
    paths = []
    for rank in range(4):
        profile = Profile(rank, 4)
        profile.work(0, 10, 5)
        tp, dp = (rank // 2 * 2, rank // 2 * 2 + 1), (rank % 2, rank % 2 + 2)
        profile.collective(12, 20, 30, group=tp)
        profile.collective(18, 50, 1000, group=dp)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    grid = {"mesh": (2, 2), "axes": ("dp", "tp")}
    as_it_was = convert_traces(paths, **grid, scale_out={"dp": 2})
    assert as_it_was.simulate().communication == "measured"
    assert as_it_was.simulate().step_seconds == pytest.approx(1040e-6)
    scaled = convert_traces(paths[:1], **grid, scale_out={"dp": 16})
    assert scaled.mesh.shape == (16, 2)
    [program] = scaled.programs
    assert program.ranks.size == 32
    sizes = [item.groups.size for item in program.graph.tables.communications]
    assert sorted(sizes) == [2, 16]
    assert scaled.simulate().communication == "modelled"
    mixed = simulate(scaled, "dgx-h100", communication="measured")
    both = {row.name: row.seconds for row in mixed.programs[0].classes}
    assert both["all_reduce over tp"] == pytest.approx(30e-6)
    assert both["all_reduce over dp"] < 100e-6  # 4 kB, on NVLink and the network
    assert mixed.step_seconds < 200e-6  # nothing waits for the time of the smaller group


def test_the_sum_of_a_shard_is_as_small_as_the_shard(tmp_path):
    """Hybrid shards, 2 x 2: 1,000 numbers are scattered over two ranks, and the half is summed over
    two replicas. Over four ranks it is a quarter. (Equal to FSDP2's run on 2 x 4 gloo ranks.)  An
    all-reduce of as many numbers that follows no reduce-scatter stays.
    """
    profile = Profile(0, 4)
    profile.work(0, 10, 5)
    sums = {"count": 500, "group": (0, 2)}
    profile.collective(12, 20, 10, **sums)
    profile.collective(
        18, 40, 10, "_reduce_scatter_base", 1000, group=(0, 1), **{"Out msg nelems": 500}
    )
    profile.collective(24, 60, 10, **sums)
    profile.collective(30, 80, 10, **sums)
    path = profile.write(tmp_path / "rank0.json")
    scaled = convert_traces([path], mesh=(2, 2), axes=("dp", "fsdp"), scale_out={"fsdp": 4})
    found = [(kind, put, got) for kind, put, got, _ in exchanged(scaled, 0)]
    half, quarter = ("all_reduce", (2000,), (2000,)), ("all_reduce", (1000,), (1000,))
    assert found == [half, ("reduce_scatter", (4000,), (1000,)), quarter, half]
    assert scaled.warnings[SUMS] == 1


def test_what_is_saved_is_whole_and_says_what_it_is(tmp_path):
    run = flint_here(
        "convert", run_of("ddp", 2)[0], "--scale-out", "dp=64", "-o", "out", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    assert "63 ranks of 64 are mirrors" in run.stderr
    assert "dp from 2 to 64" in run.stderr
    assert "for resized collectives on dgx-h100" in run.stdout
    for command in ("check", "inspect", "simulate", "explain"):
        run = flint_here(command, "out", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    again = flint.load(tmp_path / "out")
    assert again.options["scale_out"] == {"dp": 64}
    assert again.simulate().communication == "modelled"
    assert "compute communication" not in run.stdout


def test_no_rank_is_empty_and_each_mirrors_the_nearest_measured_one(tmp_path):
    """Ranks 0 and 3 of 4 were measured; of 8, the others mirror the lower of the nearest."""
    paths = []
    for rank in (0, 3):
        profile = Profile(rank, 4)
        profile.work(0, 10, 5 + rank)
        profile.collective(12, 20, 10, group=(0, 1, 2, 3))
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    workload = convert_traces(paths, scale_out={"dp": 8})
    ranks = {item.name: item.ranks.array().tolist() for item in workload.programs}
    assert ranks == {"rank_0": [0, 1, 2, 4, 5, 6], "rank_3": [3, 7]}
    assert all(program.traced and len(program.graph) for program in workload.programs)


KINDS = {
    "allreduce": "all_reduce", "_allgather_base": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "all_to_allv": "all_to_all",
}  # fmt: skip


def along(shape, axes, rank):
    """The ranks that differ from one along some axes of a grid only, ascending."""
    places = [rank // math.prod(shape[axis + 1 :]) % shape[axis] for axis in range(len(shape))]
    choices = [range(n) if axis in axes else [places[axis]] for axis, n in enumerate(shape)]
    return [
        sum(place * math.prod(shape[axis + 1 :]) for axis, place in enumerate(each))
        for each in itertools.product(*choices)
    ]


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_groups_and_sizes_on_meshes_of_two_and_three_axes_follow_from_one_rank(
    data, tmp_path_factory
):
    """The sizes by the table in docs/post-execution.md, with elements of four bytes; the members by
    coordinates.
    """
    old = data.draw(st.lists(st.integers(2, 3), min_size=2, max_size=3))
    new = [data.draw(st.sampled_from([size, 2 * size, 5])) for size in old]
    rank = data.draw(st.integers(0, math.prod(old) - 1))
    profile = Profile(rank, math.prod(old))
    wanted = []
    for number in range(data.draw(st.integers(1, 4))):
        axes = data.draw(st.sets(st.integers(0, len(old) - 1), min_size=1))
        name = data.draw(st.sampled_from(sorted(KINDS)))
        few, many = (math.prod(shape[axis] for axis in axes) for shape in (old, new))
        count = few * data.draw(st.integers(1, 1000))
        group = along(old, axes, rank)
        profile.collective(50 * number, 50 * number + 10, 20, name, count, group)
        put_in = got = 4 * count
        if name == "_allgather_base":
            put_in = 4 * -(-count * few // many)
            got = put_in * many
        elif name == "_reduce_scatter_base":
            got = 4 * -(-count // many)
            put_in = got * many
        wanted.append((KINDS[name], axes, (put_in,), (got,)))
    names = "abc"[: len(old)]
    path = profile.write(tmp_path_factory.mktemp("grid") / "r.json")
    scaled = convert_traces(
        [path], mesh=tuple(old), axes=tuple(names), scale_out=dict(zip(names, new, strict=True))
    )
    assert scaled.mesh.shape == tuple(new)
    for other in (0, math.prod(new) // 2, math.prod(new) - 1):
        assert exchanged(scaled, other) == [
            (kind, put_in, got, along(new, axes, other)) for kind, axes, put_in, got in wanted
        ]


def test_an_axis_that_the_run_did_not_have_is_added_outermost(tmp_path):
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    workload = convert_traces([profile.write(tmp_path / "r.json")], mesh=(1,), axes=("tp",),
                              scale_out={"dp": 4})  # fmt: skip
    assert workload.mesh.axes == ("dp", "tp")
    assert workload.mesh.shape == (4, 1)
    assert "no measured collective runs along dp, which the run did not have" in workload.warnings


def pipeline(tmp_path, ranks=range(4)):
    """2 stages of 2 ranks: each rank of the first sends to its partner, and all reduce along dp."""
    paths = []
    for rank in ranks:
        profile = Profile(rank, 4)
        stage, replica = divmod(rank, 2)
        name, key = ("recv", "Src Rank") if stage else ("send", "Dst Rank")
        pair = (replica, replica + 2)
        profile.work(0, 10, 5)
        peer = {key: str(pair[1 - stage])}
        profile.collective(10, 20, 10, name=name, group=pair, **peer)
        profile.collective(30, 40, 10, group=(2 * stage, 2 * stage + 1))
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    return paths


def test_messages_of_a_pipeline_are_those_of_every_replica(tmp_path):
    paths = pipeline(tmp_path)
    workload = convert_traces(paths, mesh=(2, 2), axes=("pp", "dp"), scale_out={"dp": 8})
    assert workload.mesh.shape == (2, 8)
    [send] = {
        item.permutation.target.tobytes(): item.permutation.target.tolist()
        for program in workload.programs
        for item in program.graph.tables.communications
        if item.permutation is not None
    }.values()
    assert send == [*range(8, 16), *[-1] * 8]
    kinds = Counter(
        node.op for program in workload.programs for node in program.graph if node.communication
    )
    assert kinds == {"send": 2, "recv": 2, "all_reduce": 4}
    assert workload.simulate().step_seconds > 0


@pytest.mark.parametrize(
    ("ranks", "axes", "sizes", "words"),
    [
        ((0, 1), ("pp", "dp"), {"dp": 8}, "send messages along pp"),
        (range(4), ("pp", "dp"), {"pp": 4}, "which would be scaled"),
        (range(4), None, {"dp": 8}, "which would be scaled"),
    ],
)
def test_messages_that_cannot_be_mirrored_are_refused(tmp_path, ranks, axes, sizes, words):
    paths = pipeline(tmp_path, ranks)
    mesh = (2, 2) if axes else None
    with pytest.raises(UsageError, match=words):
        convert_traces(paths, mesh=mesh, axes=axes, scale_out=sizes)


def test_groups_that_are_parts_of_an_axis_are_refused(tmp_path):
    profile = Profile(0, 4)
    profile.collective(0, 10, 10, group=(0, 2))
    path = profile.write(tmp_path / "rank0.json")
    with pytest.raises(UsageError, match=r"among ranks 0, 2 is not along whole axes"):
        convert_traces([path], scale_out={"dp": 8})
    workload = convert_traces([path], mesh=(2, 2), axes=("dp", "tp"), scale_out={"dp": 8})
    [item] = workload.programs[0].graph.tables.communications
    assert item.groups.members(1).tolist() == list(range(1, 16, 2))


@pytest.mark.parametrize("text", ["", "dp", "dp=", "dp=0", "dp=-1", "=4", "dp=2,dp=4", "dp=x"])
def test_sizes_that_are_none_are_one_clear_line(text, tmp_path):
    with pytest.raises(UsageError, match="expected AXIS=RANKS"):
        parse_scale_out(text)


def test_programs_are_not_scaled_out(loop_file, tmp_path):
    run = flint_here("convert", loop_file, "--scale-out", "dp=4", "-o", "out", cwd=tmp_path)
    assert "--scale-out" in failed(run, 2)
