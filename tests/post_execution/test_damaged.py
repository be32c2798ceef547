"""Files with anything in the place of anything: a clear error or a workload, never a crash."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.post_execution.converting import convert_traces
from tests.post_execution.test_data import Execution, tensor
from tests.post_execution.traces import COMMS, WORK, Profile
from tests.support.shared import examples

ODD = (
    None, -1, 0, True, 1e30, 2**70, 3.5, 10**9, "x", "", "7", "[0, 1]", [], {}, [1, 2], [[]],
)  # fmt: skip


def documents():
    """A profile with all kinds of events, and the execution trace of its ops."""
    profile = Profile(0, 4)
    profile.work(0, 10, 5)
    profile.collective(10, 20, 10, group=(0, 2))
    profile.waits(32, WORK, COMMS, recorded=18)
    profile.call("cudaStreamWaitEvent", 33)
    profile.work(40, 60, 5)
    profile.call("cudaDeviceSynchronize", 70)
    profile.span("Optimizer.step#SGD.step", 71, 20)
    profile.work(80, 90, 5, stream=9)
    execution = Execution()
    a, b = tensor(10), tensor(11)
    execution.mm(a, a, b, record=101)
    execution.mm(b, a, a, record=107)
    execution.mm(a, b, b, record=113)
    kineto = {"distributedInfo": profile.info, "traceEvents": profile.events}
    return kineto, {"schema": execution.schema, "nodes": execution.nodes}


def places(document, path=()):
    """Every place in a document."""
    found = []
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in items:
            found += [(*path, key), *places(value, (*path, key))]
    return found


KINETO, EXECUTION = documents()


@pytest.mark.parametrize("which", [0, 1])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused(tmp_path_factory, which, data):
    both = [copy.deepcopy(KINETO), copy.deepcopy(EXECUTION)]
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(places(both[which])))
        node = both[which]
        for key in path:
            node = node[key]
        node[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    folder = tmp_path_factory.mktemp("odd")
    kineto, execution = folder / "kineto.json", folder / "et.json"
    kineto.write_text(json.dumps(both[0]))
    execution.write_text(json.dumps(both[1]))
    for files, beside in (([kineto], [execution]), ([kineto], []), ([execution], [])):
        try:
            convert_traces(files, execution_traces=beside).verify()
        except FlintError as error:
            assert str(error)


def test_a_call_after_its_kernel_began_did_not_launch_it(tmp_path):
    """All calls have one number, so each kernel seems to be of the last call, at 102 us."""
    profile = Profile(0, 1)
    for ts in (0, 50, 100):
        profile.work(ts, ts + 10, 20)
    for event in profile.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] = 7
    profile.kernel(profile.op("aten::mm", 300, 4), 302, 130, 5)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.simulate().step_seconds == pytest.approx(125e-6)


def test_a_step_of_collectives_without_a_kernel_is_read(tmp_path):
    """The device ran in the other step only."""
    profile = Profile(0, 2)
    for step, begin in enumerate((0, 100)):
        profile.span(f"ProfilerStep#{step}", begin, 90)
        if not step:
            profile.work(begin + 10, begin + 20, 30)
        profile.collective(begin + 40, None, 0)
    path = profile.write(tmp_path / "rank0.json")
    graph = convert_traces([path], step="1").programs[0].graph
    assert [node.communication.kind for node in graph] == ["all_reduce"]
