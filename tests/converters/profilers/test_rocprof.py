"""JSON of AMD's rocprof (ROCm/rocprofiler, bin/tblextr.py and bin/sqlitedb.py): values are text,
microseconds are cut to whole ones, a process is 6 + the GPU's number, a line is a stream.
"""

from __future__ import annotations

import json

import pytest

from flint.converters.profilers.kineto.observe import linked
from flint.post_execution.converting import convert_traces

NOW = 170_416_151_142_000
COPY, HIP, GPU = 1, 2, 6


def ran(name, pid, tid, begin, end, **more):
    """Nanoseconds since ``NOW``."""
    begin, end = NOW + begin, NOW + end
    times = {"BeginNs": str(begin), "EndNs": str(end), "DurationNs": str(end - begin)}
    return {
        "ph": "X", "name": name, "pid": str(pid), "tid": str(tid), "ts": str(begin // 1000),
        "dur": str((end - begin) // 1000 or 1), "args": {"Name": name, **times, **more},
    }  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    labels = {HIP: "CPU HIP API", COPY: "COPY", GPU + 1: "GPU1", GPU + 513: "GPU Barriers1"}
    dispatched = {"dev-id": "1", "queue-id": "0", "stream-id": "2"}
    events = [
        {},
        *(
            {"args": {"name": name}, "ph": "M", "pid": pid, "name": "process_name"}
            for pid, name in labels.items()
        ),
        ran("hipLaunchKernel", HIP, 77, 100, 900),
        ran("Cijk_Ailk_Bljk", GPU + 1, 2, 1_250, 4_750, **dispatched),
        ran("CopyDeviceToHost", COPY, 1, 5_000, 5_400, **dispatched),
        ran("<barrier packet>", GPU + 513, 2, 5_000, 5_100, **dispatched),
        {"ts": NOW // 1000, "ph": "s", "cat": "DataFlow", "id": 0, "pid": HIP, "tid": 77},
        {"ts": NOW // 1000 + 1, "ph": "t", "cat": "DataFlow", "id": 0, "pid": GPU + 1, "tid": 2},
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"traceEvents": events, "otherData": {}}))
    return path


def test_what_ran_on_gpus_has_its_nanoseconds_and_streams(trace):
    [(observed, links)] = linked(trace)
    assert [links.names[name] for name in links.kernel_name] == [
        "Cijk_Ailk_Bljk", "CopyDeviceToHost"
    ]  # fmt: skip
    assert (links.kernel_start - NOW).tolist() == [1_250, 5_000]
    assert links.kernel_duration.tolist() == [3_500, 400]
    assert links.kernel_stream.tolist() == [2, 1]
    assert not any("devices" in note for note in observed.notes)


def test_its_replay_is_from_the_first_kernel_to_the_last(trace):
    workload = convert_traces([trace])
    assert workload.simulate().step_seconds == pytest.approx(4.15e-6)
    assert "only the times on the device are used" in " ".join(workload.warnings)
