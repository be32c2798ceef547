"""Which op waited for which in profiles of a device, each rule on a trace derived by hand."""

from __future__ import annotations

from flint.converters.profilers.kineto.rows import DEVICES
from flint.post_execution.converting import convert_traces
from flint.post_execution.edges import CONTRADICTED
from flint.post_execution.kernel_units import NO_EXCHANGE
from flint.post_execution.launches import BY_LAUNCH
from flint.post_execution.waits import BY_OPTIMIZER, BY_TIME, UNAWAITED, UNRESOLVED
from tests.post_execution.traces import COMMS, WORK, Profile, edges


def converted(profile, tmp_path):
    return convert_traces([profile.write(tmp_path / "rank0.json")])


def test_kernels_of_one_stream_run_one_after_another(tmp_path):
    """Three products on a stream, a fourth on another: 0 -> 1 -> 3, and 2 alone."""
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    profile.work(10, 20, 5)
    profile.work(20, 30, 50, stream=8)
    profile.work(30, 40, 5)
    workload = converted(profile, tmp_path)
    assert edges(workload.graph) == {(0, 1), (1, 3)}
    assert workload.graph.measured_by_node().tolist() == [5000, 5000, 50000, 5000]


def test_streams_of_two_devices_have_the_same_numbers_and_nothing_to_do_with_each_other(tmp_path):
    """Two products on each device at once; the last one on device 3 waits within its device."""
    profile = Profile(0, 1)
    for ts, device, start, stream in (
        (0, 3, 10, WORK), (10, 4, 12, WORK), (20, 3, 30, 8), (30, 4, 32, WORK), (40, 3, 60, 8),
    ):  # fmt: skip
        profile.kernel(profile.op("aten::mm", ts, 4), ts + 2, start, 15, "k", stream, device=device)
    profile.waits(38, 8, WORK, 37, device=3)
    workload = converted(profile, tmp_path)
    assert edges(workload.graph) == {(1, 3), (2, 4), (0, 4)}
    assert DEVICES.format(2) in workload.warnings


def test_a_kernel_with_the_number_of_its_call_is_of_the_op_that_made_the_call(tmp_path):
    """As profiles of 2023 have it: ``External id`` is the correlation, and another op's number."""
    profile = Profile(0, 1)
    product, total = profile.op("aten::mm", 0, 9), profile.op("aten::add", 20, 9)
    for launch, start, number in ((2, 5, total), (22, 25, product)):
        profile.call("cudaLaunchKernel", launch, correlation=number)
        profile.kernel(number, launch + 50, start, 3, "k", correlation=number)
    graph = converted(profile, tmp_path).programs[0].graph
    assert [node.op for node in graph] == ["aten::mm: k", "aten::add: k"]


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_a_barriers_kernel_is_not_an_all_reduce_and_stands_where_a_collective_would(tmp_path):
    """NCCL runs a barrier as an all-reduce.  It follows the product 0; 2 is made to wait."""
    profile = Profile(0, 2)
    profile.work(0, 10, 20)
    barrier = profile.op("record_param_comms", 5, 4, **{"Collective name": "barrier"})
    profile.kernel(barrier, 6, 31, 4, ALL_REDUCE, COMMS)
    profile.waits(18, WORK, COMMS, 17)
    profile.work(20, 50, 10)
    workload = converted(profile, tmp_path)
    graph = workload.programs[0].graph
    assert [node.communication for node in graph] == [None] * 3
    assert edges(graph) == {(0, 1), (0, 2), (1, 2)}
    assert workload.warnings[NO_EXCHANGE] == 1


def test_the_kernel_of_a_batch_of_all_reduces_is_none_of_its_own(tmp_path):
    """Two all-reduces, launched as one kernel when the batch ends."""
    profile = Profile(0, 2)
    profile.work(0, 10, 20)
    profile.collective(5, None, 0)
    profile.collective(10, None, 0, count=500)
    batch = profile.op("record_param_comms", 15, 4, **{"Collective name": "endCoalescing"})
    profile.kernel(batch, 16, 31, 9, ALL_REDUCE, COMMS)
    graph = converted(profile, tmp_path).programs[0].graph
    assert [node.communication.bytes_in for node in graph if node.communication] == [4000, 2000]
    assert edges(graph) == {(0, 1), (0, 2)} and len(graph) == 3


