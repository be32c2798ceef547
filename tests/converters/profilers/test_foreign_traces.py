"""Chrome traces of other tools: who wrote one, and what to give instead."""

from __future__ import annotations

import json

import pytest

from flint.errors import FlintError
from flint.observed.reading import read_trace

EVENT = {"ph": "X", "cat": "fee", "name": "f", "ts": 1, "dur": 2, "pid": 1, "tid": 1}


@pytest.mark.parametrize(
    ("around", "event", "said"),
    [
        # VizTracer 1.1's file of a script: its events have the category "fee".
        ({"viztracer_metadata": {"version": "1.1.1"}}, EVENT, "is VizTracer's"),
        # The first keys of what JAX writes beside its xplane.pb.
        (
            {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}},
            {**EVENT, "cat": ""},
            "give the .xplane.pb beside it",
        ),
        ({"beginningOfTime": 1_700_000_000}, {**EVENT, "cat": ""}, "is Clang's"),
        ({}, {**EVENT, "cat": "Session", "name": "session_initialization"}, "is ONNX Runtime's"),
        ({}, EVENT, "is another tool's: give what torch.profiler's export_chrome_trace"),
        ({}, {**EVENT, "cat": "python_function"}, "is another tool's"),
    ],
)
def test_who_wrote_it(tmp_path, around, event, said):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**around, "traceEvents": [event]}))
    with pytest.raises(FlintError, match=f"neither CPU ops nor kernels in it: .*{said}") as caught:
        read_trace(path)
    assert "cycle" not in str(caught.value)


def test_the_profilers_own_is_exported_too_early(tmp_path):
    """Real keys around the events; the only one is a Python call, as of a warm-up."""
    path = tmp_path / "trace.json"
    event = {**EVENT, "cat": "python_function"}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    with pytest.raises(FlintError, match="export before the schedule's cycle ends"):
        read_trace(path)
