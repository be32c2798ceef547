"""Threads of gloo tell which collectives are of one process group."""

from __future__ import annotations

import gzip
import heapq
import json
import random
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.converters.profilers.kineto.events import Events, GloosWork, LibraryCall, Op
from flint.converters.profilers.kineto.gloo_work import threads_of, works_of
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.reading import read_trace
from flint.validation.group_threads import add_other_groups, named_by_threads
from flint.validation.report.report import Report
from flint.validation.validating import validate
from tests.support.children import run_script
from tests.support.shared import examples, once

RECORDED = Path(__file__).parents[1] / "data" / "traces" / "gloo_mesh_rank0.json.gz"


def test_what_a_thread_ran_was_issued_for_one_group():
    """The user's range around each call names its group, on three groups with two threads each."""
    trace = read_trace(RECORDED)
    file = json.loads(gzip.decompress(RECORDED.read_bytes()))
    base = file["baseTimeNanoseconds"]
    ranges = [
        (base + round(e["ts"] * 1e3), base + round((e["ts"] + e["dur"]) * 1e3), e["name"])
        for e in file["traceEvents"]
        if e.get("cat") == "user_annotation" and e["name"] in ("dp", "tp", "world")
    ]
    names = defaultdict(set)
    for row, thread in trace.workers.items():
        begin = trace.start[row]
        [name] = [name for low, high, name in ranges if low <= begin <= high]
        names[thread].add(name)
    assert sorted(name for [name] in names.values()) == ["dp", "dp", "tp", "tp", "world", "world"]
    # Of six rounds of nine collectives, all but the two that are in flight together are certain.
    assert len(trace.workers) >= 6 * 9


def issued(draw, groups, calls):
    """A run: ops that a thread issues, some without waiting, and works on two threads a group.

    A group starts its works in order, each on the thread that is free first.
    """
    events, group_of = Events.empty([{}], None), []
    now, works = 0, []
    free = {group: [(0, (group, side)) for side in range(2)] for group in range(groups)}
    last = dict.fromkeys(range(groups), 0)
    for _ in range(calls):
        group = draw.randrange(groups)
        size, kind = draw.choice((64, 128)), draw.choice(("allreduce_", "broadcast_"))
        events.ops.append(Op(now, 5, "main", f"c10d::{kind}", None, -1, 0))
        group_of.append((group, size))
        idle, thread = heapq.heappop(free[group])
        start = max(idle, now, last[group]) + draw.randrange(1, 30)
        last[group] = start
        end = start + draw.randrange(1, 60)
        heapq.heappush(free[group], (end, thread))
        call = LibraryCall(start, end, kind, None, None)
        works.append((0, GloosWork(start, end, "f32", size, thread, call)))
        now += 6
        if draw.random() < 0.5:  # it waits
            now = max(now, end)
    events.gloo.extend(sorted(works, key=lambda work: work[1].start))
    return events, group_of


@settings(max_examples=examples(150), deadline=None)
@given(groups=st.integers(1, 4), calls=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_a_thread_never_has_collectives_of_two_groups(groups, calls, seed):
    """Whatever is in flight together, and whichever of two works begins first."""
    events, of = issued(random.Random(seed), groups, calls)
    numbers = {op.start: number for number, op in enumerate(events.ops)}
    works, left = works_of(events, lambda op: of[numbers[op.start]][1])
    assert len(works) + len(left) == calls
    seen = defaultdict(set)
    for place, thread in threads_of(events, works).items():
        seen[thread].add(of[place][0])
    assert all(len(some) == 1 for some in seen.values())


def facts(group=None):
    return OpFacts(OpClass.ALL_TO_ALL, "alltoall", None, (64,), "f32", group)


def test_one_that_names_its_group_names_that_of_its_thread():
    trace = SimpleNamespace(workers={10: 0, 11: 0, 12: 1})
    rows = np.arange(10, 14)
    given = [facts((0, 2)), facts(), facts(), facts()]
    named = named_by_threads(trace, rows, given)
    assert [one.group for one in named] == [(0, 2), (0, 2), None, None]


def test_the_rarer_captured_group_of_a_thread_is_a_difference():
    """Thread 0 ran four collectives, and thread 1 one that proves nothing."""
    groups = [(0, 1), (0, 1), (0, 2), (0, 1), (0, 2)]
    matching = SimpleNamespace(
        captured=[facts(group) for group in groups],
        pairs=[(i, i, None) for i in range(5)], certain=set(range(5)), rank=0,
    )  # fmt: skip
    trace = SimpleNamespace(workers=dict(enumerate((0, 0, 0, 0, 1))))
    report = Report([], 4, True)
    add_other_groups(report, matching, trace, np.arange(5))
    [difference] = report.differences
    assert (difference.what, difference.position) == ("in another group", 2)
    assert "ran 3 among [0, 1]" in difference.where


@pytest.mark.thorough
@pytest.mark.xdist_group("validation-mesh-gloo")
@pytest.mark.parametrize("name", ["mesh_2x2", "mesh_2x4", "mesh_4x2"])
def test_a_reduction_over_the_other_axis_is_found(tmp_path_factory, name):
    """Of six reductions of 64 elements, the fourth is captured over the other axis.  It is found on
    each rank, but for those where it is not certain which thread ran which.
    """
    pytest.importorskip("torch")
    from tests.validation.mesh_steps import MIXED

    script = Path(__file__).parent / "torch_profiling.py"
    place = f"tests.validation.mesh_steps:{name}"
    folder = once(
        tmp_path_factory, name, lambda folder: run_script(script, folder, place, imported="torch")
    )
    files = sorted(folder.glob("kineto_rank*.json"))
    report = validate(MIXED[name]().capture(), files)
    found = [d.rank for d in report.differences if "a thread of gloo's" in d.where]
    assert not report.ok and found and len(set(found)) == len(found)
