"""The contents of a JAX profile about its devices, counted without any of Flint's readers."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import pytest
from jax.profiler import ProfileData

from flint.execution.node_types import NodeType
from flint.simulation.recording import HOST_LANE, record

#: Their events enclose those of other ops.
ENCLOSING = ("while", "call", "conditional")


class Ran(NamedTuple):
    """An event of a device, nanoseconds."""

    start: int
    end: int
    op: str
    line: str


def runs_of(path, module, first=None):
    """Device -> the events of each run of a module, in order of time.

    Args:
        module: the beginning of its name.
        first: the kernel that a run begins with, where events do not name their run.
    """
    found = defaultdict(list)
    for plane in ProfileData.from_file(str(path)).planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                name = str(stats.get("hlo_op", ""))
                if not str(stats.get("hlo_module", "")).startswith(module) or not name:
                    continue
                if event.name.startswith("end:") or name.startswith(ENCLOSING):
                    continue
                if not on_device and "device_ordinal" not in stats:  # the host's call
                    continue
                device = stats.get("device_ordinal")
                device = int(plane.name.rpartition(":")[2]) if on_device else device
                start = int(event.start_ns)
                ran = Ran(start, start + int(event.duration_ns), name, line.name)
                found[device].append((stats.get("run_id", 0), event.name, ran))
    return {d: _by_run(sorted(e, key=lambda one: one[2]), first) for d, e in found.items()}


def _by_run(events, first):
    runs = {}
    number = 0
    for run, kernel, ran in events:
        number += kernel == first
        runs.setdefault((run, number), []).append(ran)
    return list(runs.values())


def busy(spans):
    """Nanoseconds in which one of some (begin, end) was under way."""
    found, reached = 0, 0
    for low, high in sorted(spans):
        found += max(0, high - max(low, reached))
        reached = max(reached, high)
    return found


def compare_runs(workload, runs):
    """A replay with an independent count: the span of all devices, and of each device the end of
    every op, recorded and simulated, and the time of its kernels.

    Returns the replay and the span in nanoseconds.

    Args:
        runs: device -> its events in the converted run.
    """
    result = workload.simulate()
    assert (result.kernels, result.communication, result.host) == ("measured",) * 3
    events = [event for run in runs.values() for event in run]
    first = min(event.start for event in events)
    span = max(event.end for event in events) - first
    assert result.step_seconds * 1e9 == pytest.approx(span, abs=2)
    ranks = {rank.program: rank for rank in record(workload).ranks}
    for program in workload.programs:
        run = runs[int(program.name.removeprefix("rank_"))]
        ran = ranks[program.name]
        computed = (ran.type == NodeType.COMP) & (ran.slot != HOST_LANE) & (ran.end > ran.start)
        simulated = set((ran.end[computed] // 1000).tolist())
        assert simulated <= {event.end - first for event in run}
        times, talks = program.graph.measured_by_node(), program.graph.kind == 1
        sent = set(program.timing.start[talks].tolist())
        kernels = [event for event in run if event.start - first not in sent]
        spent = sum(event.end - event.start for event in kernels)
        assert times[~talks].clip(0).sum() == spent
        ends = (program.timing.start + times)[(times > 0) & ~talks].tolist()
        assert set(ends) <= {event.end - first for event in kernels}
        last = [e.end for e, after in pairwise([*kernels, Ran(0, 0, "", "")]) if e.op != after.op]
        assert sorted(ends) == sorted(end - first for end in last)
    return result, span
