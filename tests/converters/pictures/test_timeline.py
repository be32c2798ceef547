"""Timelines of simulated steps: against the simulator's sums, the graph's names and the format."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import flint
from flint.cli import main
from flint.converters.pictures import timeline
from flint.converters.pictures.streams import COMMUNICATION, COMPUTE
from flint.converters.pictures.timeline import write_timeline
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.graph.graph import Source, with_tables
from flint.mesh.mesh import Mesh
from flint.passes import apply
from flint.simulation.recording import record
from tests.converters.chakra.write.cases import any_communication
from tests.graph.unrolling.random_graphs import programs as random_programs
from tests.simulation.test_simulate import overlapped, pipeline, workload_of
from tests.support.shared import examples

ROOT = Path(__file__).parents[3]
MESH = Mesh((8, 8), ("data", "model"))


def written(workload, folder, system="dgx-h100", **options):
    write_timeline(record(workload, system, **options), folder / "step.json")
    # Decimals: every digit of the file counts.
    return json.loads((folder / "step.json").read_text(), parse_float=Decimal)


def slices(document):
    found = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def seconds(events):
    return float(sum(event["dur"] for event in events)) / 1e6


def test_streams_do_not_overlap_and_add_up_to_the_simulation(tmp_path):
    workload = overlapped(MESH, "data", 3)
    result = workload.simulate("dgx-h100")
    document = written(workload, tmp_path)
    found = slices(document)
    assert set(found) == {(0, COMPUTE), (0, COMMUNICATION)}
    for events in found.values():
        for before, after in pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"]
    assert seconds(found[0, COMPUTE]) == pytest.approx(result.compute_seconds, rel=1e-12)
    assert seconds(found[0, COMMUNICATION]) == pytest.approx(
        result.communication_seconds, rel=1e-12
    )
    last = max(e["ts"] + e["dur"] for events in found.values() for e in events)
    assert float(last) / 1e6 == pytest.approx(result.step_seconds, rel=1e-12)
    assert document["otherData"]["system"] == "dgx-h100"


def test_slices_are_the_nodes_of_the_graph(tmp_path):
    workload = overlapped(MESH, "data", 3)
    found = slices(written(workload, tmp_path))
    graph = apply(workload.graph, "kernel")
    computed = Counter(node.op for node in graph if node.op != "all_gather" and node.flops)
    assert Counter(e["name"] for e in found[0, COMPUTE]) == computed
    [gather] = found[0, COMMUNICATION]
    assert gather["name"] == "all_gather (data)"
    assert gather["args"]["result_bytes"] == 4096 * 4096 * 2
    assert all(e["args"]["flops"] == 2 * 4096**3 for e in found[0, COMPUTE])


def test_every_program_is_a_process_and_messages_are_arrows_between_them(tmp_path):
    system = without(load_system("dgx-h100"), ("contention",))
    document = written(pipeline(4), tmp_path, system)
    names = {e["pid"]: e["args"]["name"] for e in document["traceEvents"]
             if e["name"] == "process_name"}  # fmt: skip
    assert names == {0: "rank 0 (main_0)", 4: "rank 4 (main_1)"}
    ends = defaultdict(dict)
    for event in document["traceEvents"]:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    crossing = [e for e in ends.values() if e["s"]["pid"] != e["f"]["pid"]]
    assert len(crossing) == 4  # one per microbatch
    for arrow in crossing:
        assert (arrow["s"]["pid"], arrow["f"]["pid"]) == (0, 4)
        assert arrow["s"]["ts"] < arrow["f"]["ts"]
    iterations = [e["args"]["iteration"] for e in slices(document)[4, COMPUTE]]
    assert iterations == [0, 1, 2, 3]
    # The second stage waits for its first message; the others are there when it asks for them.
    waits = Counter(e["ph"] for e in document["traceEvents"])
    assert waits["b"] == waits["e"] == 1


@given(random_programs(any_communication))
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_program_is_drawn_whole(tmp_path, graph):
    workload = workload_of(graph, mesh=Mesh((3, 2), ("data", "model")))
    try:
        result = workload.simulate("dgx-h100", granularity="op")
    except FlintError as error:
        assert "nothing to simulate" in str(error)
        return
    recording = record(workload, "dgx-h100", granularity="op")
    document = written(workload, tmp_path, granularity="op")
    assert recording.step / 1e12 == pytest.approx(result.step_seconds, rel=1e-12)
    found = slices(document)
    for (_, stream), events in found.items():
        assert stream in (COMPUTE, COMMUNICATION)
        for before, after in pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"]
    # Every arrow leaves from and comes to a slice of its own stream.
    for event in document["traceEvents"]:
        if event["ph"] in "sf":
            assert any(
                e["ts"] <= event["ts"] < e["ts"] + e["dur"]
                for e in found[event["pid"], event["tid"]]
            )
    if result.behaviours == 1:
        compute = [e for (_, stream), es in found.items() if stream == COMPUTE for e in es]
        assert seconds(compute) == pytest.approx(result.compute_seconds, rel=1e-9)


def test_arrows_are_limited_and_the_rest_is_counted(tmp_path):
    recording = record(pipeline(8), "dgx-h100")
    write_timeline(recording, tmp_path / "few.json", max_flows=3)
    document = json.loads((tmp_path / "few.json").read_text())
    assert sum(e["ph"] == "s" for e in document["traceEvents"]) == 3
    assert document["otherData"]["flows"] == 3
    assert document["otherData"]["flows_left_out"] > 0


def test_too_many_slices_are_refused_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SLICES", 2)
    with pytest.raises(FlintError, match=r"3 slices, .* \(region\)"):
        written(overlapped(MESH, "data"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_packed_timeline(tmp_path, capsys):
    overlapped(MESH, "data").save_programs(tmp_path / "out")
    path = tmp_path / "step.json.gz"
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--timeline", str(path), "--json"])
    assert stopped.value.code == 0
    result = json.loads(capsys.readouterr().out)
    with gzip.open(path, "rt") as file:
        document = json.load(file)
    assert document["otherData"]["step_us"] / 1e6 == pytest.approx(result["step_seconds"])


def test_a_recording_is_of_the_step_that_was_simulated():
    """Attention that is spelt out is a fused kernel in both."""
    path = ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc"
    workload = flint.convert(path, mesh=(64, 8), axes=("data", "model"))
    recording = record(workload, "dgx-h100")
    result = workload.simulate("dgx-h100")
    assert recording.step / 1e12 == pytest.approx(result.step_seconds, rel=1e-12)
    [times_and_bytes] = [item.memory_over_time() for item in recording.ranks]
    assert times_and_bytes[1].max() == result.peak_memory_bytes


#: Phase -> what its events must have, by the "Trace Event Format" document.
REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "pid", "tid", "ts", "id", "bp"},
    "b": {"name", "cat", "pid", "ts", "id"},
    "e": {"name", "cat", "pid", "ts", "id"},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def check_format(document):
    """Whether a viewer that keeps to the format can read a file."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    threads, flows, pairs = set(), defaultdict(list), defaultdict(list)
    for event in document["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert METADATA[event["name"]] in event["args"]
            threads.add((event["pid"], event.get("tid")))
            continue
        assert event["ts"] >= 0 and isinstance(event["ts"], Decimal)
        assert event.get("dur", 1) > 0
        if "tid" in event:
            assert (event["pid"], event["tid"]) in threads, "a stream without a name"
        if event["ph"] in "sf":
            flows[event["cat"], event["id"]].append(event)
        if event["ph"] in "be":
            # The id alone shows what belongs together, regardless of the process.
            pairs[event["cat"], event["id"]].append(event)
    for found in (*flows.values(), *pairs.values()):
        assert [event["ph"] for event in found] in (["s", "f"], ["b", "e"])
        assert len({event["name"] for event in found}) == 1
        assert found[0]["ts"] <= found[1]["ts"]
    for found in pairs.values():
        assert len({event["pid"] for event in found}) == 1


@pytest.mark.parametrize(
    "workload", [overlapped(MESH, "data", 5), pipeline(8)], ids=["one program", "pipeline"]
)
def test_files_keep_to_the_trace_event_format(tmp_path, workload):
    check_format(written(workload, tmp_path))


def test_slices_name_their_layers(tmp_path):
    [program] = overlapped(MESH, "data", 3).programs
    tables = replace(program.graph.tables, sources=(Source(layer="layers.7.mlp"),))
    graph = with_tables(program.graph, tables)
    document = written(workload_of(graph, mesh=MESH), tmp_path)
    check_format(document)
    layers = {e["args"]["layer"] for events in slices(document).values() for e in events}
    assert layers == {"layers.7.mlp"}
