"""JSON of AMD's older tracers: kernels with nanoseconds and streams, and the calls that launched.

Of a published run there are a database and the JSON that ``rpd2tracing.py`` made of it, so one is
compared with the other.  The form of rocprof's ``results.json`` is that of ROCm/rocprofiler's
bin/tblextr.py and bin/sqlitedb.py: values are text, microseconds are cut to whole ones, a process
is 6 + the GPU's number, a line is a stream.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from flint.converters.profilers.kineto.observe import linked
from flint.converters.profilers.rocprof.observe import linked as linked_database
from flint.errors import FlintError
from flint.post_execution.converting import convert_traces
from flint.post_execution.same_process import TWICE
from tests.support.profiles import unpacked

NOW = 170_416_151_142_000
COPY, HIP, GPU = 1, 2, 6


def test_json_of_a_database_has_its_kernels_launches_and_waits(tmp_path):
    """JSON has whole microseconds."""
    [(_, database)] = linked_database([unpacked("rpd_matmul.rpd.xz", tmp_path)])
    [(observed, links)] = linked(unpacked("rpd_matmul.json.xz", tmp_path))
    assert len(links.kernel_start) == 85
    mine, its = np.argsort(links.kernel_start), np.argsort(database.kernel_start)
    for column in ("kernel_start", "kernel_launch"):
        apart = getattr(links, column)[mine] - getattr(database, column)[its]
        assert np.abs(apart).max() <= 1000
    names = [[one.names[n] for n in one.kernel_name.tolist()] for one in (links, database)]
    assert sorted(names[0]) == sorted(names[1])
    waits = [[round(w.start, -4) for w in one.host_waits] for one in (links, database)]
    assert waits[0] == waits[1]
    # Besides 121 calls of HIP, the file has five records of the tracer's own threads.
    assert [count for why, count in observed.notes.items() if "ranges and other" in why] == [5]


def test_a_folder_with_both_is_of_one_rank_with_the_databases_nanoseconds(tmp_path):
    """SELECT max(end) - min(start) FROM rocpd_op: 2,964,070,817 ns; the JSON has whole us."""
    for form in ("json", "rpd"):
        unpacked(f"rpd_matmul.{form}.xz", tmp_path)
    workload = convert_traces([tmp_path])
    assert workload.mesh.size == 1 and TWICE.format(1) in workload.warnings
    assert workload.simulate().step_seconds == pytest.approx(2.964_070_817, abs=1e-9)


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
    arrow = {"cat": "DataFlow", "id": 0, "name": "dep"}
    events = [
        {},
        *(
            {"args": {"name": name}, "ph": "M", "pid": pid, "name": "process_name"}
            for pid, name in labels.items()
        ),
        ran("hipLaunchKernel", HIP, 77, 100, 900),
        ran("hipDeviceSynchronize", HIP, 77, 1_100, 4_900),
        ran("Cijk_Ailk_Bljk", GPU + 1, 2, 1_250, 4_750, **dispatched),
        ran("CopyDeviceToHost", COPY, 1, 5_000, 5_400, **dispatched),
        ran("<barrier packet>", GPU + 513, 2, 5_000, 5_100, **dispatched),
        arrow | {"ts": NOW // 1000, "ph": "s", "pid": HIP, "tid": 77},
        arrow | {"ts": NOW // 1000 + 1, "ph": "t", "pid": GPU + 1, "tid": 2},
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"traceEvents": events, "otherData": {}}))
    return path


def test_what_ran_on_gpus_has_its_nanoseconds_streams_and_launch(trace):
    [(observed, links)] = linked(trace)
    assert [links.names[name] for name in links.kernel_name] == ["Cijk_Ailk_Bljk", "Memcpy DtoH"]
    assert (links.kernel_start - NOW).tolist() == [1_250, 5_000]
    assert links.kernel_duration.tolist() == [3_500, 400]
    assert links.kernel_stream.tolist() == [2, 1]
    assert links.kernel_launch.tolist() == [NOW + 100, -1]
    assert [(w.start - NOW, w.end - NOW) for w in links.host_waits] == [(1_100, 4_900)]
    assert not any("devices" in note for note in observed.notes)


def test_its_replay_is_from_the_first_kernel_to_the_last(trace):
    assert convert_traces([trace]).simulate().step_seconds == pytest.approx(4.15e-6)


def test_the_database_of_rocprof_beside_its_json_is_left_out(trace):
    """Its tables as ``rocprof --hip-trace`` made them in a published run, which has both files."""
    path = trace.with_name("results.db")
    with closing(sqlite3.connect(path)) as data:
        data.execute('CREATE TABLE OPS ("BeginNs" INTEGER, "EndNs" INTEGER, "dev-id" INTEGER)')
    workload = convert_traces([trace.parent])
    assert "results.db in the folder is no trace: left out" in workload.warnings
    assert workload.simulate().step_seconds == pytest.approx(4.15e-6)
    with pytest.raises(FlintError, match=r"a database of rocprof's.*\(results.json\)"):
        convert_traces([path])
