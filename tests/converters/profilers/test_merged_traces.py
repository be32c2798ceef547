"""Traces of several ranks in one file: each becomes the rank that its own trace is.

The idea: the files of a run are merged as public tools do it, and what comes of the merged one must
be what comes of them.  The ways are SGLang's ProfileMerger (every process gets a label in front of
its number), TraceLens' TraceFuse (numbers and correlations moved by a power of ten for each rank),
one number for everything of a rank (as tools for Megatron do), and lists that are joined or sorted
by hand.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flint.converters.profilers.kineto.processes import MERGED, UNKNOWN_ORDER
from flint.errors import FlintError
from flint.observed.reading import read_trace
from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile, described
from tests.support.shared import quick

RUNS = Path(__file__).parents[2] / "data" / "scale_out"


def read(path):
    with gzip.open(path) as file:
        return json.load(file)


def devices(rank, gap):
    """A rank on a device: a product, an all-reduce, a product that waits for it.

    Both ranks number their calls and ops alike, as ranks of one program do.

    Args:
        rank: whose.
        gap: microseconds from a call to what it launches.
    """
    profile = Profile(rank, 2)
    profile.span("ProfilerStep#3", 0, 1000)
    profile.work(10 + rank, 10 + rank + gap, 5)
    profile.collective(20 + rank, 20 + rank + gap, 30 - rank)
    profile.waits(55, 7, 20, 54, device=rank)
    profile.work(60, 60 + gap + rank, 5 + rank)
    trace = {"distributedInfo": profile.info, "traceEvents": profile.events}
    for event in profile.events:
        on_device = event["cat"] in ("kernel", "cuda_sync")
        event["pid"] = rank if on_device else 4000 + rank
        if on_device:
            event["args"]["device"] = rank
    return trace


def whole(traces, events):
    """A merged file: what is not an event is the first trace's, as all tools do."""
    return {"distributedInfo": traces[0]["distributedInfo"], "traceEvents": events}


def labelled(traces):
    """SGLang's."""
    events = []
    for rank, trace in enumerate(traces):
        for event in trace["traceEvents"]:
            events.append(event | {"pid": f"[TP{rank:02}-DP00] {event['pid']}"})
    return whole(traces, events)


def moved(traces):
    """TraceLens'; External id stays as it is."""
    events = []
    for rank, trace in enumerate(traces):
        for event in trace["traceEvents"]:
            args = dict(event.get("args", {}), rank=rank, pid_raw=event["pid"])
            if "correlation" in args:
                args["correlation"] += rank * 100_000
            pid = event["pid"]
            events.append(
                event | {"pid": pid + rank * 100_000 if type(pid) is int else pid, "args": args}
            )
    return {"traceEvents": events}


def one_number(traces):
    """The rank's number plus one for everything, and a label."""
    events = []
    for rank, trace in enumerate(traces):
        events += [event | {"pid": rank + 1} for event in trace["traceEvents"]]
        args = {"name": f"Rank {rank}"}
        events.append({"ph": "M", "name": "process_name", "pid": rank + 1, "args": args})
    return whole(traces, events)


def joined(traces):
    return whole(traces, [event for trace in traces for event in trace["traceEvents"]])


def by_time(traces):
    return whole(traces, sorted(joined(traces)["traceEvents"], key=lambda event: event["ts"]))


def written(tmp_path, name, trace):
    path = tmp_path / name
    path.write_text(json.dumps(trace))
    return path


@pytest.mark.parametrize("gap", [3, 300], ids=["at once", "far behind the host"])
@pytest.mark.parametrize("merge", [labelled, moved, one_number, joined])
def test_ranks_of_devices_are_what_their_own_traces_are(tmp_path, merge, gap):
    """Their calls have the same numbers; behind the host, any kernel could be either's."""
    traces = [devices(rank, gap) for rank in (0, 1)]
    apart = [written(tmp_path, f"rank{rank}.json", trace) for rank, trace in enumerate(traces)]
    merged = written(tmp_path, "merged.json", merge(traces))
    own = convert_traces(apart)
    one = convert_traces([merged])
    assert described(one) == described(own)
    assert one.warnings[MERGED] == 2
    assert (one.warnings.get(UNKNOWN_ORDER, 0) == 0) == (merge is not joined)


def test_events_in_the_order_of_time_go_to_whose_calls_they_can_be_of(tmp_path):
    """Rank 1 calls 1 us later than rank 0, whose kernels begin 0.5 us after the call (2 us behind
    the op): before rank 1 calls.  Rank 1's could be either's, but rank 0 has a device.
    """
    traces = [devices(rank, 2.5) for rank in (0, 1)]
    apart = [written(tmp_path, f"rank{rank}.json", trace) for rank, trace in enumerate(traces)]
    merged = written(tmp_path, "merged.json", by_time(traces))
    assert described(convert_traces([merged])) == described(convert_traces(apart))


def test_what_nothing_tells_apart_is_refused(tmp_path):
    """Sorted by time, and every kernel begins when both ranks have called."""
    merged = written(tmp_path, "merged.json", by_time([devices(rank, 300) for rank in (0, 1)]))
    with pytest.raises(FlintError, match=r"processes \(4000, 4001\) in one trace, and the trace"):
        convert_traces([merged])


def test_processes_of_one_number_are_refused(tmp_path):
    """As of two containers: ops of both have the same numbers."""
    traces = [devices(rank, 3) for rank in (0, 1)]
    for trace in traces:
        for event in trace["traceEvents"]:
            event["pid"] = 1
    merged = written(tmp_path, "merged.json", joined(traces))
    with pytest.raises(FlintError, match="the ops of several processes are mixed up in it: 6 ops"):
        convert_traces([merged])


@pytest.mark.parametrize("merge", [labelled, joined])
@pytest.mark.parametrize("program", quick(["moe", "ddp"], "moe"))
def test_ranks_of_a_gloo_run_are_what_their_own_traces_are(tmp_path, program, merge):
    """Four real processes."""
    files = [RUNS / f"{program}_4_rank{rank}.json.gz" for rank in range(4)]
    merged = written(tmp_path, "merged.json", merge([read(file) for file in files]))
    assert described(convert_traces([merged])) == described(convert_traces(files))


def test_a_comparison_sees_all_ranks_of_a_merged_file(tmp_path):
    files = [RUNS / f"ddp_4_rank{rank}.json.gz" for rank in range(4)]
    merged = written(tmp_path, "merged.json", labelled([read(file) for file in files]))
    found = read_trace(merged)
    assert found.ranks == (0, 1, 2, 3)
    for rank, file in enumerate(files):
        own = read_trace(file)
        for step in range(len(own.steps)):
            theirs = [own.facts[i] for i in own.op[own.rows(rank, step)]]
            assert [found.facts[i] for i in found.op[found.rows(rank, step)]] == theirs
