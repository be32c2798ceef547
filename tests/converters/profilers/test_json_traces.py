"""Big JSON files: read piece by piece, within bounds, in memory that hardly grows."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import kineto_trace
from flint.converters.profilers import json_text, json_traces
from flint.converters.profilers.kineto.observe import observe as observe_kineto
from flint.errors import FlintError
from flint.host import packed_files
from tests.support.shared import examples


def test_what_unpacks_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b" " * 2_000_000))
    with pytest.raises(FlintError, match="larger than 1,000,000 bytes when decompressed"):
        packed_files.read_bytes(path, 1_000_000)


def test_a_trace_read_in_small_pieces_is_the_same_trace(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    events = [{"name": f'naïve "op" {n}', "args": {"k": [[n], "\\"]}} for n in range(50)]
    path.write_text(json.dumps({"traceEvents": events, "traceName": "é"}, ensure_ascii=False))
    monkeypatch.setattr(packed_files, "_PIECE", 7)
    trace = json_traces.JsonTrace.read(path)
    assert list(trace.items("traceEvents")) == events
    assert trace.rest("traceEvents") == {"traceEvents": [], "traceName": "é"}


def test_half_of_a_surrogate_pair_is_not_text(tmp_path):
    """JSON may have it as an escape; UTF-8, which everything is written in, has no such thing."""
    path = tmp_path / "t.json"
    path.write_text(r"""{"traceEvents": [{"name": "a\ud800", "ts": NaN}, {"name": "\ud83d\ude00"}],
        "traceName": "\udc00"}""")
    trace = json_traces.JsonTrace.read(path)
    assert [event["name"] for event in trace.items("traceEvents")] == ["a?", "\N{GRINNING FACE}"]
    assert trace.rest("traceEvents")["traceName"] == "?"


@pytest.mark.parametrize("piece", [7, 1 << 17])
def test_a_trace_cut_at_any_character_has_all_events_before_it(piece, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_files, "_PIECE", piece)
    events = [
        {"name": 'a "\\ \u00e9', "ts": -1.5e3, "args": {"k": [[n], None, True], "x": float("nan")}}
        for n in range(3)
    ]
    written = [json.dumps(event) for event in events]
    text = '{"schemaVersion": 1, "traceEvents": [' + ", ".join(written) + '], "traceName": "t"}'
    begin = text.index("[")
    ends = [text.index(event) + len(event) for event in written]
    for cut in range(begin + 1, len(text)):
        path = tmp_path / "t.json"
        path.write_text(text[:cut])
        trace = json_traces.JsonTrace.read(path)
        found = [json.dumps(event) for event in trace.items("traceEvents")]
        assert found == written[: sum(end <= cut for end in ends)], cut
        assert trace.rest("traceEvents")["schemaVersion"] == 1
        assert "cut off" in trace.cut_off, cut


def test_an_object_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * 100_000)
    monkeypatch.setattr(packed_files, "_PIECE", 1000)
    monkeypatch.setattr(json_traces, "MAX_ITEM", 5000)
    with pytest.raises(FlintError, match="an object of more than 5,000 characters"):
        list(json_traces.JsonTrace.read(path).items("traceEvents"))


def test_memory_grows_by_less_than_twice_what_the_file_does(tmp_path):
    peaks = []
    for size in (3_000_000, 6_000_000):
        path = tmp_path / f"{size}.json"
        kineto_trace.write(path, size)
        tracemalloc.start()
        try:
            observe_kineto(path)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2 * 3_000_000


class Searched(str):
    """Text that counts how often it is searched."""

    times = 0

    def rfind(self, *where):
        type(self).times += 1
        return super().rfind(*where)


def test_text_is_searched_once_for_a_separator_that_is_not_in_it():
    """Of a list whose first object begins unlike all others; else time grows with its square."""
    runs = json_text.Runs(json.loads)
    text = Searched('{"first": 1}, ' + ", ".join('{"other": 2}' for _ in range(100)))
    runs.learn(text, 0, 12)
    assert [runs.decode(text, at) for at in range(12, 1000, 14)] == [None] * 71
    assert Searched.times == 1
    runs.learn(text, 14, 26)
    following = "".join(text[14:])
    assert runs.decode(following, 0) == ([{"other": 2}] * 99, 14 * 99 - 2)


KEYS = st.sampled_from(["a", "b", "id", "name"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
LAYOUTS = st.sampled_from(
    [{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}, {"indent": "\t"}]
)


@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    listed=st.lists(st.dictionaries(KEYS, VALUES, max_size=3) | VALUES, max_size=30),
    behind=st.dictionaries(KEYS, VALUES, max_size=2),
    layout=LAYOUTS,
    piece=st.sampled_from([7, 64, 1 << 20]),
)
def test_whatever_json_writes_is_read_as_json_reads_it(
    tmp_path, monkeypatch, listed, behind, layout, piece
):
    monkeypatch.setattr(packed_files, "_PIECE", piece)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"events": listed, **behind}, **layout), encoding="utf-8")
    whole = json.loads(path.read_text(encoding="utf-8"))
    read = list(json_traces.JsonTrace.read(path).items("events"))
    assert repr(read) == repr([item for item in whole["events"] if isinstance(item, dict)])


def test_text_is_decoded_only_where_all_that_can_come_of_it_has_room(tmp_path, monkeypatch):
    """msgspec 0.22 writes to strings that it did not get: a process ends by SIGSEGV."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{"name": f"op {n}"} for n in range(1000)]}))
    monkeypatch.setattr(packed_files, "_PIECE", 1000)
    rooms = []
    monkeypatch.setattr(json_text, "check_room", rooms.append)
    events = list(json_traces.JsonTrace.read(path).items("traceEvents"))
    assert len(events) == 1000
    assert len(rooms) > 10
    # The worst of 8 bytes: a dictionary with a table of 8 places and a list, 64 + 184 + 72 bytes.
    assert min(rooms) >= 40 * len('{"name": "op 999"}, ')


class Kept(msgspec.Struct):
    """What is read of an object."""

    a: Any = None
    id: Any = None


@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    listed=st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=30),
    layout=LAYOUTS,
    piece=st.sampled_from([7, 64, 1 << 20]),
    share=st.floats(0, 1),
)
def test_the_halves_of_a_list_are_the_list(tmp_path, monkeypatch, listed, layout, piece, share):
    """Where the first half ends with an object; else the reader of the first reads on."""
    monkeypatch.setattr(packed_files, "_PIECE", piece)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"events": listed, "behind": 1}, **layout), encoding="utf-8")
    half = json_traces.Half(int(share * path.stat().st_size))
    whole = list(json_traces.JsonTrace.read(path).records("events", Kept, "x"))
    trace = json_traces.JsonTrace.read(path)
    first = []
    for objects in trace.runs("events", Kept, "x", half):
        first.extend(objects)
        if trace.at_half:
            other = json_traces.JsonTrace.read(path)
            second = other.runs("events", Kept, "x", half._replace(second=True))
            assert repr([*first, *chain(*second)]) == repr(whole)
            assert other.rest("events") == {"events": [], "behind": 1}
    assert repr(first) == repr(whole)
