"""Messages of gloo in profiles of hosts, by hand-made ones of two ranks."""

from __future__ import annotations

import pytest

from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile, stream_edges

#: What the profiler says of the arguments of a message.
TOLD = {"Input Dims": [[[4]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}


def profiled(folder, messages, product=60, last=60):
    """Traces of two ranks: a message and a product of 10 us each.

    Args:
        folder: where the files are.
        messages: for each rank when its call begins, and when gloo's part of it begins and ends;
            rank 0 sends.
        product, last: when rank 0's product begins, and rank 1's.
    """
    found = []
    for rank, (call, begin, over) in enumerate(messages):
        name = "recv" if rank else "send"
        profile = Profile(rank, 2, pg_config=[{"pg_name": "0", "ranks": [0, 1]}])
        more = {**TOLD, "Concrete Inputs": ["", "", str(1 - rank), "0"]}
        profile.op(f"c10d::{name}{'_' if rank else ''}", call, begin + 1 - call, **more)
        profile.count += 1
        profile.span(f"gloo:{name}", begin, over - begin)
        profile.events[-1]["args"] = {
            "Record function id": profile.count, "Input Dims": [[4]], "Input type": ["float"],
        }  # fmt: skip
        profile.op("aten::mm", last if rank else product, 10)
        found.append(profile.write(folder / f"rank{rank}.json"))
    return found


def test_a_message_is_on_its_way_before_gloo_reports_it(tmp_path):
    """Rank 0's call hands it over from 10 to 30; what gloo notes of it begins at 29, when rank 1
    has it: at 25.  The clocks are one, and it takes 15 us.
    """
    workload = convert_traces(profiled(tmp_path, [(10, 29, 40), (2, 3, 25)]))
    starts = [program.timing.start.tolist() for program in workload.programs]
    assert starts == [[8000, 58000], [0, 58000]]
    assert workload.programs[0].graph.measured_by_node().tolist() == [15000, 10000]


@pytest.mark.parametrize(("product", "waits"), [(41, True), (39, False)])
def test_a_host_that_waited_for_what_it_sent_goes_on_when_that_is_gone(product, waits, tmp_path):
    """Its thread did nothing until gloo was done at 40, and went on 1 us later."""
    workload = convert_traces(profiled(tmp_path, [(10, 20, 40), (2, 3, 41)], product))
    assert stream_edges(workload.programs[0].graph) == ({(0, 1)} if waits else set())


@pytest.mark.parametrize(("product", "waits"), [(1_500, True), (2_500, False)])
def test_a_thread_that_a_call_held_may_go_on_late(product, waits, tmp_path):
    """As with more ranks than processors: 1,030 us in the call, and then 460 or 1,460 us."""
    workload = convert_traces(profiled(tmp_path, [(10, 20, 1_040), (2, 3, 1_041)], product))
    assert stream_edges(workload.programs[0].graph) == ({(0, 1)} if waits else set())


def test_a_receiver_that_notices_late_loses_that_time_in_a_replay_too(tmp_path):
    """The message is gone at 40; rank 1, which began at 2, notices at 90 and computes until 105."""
    workload = convert_traces(profiled(tmp_path, [(10, 20, 40), (2, 3, 90)], 45, 95))
    assert workload.simulate().step_seconds == pytest.approx(103e-6)
