"""Explanations of steps whose critical path, waits and gains can be derived by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.explaining.causes import LAUNCHES, WAITING
from flint.explaining.critical_path import critical_path
from flint.explaining.explaining import explain
from flint.explaining.meetings import meetings_of
from flint.explaining.named_parts import HOST_NAME, SHORT_GAP
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import with_tables
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.post_execution.converting import convert_traces
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.launches import OP
from flint.simulation.playing import play
from flint.simulation.waiting_forever import WaitsForever
from tests.post_execution.traces import COMMS, Profile
from tests.simulation.test_simulate import BIG, product, workload_of
from tests.support.shared import examples

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
TRACES = PROFILES.parent / "traces"
OPTIMIZED = PROFILES.parent / "optimized"


def whole(played):
    """The critical path, which must be one chain through the whole step."""
    path = critical_path(played, meetings_of(played))
    ends = path.start + path.ticks
    assert path.start[0] == 0
    assert ends[-1] == played.happened.ticks
    assert (ends[:-1] == path.start[1:]).all()
    return path


@pytest.mark.parametrize("name", ["deepseek_train", "nccl_before_2.2_rank0", "sglang_decode"])
def test_the_critical_path_of_a_profile_is_its_whole_step(name):
    workload = convert_traces([PROFILES / f"{name}.json.gz"])
    whole(play(workload, workload.usual_system))


@pytest.mark.parametrize("name", ["moe_einsum_8x8", "pipeline_ppermute_8x8"])
def test_the_critical_path_of_a_program_is_its_whole_step(saved, name):
    played = play(saved(name))
    path = whole(played)
    for actor, node, start in zip(path.actor, path.node, path.start, strict=True):
        assert played.happened.start[actor][node] <= start < played.happened.end[actor][node]


def test_programs_that_meet_have_one_path(two_programs):
    whole(play(two_programs))


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_streams_and_gaps_have_a_whole_path(data, tmp_path_factory):
    profile = Profile(0, 1)
    free = dict.fromkeys((7, 8, COMMS), 50)
    ts = 0
    for _ in range(data.draw(st.integers(1, 12))):
        stream = data.draw(st.sampled_from(sorted(free)))
        start = max(free[stream], ts + 3) + data.draw(st.integers(0, 60))
        took = data.draw(st.integers(1, 40))
        profile.work(ts, start, took, stream=stream)
        free[stream] = start + took
        ts += 5 + data.draw(st.integers(0, 40))
    folder = tmp_path_factory.mktemp("streams")
    whole(play(convert_traces([profile.write(folder / "rank0.json")])))


def causes(explanation):
    return {cause.name: cause for cause in explanation.causes}


def test_the_host_is_a_cause_where_it_launches_late(tmp_path):
    """50 us on stream 7 from 20 us on, and a kernel of 10 us that is launched at 182 and begins at
    200.  The path: the host from 20 to 182, 18 us until the kernel begins, 10 us of it.  Without
    the host's time the kernel would begin 18 us after its stream's first one, which ends at 50.
    """
    profile = Profile(0, 1)
    profile.work(0, 20, 50)
    profile.work(180, 200, 10)
    explanation = explain(convert_traces([profile.write(tmp_path / "rank0.json")]))
    assert {part.sort: part.seconds for part in explanation.path} == pytest.approx(
        {"host": 162e-6, "gap": 18e-6, "kernel": 10e-6}
    )
    found = causes(explanation)
    assert found[HOST_NAME.text].gain_seconds == pytest.approx((190 - 78) * 1e-6)
    assert found[SHORT_GAP.text].gain_seconds == pytest.approx(18e-6)
    assert found["matmul kernels"].gain_seconds == pytest.approx(10e-6)
    remedies = {item.how: item for item in explanation.remedies}
    assert remedies["--host none"].step_seconds == pytest.approx(60e-6)


def slow_and_fast(tmp_path):
    """Rank 1 comes 20 us later to an all-reduce of 10 us; then both compute 5 us."""
    paths = []
    for rank, took in enumerate((30, 10)):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5 + 20 * rank)
        profile.collective(12, 20 + 20 * rank, took)
        profile.work(14, 50, 5)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    return paths


def test_the_slower_rank_is_found_and_what_balance_would_gain(tmp_path):
    """Rank 0 waits 20 of 45 us, rank 1 none: 10 on average, which is what balance would gain."""
    explanation = explain(convert_traces(slow_and_fast(tmp_path)))
    assert explanation.step_seconds == pytest.approx(45e-6)
    waited = {item.rank: (item.waited_seconds, item.awaited_seconds) for item in explanation.waits}
    assert waited[0] == pytest.approx((20e-6, 0))
    assert waited[1] == pytest.approx((0, 10e-6))
    waiting = causes(explanation)[WAITING]
    assert waiting.share == pytest.approx(10 / 45)
    assert waiting.gain_seconds == pytest.approx(10e-6)
    assert waiting.sources[0].source.startswith("all_reduce")
    kernels = causes(explanation)["matmul kernels"]
    assert kernels.seconds == pytest.approx(30e-6)  # all of them the slower rank's


def test_one_ranks_profile_does_not_tell_its_waiting(tmp_path):
    explanation = explain(convert_traces(slow_and_fast(tmp_path)[:1]))
    assert explanation.waits is None
    assert explanation.to_json()["waits"] is None
    assert any("how long its collectives waited" in note for note in explanation.notes)


def test_a_kernel_that_another_stream_covers_gains_nothing(tmp_path):
    """A gemm of 40 us on one stream during an all-reduce of 100: without gemms still 100 us."""
    profile = Profile(0, 2)
    profile.collective(0, 10, 100)
    profile.work(5, 20, 40)
    explanation = explain(convert_traces([profile.write(tmp_path / "rank0.json")]))
    found = causes(explanation)
    assert "matmul kernels" not in found
    [reduction] = [cause for cause in explanation.causes if cause.sort == "communication"]
    assert reduction.share == pytest.approx(1)
    assert reduction.gain_seconds == pytest.approx(50e-6)  # the gemm is over 50 us after the begin


def test_causes_of_a_program_name_its_lines_and_gain_what_they_say(loop):
    explanation = explain(loop)
    step = explanation.step_seconds
    assert sum(part.share for part in explanation.path) == pytest.approx(1)
    assert sum(cause.share for cause in explanation.causes) == pytest.approx(1, abs=0.01)
    for cause in explanation.causes:
        assert cause.step_seconds == pytest.approx(step - cause.gain_seconds)
        assert sum(item.seconds for item in cause.sources) <= cause.seconds * (1 + 1e-9)
    gains = [cause.gain_seconds for cause in explanation.causes]
    assert gains == sorted(gains, reverse=True)


def test_nothing_is_gained_from_kernels_while_the_host_launches_the_next_ones():
    """An execution trace of 20 ops: PyTorch's host needs 660 us for them, the device 23."""
    workload = convert_traces([TRACES / "et_1.0.2_rank0.json.gz"])
    explanation = explain(workload)
    assert explanation.step_seconds == pytest.approx(20 * OP)
    assert sum(part.seconds for part in explanation.path) == pytest.approx(20 * OP)
    first, *others = explanation.causes
    device = play(workload, workload.usual_system).happened.ticks / TICKS_PER_SECOND
    assert (first.name, first.sort) == (LAUNCHES, "host")
    assert first.step_seconds == pytest.approx(device)
    assert others and all(cause.gain_seconds == 0 for cause in others)
    [table] = [item.breakdown for item in explanation.step]
    assert table.seconds == pytest.approx(20 * OP)
    assert table.host_wait_seconds == pytest.approx(20 * OP - device, rel=1e-6)
    busy = table.compute_seconds + table.non_compute_seconds
    assert busy + table.idle_seconds == pytest.approx(20 * OP)
    assert sum(cause.share for cause in explanation.causes) == pytest.approx(1, abs=0.01)


