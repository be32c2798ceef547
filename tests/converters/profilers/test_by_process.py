"""Events without a category: Ascend's NPUs, and PyTorch's profiler before Kineto.

The form of Ascend's is that of a published file (Ascend/msprof-analyze,
test/ut/advisor/advisor_backend/timeline_advice/trace_view.json), whose 276 tasks of one stream
last 1,790.75 us and span 11,270 us; so does its replay.  That of the other is of PyTorch 1.8
(KeondoPark/luxmea, votenet_original/profiler_trace.json): 3,257,428.525 us.
"""

from __future__ import annotations

import json

import pytest

from flint.converters.profilers.kineto.observe import linked
from flint.post_execution.converting import convert_traces

#: A moment of a clock since 1970, in microseconds: with nanoseconds, beyond a float's 53 bits.
NOW = 1704161511420000
HOST, NPU, RUNTIME, OVERLAP, HCCL = 7, 8, 9, 10, 11
NAMES = {NPU: "Ascend Hardware", RUNTIME: "CANN", OVERLAP: "Overlap Analysis", HCCL: "HCCL"}


def at(microseconds):
    """A time as Ascend's profiler writes it."""
    return f"{NOW + int(microseconds)}.{round(microseconds % 1 * 1000):03d}"


def event(name, pid, tid, ts, dur, **more):
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": at(ts), "dur": dur} | more


def task(name, ts, dur, connection, kind="AI_CORE"):
    args = {"Task Type": kind, "Stream Id": 3, "connection_id": connection}
    return event(name, NPU, 3, ts, dur, args=args)


def arrow(category, number, source, target):
    """From (process, thread, time) to another."""
    return [
        {"ph": ph, "cat": category, "id": number, "name": "", "pid": pid, "tid": tid, "ts": at(ts)}
        for ph, (pid, tid, ts) in (("s", source), ("f", target))
    ]


@pytest.fixture
def npu(tmp_path):
    """Two products on an NPU, launched by a second thread; between them, it waits for an event."""
    trace = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in NAMES.items()
    ]
    for number, (op, launch, begin) in enumerate(((0, 12, 30.25), (100, 115, 200.5))):
        trace += [
            event("aten::mm", HOST, 1, op, 20, cat="cpu_op"),
            event("aclnnMm", HOST, 1, op + 5, 4, cat="cpu_op"),
            task(f"aclnnMm_MatMul{number}", begin, 10, 5 + number),
            *arrow("HostToDevice", str(number), (RUNTIME, 2, launch), (NPU, 3, begin)),
            *arrow("async_npu", 70 + number, (HOST, 1, op + 5), (NPU, 3, begin)),
            event("Computing", OVERLAP, 0, begin, 10),
        ]
    trace.append(task("EVENT_WAIT", 41, 150, 9, "EVENT_WAIT_SQE"))
    trace.append(
        event("AscendCL@aclrtSynchronizeDevice", RUNTIME, 1, 125, 90, args={"connection_id": 1})
    )
    trace.append(event("hcom_allReduce__1", HCCL, 4, 40, 10))
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(trace))
    return path


def test_the_tasks_of_an_npu_are_kernels_of_the_ops_that_arrows_name(npu):
    [(observed, links)] = linked(npu)
    ops = [observed.facts[number].name for number in observed.op]
    assert ops == ["aten::mm", "aten::mm"]
    assert links.kernel_row.tolist() == [0, 1]
    first = NOW * 1000
    assert (links.kernel_start - first).tolist() == [30_250, 200_500]
    assert links.kernel_duration.tolist() == [10_000, 10_000]
    assert links.kernel_stream.tolist() == [3, 3]
    assert (links.kernel_launch - first).tolist() == [12_000, 115_000]
    assert [(w.start - first, w.end - first) for w in links.host_waits] == [(125_000, 215_000)]


def test_the_replay_of_an_npu_is_from_its_first_task_to_its_last(npu):
    """From 30.25 us to 210.5 us, in which two tasks of 10 us ran."""
    result = convert_traces([npu]).simulate()
    assert result.step_seconds == pytest.approx(180.25e-6)
    [program] = result.programs
    assert program.figures.compute_seconds == pytest.approx(20e-6)


def test_communications_of_hccl_are_counted_as_left_out(npu):
    warnings = " ".join(convert_traces([npu]).warnings)
    assert "communications of HCCL" in warnings


def test_a_profile_from_before_kineto_is_its_hosts(tmp_path):
    """linear (0 to 30 us) has addmm (5 to 25) in it; relu takes 40 to 50."""
    rows = [("aten::linear", 0, 30), ("aten::addmm", 5, 20), ("aten::relu", 40, 10)]
    trace = [
        {
            "name": name, "ph": "X", "ts": ts + 0.5, "dur": dur, "tid": 1, "pid": "CPU functions",
            "args": {},
        }
        for name, ts, dur in rows
    ]  # fmt: skip
    trace.append(trace[1] | {"pid": "CUDA functions", "tid": 0})
    path = tmp_path / "old.json"
    path.write_text(json.dumps(trace))
    workload = convert_traces([path])
    assert workload.simulate().step_seconds == pytest.approx(50e-6)
    assert "before Kineto took around ops" in " ".join(workload.warnings)


def test_events_of_unknown_categories_are_counted(tmp_path):
    """A device whose profiler has categories of its own: nothing is lost in silence."""
    row = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 0, "dur": 9}
    trace = [row, *({**row, "cat": "aiu", "tid": 2, "ts": ts} for ts in (20, 40))]
    trace.append(row | {"cat": "overhead"})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": trace}))
    warnings = convert_traces([path]).warnings
    assert warnings["events of categories that are not known (aiu): left out"] == 2
