"""Messages that are received from any rank: c10d records a tag where others have the sender."""

from pathlib import Path

import pytest

from flint.post_execution.any_source import FROM_ANYBODY, TO_ANYBODY
from flint.post_execution.converting import convert_traces
from flint.post_execution.kernel_units import NO_EXCHANGE
from tests.post_execution.traces import Profile

TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(scope="module")
def real():
    return convert_traces(sorted(TRACES.glob("gloo_any_source_rank*.json.gz")))


def messages(program):
    """Kind, ranks and bytes of what a program exchanges with one other rank."""
    graph = program.graph
    used = [graph.tables.communications[number] for number in graph.detail[graph.detail >= 0]]
    return sorted(
        (item.kind, sender, receiver, item.bytes_in or item.bytes_out)
        for item in used
        if item.permutation is not None
        for sender, receiver in enumerate(item.permutation.target.tolist())
        if receiver >= 0
    )


def test_the_sender_is_who_sent_as_much_and_was_not_named(real):
    """The program: 77 floats around the ring, and 55 from rank 1 to 2."""
    assert [messages(program) for program in real.programs] == [
        [("recv", 2, 0, 308), ("send", 0, 1, 308)],
        [("recv", 0, 1, 308), ("send", 1, 2, 220), ("send", 1, 2, 308)],
        [("recv", 1, 2, 220), ("recv", 1, 2, 308), ("send", 2, 0, 308)],
    ]
    assert real.warnings[FROM_ANYBODY] == 1
    assert real.simulate().step_seconds == pytest.approx(20_728.345e-6)  # rank 2's mark


def test_a_barrier_takes_the_time_of_gloos_work_for_it(real):
    """557.616 us in rank 0's file; gathers and scatters are told, one of each per rank."""
    alone = convert_traces([TRACES / "gloo_any_source_rank0.json.gz"])
    assert 557_616 in alone.programs[0].graph.measured_by_node().tolist()
    assert real.warnings[NO_EXCHANGE] == 6


@pytest.mark.parametrize(("sizes", "received", "kernels"), [((8, 6), 1, 0), ((8, 8), 0, 2)])
def test_a_message_that_two_ranks_may_have_sent_stays_a_kernel(sizes, received, kernels, tmp_path):
    """Rank 2 receives 8 floats from any rank, and if rank 1 sent 6, those from rank 1 by name."""
    groups = [{"pg_name": "0", "ranks": [0, 1, 2]}]
    profiles = [Profile(rank, 3, pg_config=groups) for rank in range(3)]

    def message(rank, name, begin, count, *place):
        profiles[rank].op(
            name, begin, 5, **{
                "Input Dims": [[[count]], []], "Input type": ["TensorList", ""],
                "Concrete Inputs": ["", "", *map(str, place), "0"], "Record function id": 0,
            },
        )  # fmt: skip
        library = name.partition("::")[2].rstrip("_").replace("_any_source", "AnySource")
        profiles[rank].span(f"gloo:{library}", begin + 1, 20)
        profiles[rank].events[-1]["args"] = {
            "Input Dims": [[count]], "Input type": ["float"], "Record function id": 0,
        }  # fmt: skip

    for rank, count in enumerate(sizes):
        message(rank, "c10d::send", 10, count, 2)
    message(2, "c10d::recv_any_source_", 10, 8)
    if sizes[1] == 6:
        message(2, "c10d::recv_", 40, 6, 1)
    paths = [item.write(tmp_path / f"rank{rank}.json") for rank, item in enumerate(profiles)]
    workload = convert_traces(paths)
    assert workload.warnings.get(FROM_ANYBODY, 0) == received
    assert workload.warnings.get(TO_ANYBODY, 0) == kernels