def test_measured_collectives_are_not_put_in_buckets(tmp_path):
    """Their times together are not the sum of times in which each waited for its members."""
    workload = convert_traces(slow_and_fast(tmp_path))
    measured = {item.how for item in explain(workload).remedies}
    assert not any("bucket" in how for how in measured)
    [faster] = [i for i in explain(workload).remedies if i.name.startswith("communications take")]
    assert faster.gain_seconds == pytest.approx(5e-6)


def test_every_remedy_is_what_simulate_says_with_its_option(loop):
    explanation = explain(loop)
    for remedy in explanation.remedies:
        passes = [word for word in remedy.how.split() if word != "--pass"]
        if "--pass" in remedy.how:
            step = loop.simulate(passes=passes).step_seconds
            assert remedy.step_seconds == step
    faster = {item.name: item for item in explanation.remedies}["links with twice the bandwidth"]
    assert 0 <= faster.gain_seconds < explanation.step_seconds
    assert np.isfinite([item.step_seconds for item in explanation.remedies]).all()


def test_what_a_host_does_around_and_between_its_ops_is_its_own(tmp_path):
    """Products at 20 and at 50, of 10 and of 15 us, in a step that is marked from 0 to 100: the
    host has the 20, 20 and 35 us between.
    """
    profile = Profile(0, 1)
    profile.span("ProfilerStep#1", 0, 100)
    profile.op("aten::mm", 20, 10)
    profile.op("aten::mm", 50, 15)
    explanation = explain(convert_traces([profile.write(tmp_path / "rank0.json")]))
    seconds = {cause.name: cause.seconds for cause in explanation.causes}
    assert seconds == pytest.approx({"the host, between ops": 75e-6, "matmul kernels": 25e-6})
    [device] = explanation.step
    assert device.breakdown.seconds == pytest.approx(100e-6)
    assert device.breakdown.compute_seconds == pytest.approx(25e-6)
    assert device.breakdown.idle_seconds == pytest.approx(75e-6)
    assert device.breakdown.host_wait_seconds == pytest.approx(75e-6)


