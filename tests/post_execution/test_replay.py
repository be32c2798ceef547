"""Recorded steps simulated as they are: the measured span, busy time and time per class again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flint
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.graph.timing import Timing
from flint.passes.host_lane import HOST, on_host
from flint.post_execution.converting import convert_traces
from flint.simulation.recording import HOST_LANE, record
from tests.post_execution.test_corpus import compare
from tests.post_execution.traces import COMMS, WORK, Profile, edges
from tests.support.shared import examples

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("name", ["resnet50_ddp_nccl_rank0", "resnet50_ddp_nccl_calls_rank0"])
def test_a_profile_takes_its_measured_span_again(name):
    compare(DATA / "traces" / f"{name}.json.gz")


def test_streams_that_compute_at_once_take_the_time_of_the_longer_one():
    """DeepSeek's training step: 983 kernels of 244.069 ms together, on two streams at a time, in
    129.012 ms from the first one's begin to the last one's end, 128.515 of them busy.
    """
    result = convert_traces([DATA / "profiles" / "deepseek_train.json.gz"]).simulate()
    assert result.step_seconds == pytest.approx(129.012e-3, rel=1e-4)
    assert result.compute_seconds == pytest.approx(128.515e-3, rel=1e-4)


def two_streams(tmp_path):
    """A gemm of 50 us on each of two streams, at 20 and at 30; then one at 200."""
    profile = Profile(0, 1)
    profile.work(0, 20, 50)
    profile.work(10, 30, 50, stream=9)
    profile.work(180, 200, 10)
    return convert_traces([profile.write(tmp_path / "rank0.json")])


def test_a_step_on_a_host_reaches_from_the_begin_of_its_mark_to_its_end(tmp_path):
    """Products at 20 and at 50, of 10 and of 15 us, in a step that is marked from 0 to 100."""
    profile = Profile(0, 1)
    profile.span("ProfilerStep#1", 0, 100)
    profile.op("aten::mm", 20, 10)
    profile.op("aten::mm", 50, 15)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.simulate().step_seconds == pytest.approx(100e-6)
    assert workload.simulate(host="none").step_seconds == pytest.approx(25e-6)
    workload.save(tmp_path / "out")
    assert flint.load(tmp_path / "out").simulate().step_seconds == pytest.approx(100e-6)


def test_a_trace_of_a_host_without_marks_reaches_from_its_first_op_to_its_last(tmp_path):
    """A product of 10 us within an op from 10 to 40, and a view from 50 to 60."""
    profile = Profile(0, 1)
    profile.op("aten::linear", 10, 30)
    profile.op("aten::mm", 20, 10)
    profile.op("aten::detach", 50, 10)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.simulate().step_seconds == pytest.approx(50e-6)
    assert workload.simulate(host="none").step_seconds == pytest.approx(10e-6)


def test_the_host_is_a_lane_of_launches_and_waits(tmp_path):
    """Launches at 2, 12 and 182 us: the lane reaches from the first kernel (20) to the last call.

    Without the host the streams begin at once, and their first runs 50 + 10 us.
    """
    workload = two_streams(tmp_path)
    assert workload.simulate().step_seconds == pytest.approx(190e-6)
    recording = record(workload)
    [rank] = recording.ranks
    host = rank.slot == HOST_LANE
    assert on_host(rank.graph).sum() == host.sum() == 1
    assert rank.end[host].tolist() == [162_000_000]
    assert workload.simulate(host="none").step_seconds == pytest.approx(60e-6)


def test_a_modelled_host_pays_for_each_launch(tmp_path):
    workload = two_streams(tmp_path)
    launch = load_system("dgx-h100").accelerator.launch_overhead
    step = workload.simulate("dgx-h100", host="modelled").step_seconds
    assert step == pytest.approx(max(60e-6, launch + 10e-6), rel=1e-6)


def test_what_was_launched_before_the_profile_is_of_no_step(tmp_path):
    """The host is two steps ahead: until 300 us the device runs what came before, of which the file
    has no calls.  Each step has two kernels of 50 us.
    """
    profile = Profile(0, 1)
    for start in range(0, 300, 50):
        profile._add("kernel", "before", start, 50, WORK, {"correlation": start, "stream": WORK})
    for step, (begin, start) in enumerate([(0, 300), (100, 410)]):
        profile.span(f"ProfilerStep#{step}", begin, 100)
        profile.work(begin + 10, start, 50)
        profile.work(begin + 30, start + 50, 50)
    path = profile.write(tmp_path / "rank0.json")
    for step in ("0", "1"):
        workload = convert_traces([path], step=step)
        assert len(workload.programs[0].graph) == 2
        assert workload.simulate().step_seconds == pytest.approx(100e-6)


@pytest.mark.parametrize("call", ["urQueueFinish", "urEventWait", "zeEventHostSynchronize"])
def test_queues_of_intels_devices_are_streams_and_their_waits_the_hosts(tmp_path, call):
    """Kernels of 50 and 20 us in two queues, which Kineto names ``sycl queue`` (its XPU plugin);
    after a wait until 75 us the host launches the third, of 10 us, at 77: it begins at 80.
    """
    profile = Profile(0, 1)
    for ts, start, took, queue in [(0, 20, 50, 64), (6, 25, 20, 65), (75, 80, 10, 64)]:
        profile.work(ts, start, took, stream=queue)
        del profile.events[-1]["args"]["stream"]
        profile.events[-1]["args"]["sycl queue"] = queue
        profile.events[-2] |= {"cat": "xpu_runtime", "name": "urEnqueueKernelLaunch"}
    profile._add("xpu_runtime", call, 12, 63, 1, {"correlation": 7})
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.programs[0].timing.waits.tolist() == [[0, 2]]
    assert workload.simulate().step_seconds == pytest.approx(70e-6)
    assert workload.simulate(host="none").step_seconds == pytest.approx(60e-6)


def test_the_host_continues_only_when_its_wait_is_over(tmp_path):
    """A copy of 100 us that its call waits for; half as long, all after it comes 50 us earlier."""
    profile = Profile(0, 1)
    op = profile.op("aten::copy_", 0, 130)
    profile.kernel(op, 2, 10, 100, name="Memcpy DtoH")
    profile.events[-2] |= {"name": "cudaMemcpyAsync", "dur": 120}
    profile.work(130, 140, 5)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    [program] = workload.programs
    assert program.timing.waits.tolist() == [[0, 1]]
    assert workload.simulate().step_seconds == pytest.approx(135e-6)

    def halved(graph, system):
        copies = np.array(["Memcpy" in name for name in graph.tables.ops])[graph.op]
        return kernel_seconds(graph, system) * np.where(copies, 0.5, 1.0)

    assert workload.simulate(kernels=halved).step_seconds == pytest.approx(85e-6)


def exchanging(tmp_path, communication_time=(30, 10)):
    """Two ranks: one reaches the all-reduce 20 us after the other, and both leave together."""
    paths = []
    for rank, took in enumerate(communication_time):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5 + 20 * rank)
        profile.collective(12, 20 + 20 * rank, took)
        profile.work(52, 60, 5)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    return convert_traces(paths)


def test_waiting_for_the_slower_rank_is_apart_from_the_transfer(tmp_path):
    """The fastest member's 10 us are the transfer; the other one waited 20 us before."""
    workload = exchanging(tmp_path)
    assert workload.simulate().step_seconds == pytest.approx(55e-6)
    fast, slow = (program.figures for program in workload.simulate().programs)
    assert fast.communication_seconds == slow.communication_seconds == pytest.approx(10e-6)