def test_kernels_of_a_graph_follow_what_was_issued_before_and_precede_what_comes_after(tmp_path):
    """One launch: 1 forks to 2 on another stream, beside it 3, and 4 joins both; 0 before, 5 after.

    A memset on a third stream of the graph begins with it.  Stream 7 says 0 -> 1 -> 3 -> 4 -> 5.
    """
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    launch = profile.call("cudaGraphLaunch", 8)
    for name, start, took, stream in (
        ("k1", 20, 10, 7), ("k2", 31, 30, 8), ("k3", 31, 10, 7), ("k4", 62, 10, 7),
        ("Memset", 20, 3, 9),
    ):  # fmt: skip
        args = {"correlation": launch, "stream": stream, "device": 0}
        profile._add("kernel", name, start, took, stream, args)
    profile.work(30, 80, 5)
    graph = (workload := converted(profile, tmp_path)).graph
    names = [node.op.rpartition(": ")[2] for node in graph]
    found = {(names[a], names[b]) for a, b in edges(graph) if "gemm" not in (names[a], names[b])}
    assert found == {("k1", "k2"), ("k1", "k3"), ("k3", "k4"), ("k2", "k4")}
    first, last = 0, len(names) - 1
    assert {names[b] for a, b in edges(graph) if a == first} == {"k1", "Memset"}
    assert {names[a] for a, b in edges(graph) if b == last} == {"k4", "k2", "Memset"}
    assert workload.warnings[BY_LAUNCH] == 2


def test_kernels_that_no_call_launched_belong_to_the_op_that_their_number_names(tmp_path):
    profile = Profile(0, 1)
    profile.work(0, 10, 5, name="aten::mm")
    profile.work(10, 20, 5, name="aten::add")
    profile.events = [e for e in profile.events if e["cat"] != "cuda_runtime"]
    workload = converted(profile, tmp_path)
    assert [node.op for node in workload.graph] == ["aten::mm: gemm", "aten::add: gemm"]


def test_a_collective_waits_for_what_its_thread_issued_before(tmp_path):
    """Gradient 0, collective 1 of it, gradient 2 beside it: 1 waits for 0 and does not begin at 0.

    Issue order is 0 (2), 1 (12), 2 (22); 2 runs while 1 does, so that nothing waits for 1 but what
    the optimizer launches, 3.
    """
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 16, 40)
    profile.work(20, 30, 5)
    profile.span("Optimizer.step#SGD.step", 58, 20)
    profile.work(60, 70, 5)
    workload = converted(profile, tmp_path)
    graph = workload.programs[0].graph
    assert edges(graph) == {(0, 1), (0, 2), (2, 3), (1, 3)}
    assert workload.warnings[BY_OPTIMIZER] == 1


def test_a_collective_does_not_wait_for_what_was_not_over(tmp_path):
    """Kernel 1 is issued before the collective 2 and still runs when it begins: 2 waits for 0."""
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.work(10, 20, 500)
    profile.collective(20, 100, 10)
    graph = converted(profile, tmp_path).programs[0].graph
    assert edges(graph) == {(0, 1), (0, 2)}


def test_a_resolved_wait_is_an_edge_from_what_the_stream_had_been_given(tmp_path):
    """The event is recorded between collectives 1 and 2, and waited for before 3 is issued.

    2 is over before 3 begins as well, but nobody asked for it.
    """
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 10)
    profile.collective(20, 31, 10)
    profile.waits(32, WORK, COMMS, recorded=18)
    profile.work(40, 60, 5)
    workload = converted(profile, tmp_path)
    found = edges(workload.programs[0].graph)
    assert (1, 3) in found and (2, 3) not in found
    assert workload.warnings[UNAWAITED] == 1  # collective 2


def test_a_wait_without_streams_is_for_the_oldest_collective_that_was_over(tmp_path):
    """Two collectives, two waits of the thread, each before a kernel: first come, first waited."""
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 10)
    profile.collective(20, 31, 10)
    profile.call("cudaStreamWaitEvent", 38)
    profile.work(40, 60, 5)
    profile.call("cudaStreamWaitEvent", 48)
    profile.work(50, 70, 5)
    workload = converted(profile, tmp_path)
    found = edges(workload.programs[0].graph)
    assert {(1, 3), (2, 4)} <= found and (2, 3) not in found and (1, 4) not in found
    assert workload.warnings[UNRESOLVED] == 2
    assert UNAWAITED not in workload.warnings


def test_the_waits_that_a_library_makes_within_its_collectives_are_its_own(tmp_path):
    """``Profile.collective`` calls cudaStreamWaitEvent within the record: no kernel waits for it.

    Kernel 2 is launched right behind, while the collective runs, and long before it ends.
    """
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 500)
    profile.work(20, 600, 5)
    profile.work(700, 710, 5)
    found = edges(converted(profile, tmp_path).programs[0].graph)
    assert (1, 2) not in found


def test_a_kernel_that_begins_as_a_collective_ends_was_held_back_for_it(tmp_path):
    """Kernel 2 was launched at 22; its stream is idle from 15 to 120, when the collective ends."""
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 100)
    profile.work(20, 121, 5)
    workload = converted(profile, tmp_path)
    assert (1, 2) in edges(workload.programs[0].graph)
    assert workload.warnings[BY_TIME] == 1


