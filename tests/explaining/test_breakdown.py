"""Device time as in HolisticTraceAnalysis it, and of a step by arithmetic on its intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint import registry
from flint.errors import FlintError
from flint.explaining.breakdown import NO_LAUNCH, Kernels, breakdown
from flint.explaining.explaining import explain
from flint.explaining.holistic import holistic
from flint.explaining.kernel_kinds import Kind
from flint.post_execution.converting import convert_traces
from tests.post_execution.counts import events_of
from tests.post_execution.traces import COMMS, Profile
from tests.support.profiles import unpacked
from tests.support.shared import examples, quick

DATA = Path(__file__).parents[1] / "data"
#: HTA 0.5.0's results for these profiles; profiles/README.md describes how it was run.
HTA = json.loads((DATA / "profiles" / "hta_breakdowns.json").read_text())


def near(found, wanted):
    """Within 1 %, or the last digit of HTA's whole microseconds."""
    return found == pytest.approx(wanted, rel=0.01, abs=1.01)


@pytest.mark.parametrize("name", quick(HTA, *(name for name in HTA if name.endswith(".gz"))))
def test_a_whole_trace_has_the_numbers_of_hta(name, tmp_path):
    wanted = HTA[name]
    events = registry.converter("kineto-device-events")(unpacked(Path("..", name), tmp_path))
    found = holistic(events)
    parts = {
        "idle_time(us)": found.idle_seconds, "compute_time(us)": found.compute_seconds,
        "non_compute_time(us)": found.non_compute_seconds, "kernel_time(us)": found.seconds,
    }  # fmt: skip
    for part, seconds in parts.items():
        assert near(seconds * 1e6, wanted["temporal"][part]), part
    streams = {item.stream: item for item in found.idle}
    # Kernels whose call is not in the file HTA takes for launched by the file's first event.
    told = not (events.launched == NO_LAUNCH).all() or not name.startswith("traces/")
    for stream, waits, microseconds in wanted["idle"] if told else ():
        assert near(getattr(streams[stream], f"{waits}_seconds") * 1e6, microseconds), waits
    if wanted["overlap_percent"] is None:
        assert math.isnan(found.overlap)
    else:
        assert found.overlap * 100 == pytest.approx(wanted["overlap_percent"], abs=0.01)
    for kinds, microseconds in wanted["types"].items():
        assert near(found.together.get(kinds.lower(), 0.0) * 1e6, microseconds), kinds
    of_name = {item.name: item for item in found.kernels}
    for kernel, total, most, least in wanted["names"]:
        item = of_name[kernel]
        assert near(item.seconds * 1e6, total)
        assert near(item.most_seconds * 1e6, most)
        assert near(item.least_seconds * 1e6, least)


def test_times_since_1970_are_those_that_hta_can_tell(tmp_path):
    """There, a 64-bit float tells quarters of microseconds: 582.988 us is read as 583, and the end,
    587.928 us after that, as 588.  Rounding the file's own numbers inwards leaves 4 us.
    """
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 4.928}
    event |= {"ts": 1712195495505582.988, "args": {"stream": 7, "correlation": 1}}
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": [event]}))
    found = holistic(registry.converter("kineto-device-events")(path))
    assert found.compute_seconds == pytest.approx(5e-6)


def test_a_trace_without_a_device_is_refused():
    events = registry.converter("kineto-device-events")(DATA / "profiles/gloo_rank34.json.gz")
    with pytest.raises(FlintError, match="nothing ran on a device"):
        holistic(events)


def kernels(rows):
    """Kernels of (kind, start, duration, stream, launched)."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    kind, start, duration, stream, launched = columns
    return Kernels(("k",), np.zeros(len(start), np.int64), kind, start, duration, stream, launched)


def test_idle_time_is_classified_by_the_launch_of_the_next_kernel():
    """0-10 runs; the kernel at 50 us was launched at 45: until then it is the host, the last 5 us
    are the launch's.  Its end is 60; the one at 70 was launched before: its launch took 10 us.  The
    one at 200 was launched at 5: 120 us of something else (its gap begins at 80).
    """
    found = breakdown(
        kernels(
            [
                (Kind.COMPUTATION, 0, 10_000, 7, 0),
                (Kind.COMPUTATION, 50_000, 10_000, 7, 45_000),
                (Kind.COMPUTATION, 70_000, 10_000, 7, 55_000),
                (Kind.COMPUTATION, 200_000, 1_000, 7, 5_000),
            ]
        )
    )
    assert found.host_wait_seconds == pytest.approx(35e-6)
    assert found.kernel_wait_seconds == pytest.approx(15e-6)
    assert found.other_wait_seconds == pytest.approx(120e-6)
    assert found.idle_seconds == pytest.approx(170e-6)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 30), st.integers(0, 3)),
        min_size=1, max_size=15,
    )
)  # fmt: skip
def test_parts_of_any_kernels_are_those_of_every_nanosecond(rows):
    found = breakdown(kernels([(*row, NO_LAUNCH) for row in rows]))
    low = min(start for _, start, _, _ in rows)
    high = max(start + took for _, start, took, _ in rows)
    running = [
        {kind for kind, start, took, _ in rows if start <= now < start + took}
        for now in range(low, high)
    ]

    def count(chosen):
        return pytest.approx(sum(bool(chosen(kinds)) for kinds in running) / 1e9)

    assert found.seconds == pytest.approx((high - low) / 1e9)
    assert found.idle_seconds == count(lambda kinds: not kinds)
    assert found.compute_seconds == count(lambda kinds: Kind.COMPUTATION in kinds)
    assert found.non_compute_seconds == count(lambda kinds: kinds and Kind.COMPUTATION not in kinds)
    assert found.exposed_communication_seconds == count(
        lambda kinds: Kind.COMMUNICATION in kinds and Kind.COMPUTATION not in kinds
    )
    assert found.memory_seconds == count(lambda kinds: kinds == {Kind.MEMORY})
    waits = found.host_wait_seconds + found.kernel_wait_seconds + found.other_wait_seconds
    assert waits == pytest.approx(found.idle_seconds)
    assert sum(found.together.values()) == count(bool)


def test_a_steps_breakdown_needs_no_whole_microseconds(tmp_path):
    """Two kernels of 0.4 us: HTA's rounding inwards leaves nothing of them, the step's has both."""
    profile = Profile(0, 1)
    profile.work(0, 10.3, 0.4)
    profile.work(20, 30.3, 0.4)
    profile.collective(40, 50.3, 0.4, group=(0,))
    path = profile.write(tmp_path / "rank0.json")
    events = registry.converter("kineto-device-events")(path)
    explanation = explain(convert_traces([path]), traces=[events])
    [step], [whole] = explanation.step, explanation.traces
    assert step.breakdown.compute_seconds == pytest.approx(0.8e-6)
    assert step.breakdown.exposed_communication_seconds == pytest.approx(0.4e-6)
    assert whole.breakdown.compute_seconds < 0
    assert {item.stream for item in whole.breakdown.idle} == {7, COMMS}


def test_kernels_that_exchange_data_on_their_own_are_counted_apart():
    """Those of DeepEP in the file, which run one after another on one stream."""
    path = DATA / "profiles" / "deepseek_train.json.gz"
    ran = [
        event
        for event in events_of(path)
        if "dpsk::ep::" in event.get("name", "") and "dur" in event
    ]
    found = explain(convert_traces([path])).step[0].breakdown
    assert found.exchange_seconds * 1e6 == pytest.approx(sum(event["dur"] for event in ran))
    assert found.communication_seconds == 0
