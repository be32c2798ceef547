"""Large files are read by two processes: what comes of two halves is what comes of one whole.

The idea: the limit below which one process reads a file is taken away.  The oracle is the same
reader without a second process; and that its halves were joined is observed, because a file that
cannot be divided is read by one.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from flint.converters.profilers import json_text
from flint.converters.profilers.kineto import halves
from flint.converters.profilers.kineto.observe import linked
from flint.errors import FlintError
from tests.converters.profilers.test_merged_traces import devices, whole
from tests.post_execution.traces import Profile

REAL = Path(__file__).parents[2] / "data/traces/resnet50_ddp_nccl_calls_rank0.json.gz"


@pytest.fixture
def joined(monkeypatch):
    """What the second halves were, of files of any size."""
    found = []

    def join(mine, data, of=halves._join):
        found.append(len(data))
        return of(mine, data)

    monkeypatch.setattr(halves, "_WORTHWHILE", 1)
    monkeypatch.setattr(halves, "spare_processor", lambda: True)
    monkeypatch.setattr(halves, "_join", join)
    return found


def content(path):
    """All columns that come of a file, or how it is refused."""
    try:
        return [
            {field.name: getattr(part, field.name) for field in fields(part)}
            for pair in linked(path)
            for part in pair
        ]
    except FlintError as error:
        return str(error)


def assert_same(path, monkeypatch):
    """Both processes together find what one finds alone."""
    both = content(path)
    with monkeypatch.context() as alone:
        alone.setattr(halves, "spare_processor", lambda: False)
        one = content(path)
    np.testing.assert_equal(both, one)
    assert one


def write(path, trace, **style):
    """A file as the profiler writes it, packed or not."""
    text = json.dumps(trace, **style)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def long_profile():
    """More events than are decoded at once, with those that are not ops, as a profiler has them."""
    profile = Profile(0, 2)
    for step in range(40):
        begin = 10_000 * step
        profile.span(f"ProfilerStep#{step}", begin, 9_000)
        for place in range(20):
            at = begin + 100 * place
            profile.work(at, at + 30, 20, **{"Input Dims": [[step + 1, 4], [4, place + 2]]})
        profile.collective(begin + 3000, begin + 3050, 40, count=1000 + step)
        profile.call("cudaDeviceSynchronize", begin + 4000)
    return {
        "distributedInfo": profile.info,
        "traceEvents": profile.events,
        "traceName": "a, b",
    }


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
@pytest.mark.parametrize("style", [{}, {"indent": 1}, {"separators": (",", ":")}])
def test_two_halves_are_one_whole(tmp_path, monkeypatch, joined, name, style):
    path = write(tmp_path / name, long_profile(), **style)
    assert_same(path, monkeypatch)
    assert len(joined) == 1


def test_a_real_profile(tmp_path, monkeypatch, joined):
    assert_same(REAL, monkeypatch)
    assert len(joined) == 1


def test_a_separator_within_an_object_divides_nothing(tmp_path, monkeypatch, joined):
    """In the middle is one event with a list of objects like events: its end is not in the half."""
    trace = long_profile()
    events = trace["traceEvents"]
    inside = [dict(event) for event in events]
    events.insert(len(events) // 2, events[3] | {"args": {"nested": inside}})
    assert_same(write(tmp_path / "rank0.json", trace), monkeypatch)
    assert not joined


@pytest.mark.parametrize("labels", [10, 8000])
def test_objects_that_begin_with_another_key_are_not_kept_all_at_once(
    tmp_path, monkeypatch, joined, labels
):
    """As in a profile of an MTIA by HolisticTraceAnalysis, half of which labels its threads again
    and again: there is no place in the middle at which to divide the file, and little is kept.
    """
    trace = long_profile()
    events = trace["traceEvents"]
    middle = len(events) // 2
    label = {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "stream 7"}}
    trace["traceEvents"] = events[:middle] + [label] * labels + events[middle:]
    kept = []

    def room(size):
        kept.append(size)

    monkeypatch.setattr(json_text, "check_room", room)
    monkeypatch.setattr(json_text, "_NEAR", 4 << 10)
    path = write(tmp_path / "rank0.json", trace)
    assert_same(path, monkeypatch)
    assert len(joined) == (labels < 100)
    piece = 512 << 10  # and what remains of the one before
    assert max(kept) < json_text.PER_CHARACTER * piece + json_text.AT_ONCE
    assert path.stat().st_size > piece or labels < 100


def test_another_process_in_the_second_half_is_met(tmp_path, monkeypatch, joined):
    traces = [devices(rank, 7) for rank in (0, 1)]
    events = [event for trace in traces for event in trace["traceEvents"]]
    assert_same(write(tmp_path / "both.json", whole(traces, events)), monkeypatch)
    assert not joined


@pytest.mark.parametrize("where", [0.3, 0.8, 0.97])
def test_damage_is_reported_as_one_process_reports_it(tmp_path, monkeypatch, joined, where):
    path = write(tmp_path / "rank0.json", long_profile())
    text = path.read_text()
    at = int(where * len(text))
    for damaged in (text[:at], text[:at] + "}" + text[at:]):
        path.write_text(damaged)
        assert_same(path, monkeypatch)


def test_what_only_the_second_half_has(tmp_path, monkeypatch, joined):
    """Unknown categories, labels of processes, calls of other processes, big numbers."""
    trace = long_profile()
    common = {"ph": "X", "ts": 5, "dur": 1, "tid": 1, "name": "n"}
    trace["traceEvents"] += [
        common | {"cat": "never_seen", "pid": 0, "args": {}},
        common | {"cat": "cuda_runtime", "pid": 99, "args": {"correlation": 1}},
        {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "rank 3"}},
        common | {"cat": "cpu_op", "pid": 0, "args": {"External id": 1 << 70}},
    ]
    for event in trace["traceEvents"]:
        event.setdefault("pid", 0)
    assert_same(write(tmp_path / "rank0.json", trace), monkeypatch)