def test_a_wait_that_the_times_contradict_is_left_out_and_counted(tmp_path):
    """Kernel 2 begins at 60 while the collective that it is said to wait for runs until 520."""
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 500)
    profile.waits(32, WORK, COMMS, recorded=18)
    profile.work(40, 60, 5)
    workload = converted(profile, tmp_path)
    assert (1, 2) not in edges(workload.programs[0].graph)
    assert workload.warnings[CONTRADICTED] == 1


def test_what_is_issued_after_the_host_waited_for_the_device_runs_after_it(tmp_path):
    """cudaDeviceSynchronize at 25, after kernels on two streams: what follows waits for both."""
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    profile.work(10, 15, 5, stream=8)
    profile.call("cudaDeviceSynchronize", 25)
    profile.work(30, 40, 5)
    assert edges(converted(profile, tmp_path).graph) == {(0, 2), (1, 2)}


def test_several_kernels_of_a_collective_are_one_node(tmp_path):
    """Two NCCL kernels of 10 us in one record: one node of 20 us."""
    profile = Profile(0, 2)
    profile.collective(0, 20, 10)
    record = next(e for e in profile.events if e["name"] == "record_param_comms")
    profile.kernel(record["args"]["External id"], 3, 31, 10, "ncclDevKernel_allreduce", COMMS)
    graph = converted(profile, tmp_path).programs[0].graph
    assert len(graph) == 1 and graph.measured_by_node().tolist() == [20000]


def test_measured_times_go_into_traces_and_simulation_as_they_are(tmp_path):
    """5 us at 10 and 7 us at 20: the step takes 17 us on whatever system, 12 without the host."""
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    profile.work(10, 20, 7)
    workload = converted(profile, tmp_path)
    for system in ("dgx-h100", "dgx-a100"):
        assert abs(workload.simulate(system).step_seconds - 17e-6) < 1e-12
        assert abs(workload.simulate(system, host="none").step_seconds - 12e-6) < 1e-12


def test_times_survive_every_granularity(tmp_path):
    from flint.passes import apply

    profile = Profile(0, 2)
    for number in range(4):
        profile.work(10 * number, 20 + 10 * number, 3 + number)
    profile.collective(50, 70, 11)
    workload = converted(profile, tmp_path)
    for granularity in ("op", "kernel", "region"):
        graph = apply(workload.programs[0].graph, granularity)
        # 3 + 4 + 5 + 6 us of kernels and 11 us of the collective.
        assert graph.measured_by_node().clip(0).sum() == 29_000


def test_collectives_that_traces_do_not_have_stay_kernels_and_are_counted(tmp_path):
    """A gather to one rank: 10 us of compute, and no exchange."""
    profile = Profile(0, 2)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 10, name="gather")
    workload = converted(profile, tmp_path)
    graph = workload.programs[0].graph
    assert not graph.tables.communications
    assert graph.measured_by_node().tolist() == [5000, 10000]
    assert workload.warnings[NO_EXCHANGE] == 1


def test_an_op_on_tensors_is_not_taken_for_the_number_that_it_is_given(tmp_path):
    """``x * 0.5`` on a CPU, as PyTorch 2.13 records it: 100 us, in which 0.5 becomes a tensor."""
    profile = Profile(0, 1)
    types = {"Input type": ["float", "double"]}
    profile.op("aten::mul", 0, 100, **{"Input Dims": [[4, 4], []], **types})
    profile.op("aten::to", 10, 60, **{"Input Dims": [[]], "Input type": ["double"]})
    profile.op("aten::_to_copy", 15, 50, **{"Input Dims": [[]], "Input type": ["double"]})
    profile.op("aten::copy_", 20, 15, **{"Input Dims": [[], []], **types})
    # A number's copy that is inside of nothing on tensors stays an op, the innermost as ever.
    profile.op("aten::_to_copy", 200, 50, **{"Input Dims": [[]], "Input type": ["double"]})
    profile.op("aten::copy_", 210, 15, **{"Input Dims": [[], []], **types})
    # A cast of a tensor is the copy in it.
    profile.op("aten::_to_copy", 300, 50, **{"Input Dims": [[4, 4]], "Input type": ["float"]})
    profile.op("aten::copy_", 310, 30, **{"Input Dims": [[4, 4], [4, 4]], **types})
    graph = converted(profile, tmp_path).graph
    assert [node.op for node in graph] == ["aten::mul", "aten::copy_", "aten::copy_"]
    assert graph.measured_by_node().tolist() == [100_000, 15_000, 30_000]
