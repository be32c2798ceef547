"""The timeline of one rank: whose it is, and that it is the simulated one."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flint.converters.pictures.perfetto import write_perfetto
from flint.errors import UsageError
from flint.simulation.recording import record
from flint.workload.programs import Level
from flint.workload.workload import Workload
from tests.simulation.test_simulate import pipeline

Saved = Callable[..., Workload]


def tracks(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Complete events by the name of their track."""
    names = {}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            found[names[event["pid"], event["tid"]]].append(event)
    return found


def process(document: dict[str, Any]) -> list[tuple[int, str]]:
    """Number and name of each process."""
    events = document["traceEvents"]
    return [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    def write(workload: Workload, **options: Any) -> dict[str, Any]:
        path = tmp_path_factory.mktemp("perfetto") / "step.json"
        write_perfetto(workload, path, **options)
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    return write


def test_it_is_the_simulated_step(saved: Saved, written: Any) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    document = written(workload)
    shown = tracks(document)
    [first] = record(workload, "dgx-h100").ranks
    for name, chosen in (("compute", first.computes), ("communication", first.communicates)):
        ticks = int((first.end - first.start)[chosen].sum())
        assert sum(event["dur"] for event in shown[name]) == pytest.approx(ticks / 1e6)
    result = workload.simulate("dgx-h100")
    assert document["otherData"]["step_us"] / 1e6 == pytest.approx(result.step_seconds)
    assert document["otherData"]["system"] == "dgx-h100"
    for events in shown.values():
        for before, after in pairwise(events):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-6


def test_every_iteration_is_drawn(loop: Workload, written: Any) -> None:
    reduces = tracks(written(loop, granularity="op"))["communication"]
    assert [event["args"]["iteration"] for event in reduces] == [0, 1, 2, 3, 4]
    assert {event["name"] for event in reduces} == {"all_reduce (model)"}


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
    assert process(written(two_programs, rank=5)) == [(5, "rank 5 (high)")]
    assert process(written(two_programs, program="high")) == [(4, "rank 4 (high)")]
    assert process(written(two_programs)) == [(0, "rank 0 (low)")]
    with pytest.raises(UsageError, match=r"rank 1 does not run program high \(its ranks: 4-7\)"):
        written(two_programs, program="high", rank=1)


def test_a_stage_waits_for_the_one_before_it(written: Any) -> None:
    """The other ranks take part, though one is drawn: the second stage begins with a message."""
    second = written(pipeline(4), rank=6)
    [(_, name)] = process(second)
    assert name == "rank 6 (main_1)"
    first = tracks(written(pipeline(4), rank=2))
    sent = first["communication"][0]
    began = tracks(second)["compute"][0]["ts"]
    assert began >= sent["ts"] + sent["dur"] - 1e-6
