"""Timelines: their file is what viewers read, their order is what the program allows."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from flint.converters.pictures.perfetto import communication_seconds, schedule, write_perfetto
from flint.cost.roofline import node_seconds
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.mesh.groups import StridedGroups
from flint.mesh.permutation import permutation
from flint.workload.programs import Level
from flint.workload.workload import Workload
from tests.strategies import workload_graphs

Saved = Callable[..., Workload]
SYSTEM = load_system("dgx-h100")


def tracks(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Complete events by the name of their track, checked for the keys that viewers need."""
    names = {}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        assert event["ph"] == "X"
        assert {"name", "cat", "ts", "dur", "pid", "tid"} <= set(event)
        assert event["ts"] >= 0
        assert event["dur"] > 0
        found[names[event["pid"], event["tid"]]].append(event)
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    def write(workload: Workload, **options: Any) -> dict[str, Any]:
        path = tmp_path_factory.mktemp("perfetto") / "step.json"
        write_perfetto(workload, path, **options)
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    return write


def test_a_stream_runs_one_thing_after_another(saved: Saved, written: Any) -> None:
    shown = tracks(written(saved("llama_tiny_scan_fsdp4_tp2")))
    for name in ("compute", "communication"):
        events = shown[name]
        assert events
        for before, after in pairwise(events):
            assert after["ts"] >= before["ts"] + before["dur"] - 5e-4


def test_iterations_lie_inside_their_loop_and_do_not_overlap(saved: Saved, written: Any) -> None:
    shown = tracks(written(saved("llama_tiny_scan_fsdp4_tp2")))["loops"]
    open_slices: list[float] = []
    previous = 0.0
    for event in shown:
        assert event["ts"] >= previous
        previous = event["ts"]
        end = event["ts"] + event["dur"]
        while open_slices and event["ts"] >= open_slices[-1] - 5e-4:
            open_slices.pop()
        assert not open_slices or end <= open_slices[-1] + 5e-4
        open_slices.append(end)
    assert any(event["name"].startswith("iteration") for event in shown)


def test_a_loop_of_five_has_five_iterations(loop: Workload, written: Any) -> None:
    document = written(loop, granularity="op")
    names = [event["name"] for event in tracks(document)["loops"]]
    assert names[1:] == [f"iteration {i}" for i in range(5)]
    reduces = tracks(document)["communication"]
    assert [event["args"]["iteration"] for event in reduces] == [0, 1, 2, 3, 4]
    assert {event["name"] for event in reduces} == {"all_reduce (model)"}
    assert document["otherData"]["system"] == "dgx-h100"


@given(workload_graphs())
def test_nothing_starts_before_what_it_waits_for_is_over(graph: WorkloadGraph) -> None:
    timeline = schedule(graph, 3, SYSTEM)
    unrolled = timeline.unrolled
    assert (timeline.start[unrolled.consumer] >= timeline.end[unrolled.deps]).all()
    assert (timeline.end >= timeline.start).all()
    for kind in (NodeKind.COMPUTE, NodeKind.COMMUNICATION):
        mine = timeline.drawn & (unrolled.kind == kind)
        assert (timeline.start[mine][1:] >= timeline.end[mine][:-1]).all()


@given(workload_graphs())
def test_something_always_runs_until_the_end(graph: WorkloadGraph) -> None:
    # Greedy: an instance starts when its last dependency ends, or when its stream becomes free.
    timeline = schedule(graph, 0, SYSTEM)
    ends = set(timeline.end.tolist()) | {0}
    assert set(timeline.start.tolist()) <= ends


def test_compute_takes_its_roofline_time(loop: Workload) -> None:
    timeline = schedule(loop.graph, 0, SYSTEM)
    body = loop.graph.loops[0].body
    once = np.rint(node_seconds(loop.graph, SYSTEM) * 1e9).sum()
    each = np.rint(node_seconds(body, SYSTEM) * 1e9).sum()
    assert timeline.busy(NodeKind.COMPUTE) == once + 5 * each


def exchange(kind: str, operand: int, result: int, groups: StridedGroups) -> Communication:
    return Communication(kind, None, groups, None, (operand,), (result,), ("f32",))


