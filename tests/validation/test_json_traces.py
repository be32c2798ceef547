"""Big JSON files: read piece by piece, within bounds, in memory that hardly grows."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

from benchmarks import kineto_trace
from flint.converters import json_traces, kineto
from flint.errors import FlintError


def test_what_unpacks_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b" " * 2_000_000))
    with pytest.raises(FlintError, match="larger than 1,000,000 bytes when it is unpacked"):
        json_traces.read_bytes(path, 1_000_000)


def test_a_trace_read_in_small_pieces_is_the_same_trace(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    events = [{"name": f'naïve "op" {n}', "args": {"k": [[n], "\\"]}} for n in range(50)]
    path.write_text(json.dumps({"traceEvents": events, "traceName": "é"}, ensure_ascii=False))
    monkeypatch.setattr(json_traces, "_PIECE", 7)
    trace = json_traces.JsonTrace.read(path)
    assert list(trace.items("traceEvents")) == events
    assert trace.rest("traceEvents") == {"traceEvents": [], "traceName": "é"}


def test_an_object_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * 100_000)
    monkeypatch.setattr(json_traces, "_PIECE", 1000)
    monkeypatch.setattr(json_traces, "_MAX_ITEM", 5000)
    with pytest.raises(FlintError, match="an object of more than 5,000 characters"):
        list(json_traces.JsonTrace.read(path).items("traceEvents"))


def test_memory_grows_by_less_than_twice_what_the_file_does(tmp_path):
    peaks = []
    for size in (3_000_000, 6_000_000):
        path = tmp_path / f"{size}.json"
        kineto_trace.write(path, size)
        tracemalloc.start()
        try:
            kineto.observe(path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2 * 3_000_000