def test_a_rank_without_a_partners_trace_keeps_its_whole_time(tmp_path):
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(12, 20, 30)
    profile.work(52, 60, 5)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    measured, modelled = workload.simulate(), workload.simulate(communication="modelled")
    assert measured.step_seconds == pytest.approx(55e-6)
    assert measured.communication_seconds == pytest.approx(30e-6)
    assert modelled.communication == "modelled"
    assert modelled.communication_seconds < 30e-6
    assert workload.simulate(algorithm="ring").communication == "modelled"


def test_clocks_of_several_hosts_are_aligned_by_the_ends_of_collectives(tmp_path):
    """Rank 1's clock is 7 ms ahead: the step is as long as with one clock."""
    paths = []
    for rank in (0, 1):
        profile = Profile(rank, 2)
        ahead = 7_000 * rank
        profile.work(ahead, ahead + 10, 5)
        profile.collective(ahead + 12, ahead + 20, 10)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    assert convert_traces(paths).simulate().step_seconds == pytest.approx(20e-6)


def named_hosts(tmp_path, hosts, late):
    """The step of two ranks that both begin at 10; the second's all-reduce is ``late`` us later."""
    paths = []
    for rank, host in enumerate(hosts):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5)
        profile.collective(12, 20 + late * rank, 10)
        path = profile.write(tmp_path / f"rank{rank}.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"host_name": host}))
        paths.append(path)
    return convert_traces(paths).simulate().step_seconds


@pytest.mark.parametrize(
    ("hosts", "late", "step"),
    [
        # From 10 to 30, when the first member leaves.
        (("a", "a"), 6, 20e-6),
        # As members leave together, the second clock is 6 us ahead, and its rank began at 4.
        (("a", "b"), 6, 26e-6),
        (("", ""), 6, 26e-6),
        # No rank leaves an all-reduce 20 us before the other begins it: these are two machines, and
        # the second one's rank began at -20.
        (("a", "a"), 30, 50e-6),
    ],
    ids=["one host", "two hosts", "no host", "two hosts of one name"],
)
def test_ranks_of_one_host_have_one_clock(tmp_path, hosts, late, step):
    assert named_hosts(tmp_path, hosts, late) == pytest.approx(step)


def test_times_survive_the_folder(tmp_path):
    workload = two_streams(tmp_path)
    workload.save(tmp_path / "out", system="dgx-h100")
    again = flint.load(tmp_path / "out")
    for name in ("start", "launch", "waits"):
        stored = getattr(again.programs[0].timing, name)
        assert (stored == getattr(workload.programs[0].timing, name)).all()
    assert again.simulate().step_seconds == workload.simulate().step_seconds


def test_damaged_times_are_one_clear_line(tmp_path):
    whole = two_streams(tmp_path).programs[0].timing.to_bytes()
    for data in (b"x", whole[:-30]):
        with pytest.raises(FlintError, match=r"some\.npz: not times"):
            Timing.from_bytes(data, 3, "some.npz")
    with pytest.raises(FlintError, match="do not fit"):
        Timing.from_bytes(whole, 4, "some.npz")


def test_measured_times_of_what_was_not_recorded_are_refused():
    workload = convert_traces([DATA / "profiles" / "simple_add_et_1.0.1.json.gz"])
    with pytest.raises(UsageError, match="not recorded"):
        workload.simulate(host="measured")


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_streams_and_gaps_are_replayed_exactly(data, tmp_path_factory):
    """Kernels on up to three streams, in order on each, launched in any order before they begin."""
    profile = Profile(0, 1)
    free = dict.fromkeys((7, 8, COMMS), 50)
    spans, ts = [], 0
    for _ in range(data.draw(st.integers(1, 12))):
        stream = data.draw(st.sampled_from(sorted(free)))
        start = max(free[stream], ts + 3) + data.draw(st.integers(0, 30))
        took = data.draw(st.integers(1, 40))
        profile.work(ts, start, took, stream=stream)
        free[stream] = start + took
        spans.append((start, start + took))
        ts += 5 + data.draw(st.integers(0, 40))
    folder = tmp_path_factory.mktemp("streams")
    workload = convert_traces([profile.write(folder / "rank0.json")])
    step = max(high for _, high in spans) - min(low for low, _ in spans)
    assert workload.simulate().step_seconds == pytest.approx(step * 1e-6)
    [rank] = record(workload).ranks
    kernels = rank.slot != HOST_LANE
    begin = min(low for low, _ in spans)
    found = sorted(zip(rank.start[kernels].tolist(), rank.end[kernels].tolist(), strict=True))
    million = 1_000_000
    wanted = [((low - begin) * million, (high - begin) * million) for low, high in spans]
    assert found == sorted(wanted)
    assert HOST not in workload.programs[0].graph.tables.ops


def test_a_kernel_that_names_no_stream_is_on_that_of_its_line(tmp_path):
    """Two transfers on line 801: the second one follows the first, and not nothing."""
    profile = Profile(0, 1)
    profile.work(0, 10, 20)
    for start in (50, 100):
        profile._add("mtia_ccp_events", "dma_request", start, 10, 801, {"device": 0})
    graph = convert_traces([profile.write(tmp_path / "rank0.json")]).programs[0].graph
    assert (1, 2) in {pair[:2] for pair in edges(graph)}