def test_a_ring_collective_sends_its_bandwidth_optimal_bytes() -> None:
    inside = StridedGroups(64, ((8, 1),))  # the eight devices of one DGX
    [near, *_] = SYSTEM.network
    assert near.size == 8

    def bandwidth_time(item: Communication) -> float:
        return (communication_seconds(item, 0, SYSTEM) - near.latency) * near.bandwidth

    assert bandwidth_time(exchange("all_reduce", 800, 800, inside)) == pytest.approx(1400)
    assert bandwidth_time(exchange("all_gather", 100, 800, inside)) == pytest.approx(700)
    assert bandwidth_time(exchange("reduce_scatter", 800, 100, inside)) == pytest.approx(700)
    assert bandwidth_time(exchange("all_to_all", 800, 800, inside)) == pytest.approx(700)


def test_a_group_that_leaves_the_node_goes_over_the_outer_network() -> None:
    across = StridedGroups(64, ((8, 8),))
    far = SYSTEM.network[-1]
    seconds = communication_seconds(exchange("all_gather", 100, 800, across), 9, SYSTEM)
    assert seconds == pytest.approx(700 / far.bandwidth + far.latency)


def test_who_has_no_partner_does_not_communicate() -> None:
    alone = exchange("all_reduce", 800, 800, StridedGroups(64, ()))
    assert communication_seconds(alone, 5, SYSTEM) == 0
    pair = permutation(8, np.array([[0, 1]]))
    item = Communication("collective_permute", None, None, pair, (64,), (64,), ("f32",))
    near = SYSTEM.network[0]
    expected = 64 / near.bandwidth + near.latency
    assert communication_seconds(item, 0, SYSTEM) == pytest.approx(expected)
    assert communication_seconds(item, 1, SYSTEM) == pytest.approx(expected)
    assert communication_seconds(item, 2, SYSTEM) == 0


def test_a_name_that_ends_with_gz_is_packed(loop: Workload, tmp_path: Path) -> None:
    write_perfetto(loop, tmp_path / "step.json.gz")
    write_perfetto(loop, tmp_path / "step.json")
    with gzip.open(tmp_path / "step.json.gz", "rt") as packed:
        assert json.load(packed) == json.loads((tmp_path / "step.json").read_text())


def test_a_rank_outside_the_mesh_is_refused(loop: Workload, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rank 8: ranks go from 0 to 7"):
        write_perfetto(loop, tmp_path / "step.json", rank=8)
    assert not (tmp_path / "step.json").exists()


def test_a_program_that_is_not_partitioned_is_refused(loop: Workload, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not partitioned"):
        write_perfetto(replace(loop, level=Level.LOGICAL), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_the_rank_decides_whose_program_it_is(two_programs: Workload, written: Any) -> None:
    assert written(two_programs, rank=5)["otherData"]["program"] == "high"
    assert written(two_programs, program="high")["otherData"]["rank"] == 4
    with pytest.raises(UsageError, match=r"rank 1 does not run program high \(its ranks: 4-7\)"):
        written(two_programs, program="high", rank=1)


def test_every_kernel_of_a_loop_lies_in_its_iteration(saved: Saved, written: Any) -> None:
    # The module has two loops, forward and backward; neither is in the other.
    shown = tracks(written(saved("llama_tiny_scan_fsdp4_tp2")))
    slices: dict[tuple[str, int], tuple[float, float]] = {}
    loop = ""
    for event in shown["loops"]:
        kind, name, *_ = event["name"].split()
        if kind == "loop":
            loop = name
        else:
            slices[loop, int(name)] = (event["ts"], event["ts"] + event["dur"])
    assert len(slices) == 4  # two layers, forward and backward
    inside = [event for event in shown["compute"] if "/" in event["args"]["node"]]
    assert inside
    for event in inside:
        owner = event["args"]["node"].rpartition("/")[0]
        start, end = slices[owner, event["args"]["iteration"]]
        assert start - 1e-3 <= event["ts"]
        assert event["ts"] + event["dur"] <= end + 1e-3