def test_a_hosts_waits_for_others_are_not_its_own(tmp_path):
    """Rank 0 computes 10 of 60 us, rank 1 50; each host takes 5 us before and after: the last
    40 us of rank 0 are the other's.
    """
    paths = []
    for rank, took in enumerate((10, 50)):
        profile = Profile(rank, 2)
        profile.span("ProfilerStep#1", 0, 10 + took)
        profile.op("aten::mm", 5, took)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    waits = [
        (part.breakdown.idle_seconds, part.breakdown.host_wait_seconds)
        for part in explain(convert_traces(paths)).step
    ]
    assert waits == [pytest.approx((50e-6, 10e-6)), pytest.approx((10e-6, 10e-6))]


def gathers_and_products(mesh, between):
    """Two all-gathers of 32 MiB in all; the second gathers what a product makes of the first, or
    something else.
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    first, second = (builder.input(tables.type(BIG)) for _ in range(2))
    groups = along_axes(mesh, ("data",))
    half = (BIG.bytes // 4,), (BIG.bytes // 2,)
    gather = Communication("all_gather", None, groups, None, *half, ("bf16",))
    (gathered,) = builder.communication(gather, (first,), (BIG,))
    made = product(builder, gathered)
    (last,) = builder.communication(gather, (made if between else second,), (BIG,))
    return with_tables(builder.finish((made, last)), tables.finish())


def test_a_pass_that_only_one_program_allows_is_no_remedy():
    """Two gathers can only be one where the second does not need the first."""
    mesh = Mesh((2,), ("data",))
    graphs = [gathers_and_products(mesh, between) for between in (True, False)]
    bucketed = f"bucket:kind=all_gather,bytes={2**26}"
    alone = workload_of(graphs[1], mesh=mesh).simulate("dgx-h100", passes=[bucketed])
    assert f"after pass {bucketed}" in alone.notes
    both = workload_of(*graphs, mesh=mesh, owner=np.array([0, 1]))
    with pytest.raises(WaitsForever, match=f"in this form after pass {bucketed}"):
        both.simulate("dgx-h100", passes=[bucketed])
    assert not any("bucket" in remedy.how for remedy in explain(both, "dgx-h100").remedies)


def test_kernels_of_a_cuda_graph_are_of_the_classes_that_their_names_show():
    """Tensile's products, all on one stream: what they take is their share of the path."""
    path = PROFILES / "sglang_decode.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ran = [event for event in events if event.get("cat") == "kernel"]
    products = sum(event["dur"] for event in ran if event["name"].startswith("Cijk_"))
    [cause] = [i for i in explain(convert_traces([path])).causes if i.name == "matmul kernels"]
    assert cause.seconds * 1e6 == pytest.approx(products)
