"""PyTorch before 1.12 writes the annotations of process groups as ops, and has no ops of c10d.

Two ranks' real profiles are in the tests' data.  In a published one of a ring on four gloo ranks
(PyTorch 1.11), ``gloo:send`` lasts until its sender asks for it, and everything that the thread
runs in the meantime lies within it.
"""

from pathlib import Path

import pytest

from flint.converters.profilers.kineto.observe import linked
from flint.converters.profilers.kineto.rows import BESIDE_KERNELS
from flint.observed.classes import OpClass
from flint.post_execution.converting import convert_traces
from flint.post_execution.inferred_groups import OTHER_RANK
from flint.post_execution.kernel_units import NO_EXCHANGE
from flint.post_execution.meetings import CONTRADICTORY
from tests.post_execution.traces import Profile, exchanged

TRACES = Path(__file__).parents[1] / "data" / "traces"
FLOATS = {"Input Dims": [[1024]], "Input type": ["float"]}


def test_messages_and_the_work_beside_them_are_kept(tmp_path):
    """The begin of the published profile: times in microseconds after its first op."""
    profile = Profile(2, 4)
    profile.op("aten::zero_", 65, 1, **FLOATS)
    profile.op("gloo:send", 189, 3647, **FLOATS)
    profile.op("gloo:recv", 230, 2850, **FLOATS)
    profile.op("aten::add_", 3160, 17, **FLOATS)
    workload = convert_traces([profile.write(tmp_path / "rank2.json")])
    graph = workload.programs[0].graph
    assert graph.measured_by_node().tolist() == [1_000, 3_647_000, 2_850_000, 17_000]
    [sent] = [text for text in workload.warnings if "no other rank of a send" in text]
    [received] = [text for text in workload.warnings if "no other rank of a recv" in text]
    assert workload.warnings[sent] == workload.warnings[received] == 1


def test_an_all_reduce_of_gloos_is_a_communication(tmp_path):
    profile = Profile(0, 2)
    profile.op("aten::add_", 0, 5, **FLOATS)
    profile.op("gloo:all_reduce", 10, 40, **FLOATS)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert exchanged(workload) == [("all_reduce", 2, 4096)]


@pytest.mark.parametrize("name", ["gather", "scatter", "barrier", "sparse_all_reduce"])
def test_works_that_execution_traces_lack_keep_their_time_and_are_told(name, tmp_path):
    profile = Profile(0, 2)
    profile.op("aten::add_", 0, 5, **FLOATS)
    profile.op(f"gloo:{name}", 10, 40, **FLOATS)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.programs[0].graph.measured_by_node().tolist() == [5_000, 40_000]
    assert workload.warnings[NO_EXCHANGE] == 1


@pytest.mark.parametrize("recorded", [False, True])
def test_a_kernel_that_nccls_annotation_launched_is_a_communication(recorded, tmp_path):
    """With and without a record around it, there is one all-reduce of 4 kB, of 9 us."""
    profile = Profile(0, 2)
    profile.work(0, 5, 10)
    if recorded:
        profile.op("record_param_comms", 19, 8, **{"Input Dims": [[]], "Input type": [""]})
    op = profile.op("nccl:all_reduce", 20, 6, **FLOATS)
    profile.kernel(op, 22, 30, 9, "ncclKernel_AllReduce_RING_LL_Sum_float", 20)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert exchanged(workload) == [("all_reduce", 2, 4096)]
    assert sorted(workload.programs[0].graph.measured_by_node().tolist()) == [9_000, 10_000]


def test_works_of_gloo_beside_kernels_are_told(tmp_path):
    profile = Profile(0, 2)
    profile.work(0, 5, 10)
    profile.op("gloo:all_reduce", 10, 40, **FLOATS)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert workload.warnings[BESIDE_KERNELS] == 1


def sizes(program):
    """Kind and bytes of a program's communications, in order."""
    graph = program.graph
    table = graph.tables.communications
    used = [table[number] for number in graph.detail[graph.detail >= 0].tolist()]
    return [(item.kind, item.bytes_in or item.bytes_out) for item in used]


def test_a_real_step_of_two_ranks_has_all_that_its_program_exchanges():
    """Of floats: 64 * 128 + 128 + 128 * 10 + 10 gradients, and what the program says.

    The step takes as long as rank 0's mark of it.
    """
    workload = convert_traces(sorted(TRACES.glob("gloo_pytorch_1.11_rank*.json.gz")))
    common = [
        ("all_reduce", 4 * 9_610), ("all_reduce", 4_000), ("all_gather", 1_200),
        ("collective_broadcast", 4_000), ("all_reduce", 4_000),
    ]  # fmt: skip
    for program, message in zip(workload.programs, ("send", "recv"), strict=True):
        found = sizes(program)
        assert found.count((message, 308)) == 1
        assert [item for item in found if item[0] != message] == common
    assert workload.warnings[OTHER_RANK] == 2
    assert workload.simulate().step_seconds == pytest.approx(22.953e-3, rel=1e-6)


@pytest.mark.parametrize(("received", "inferred", "left"), [(2, 4, 0), (1, 0, 3)])
def test_the_other_one_of_two_ranks_is_who_a_message_is_for(received, inferred, left, tmp_path):
    """If their numbers differ, messages stay kernels."""
    one, other = Profile(0, 2), Profile(1, 2)
    for number in range(2):
        one.op("gloo:send", 10 + 100 * number, 20, **FLOATS)
    for number in range(received):
        other.op("gloo:recv", 5 + 100 * number, 20, **FLOATS)
    paths = [one.write(tmp_path / "rank0.json"), other.write(tmp_path / "rank1.json")]
    workload = convert_traces(paths)
    assert workload.warnings.get(OTHER_RANK, 0) == inferred
    assert workload.warnings.get(CONTRADICTORY, 0) == left


def test_works_are_of_the_thread_that_handed_them_over():
    """In the file, gloo's threads are 21118 and 21119; the other one runs all ops, and the message.

    ``flint validate`` takes what one of gloo's threads ran for collectives of one group.
    """
    [(trace, links)] = linked(TRACES / "gloo_pytorch_1.11_rank0.json.gz")
    talking = [
        row for row, fact in enumerate(trace.op.tolist())
        if trace.facts[fact].kind.collective
    ]  # fmt: skip
    assert len({int(links.thread[row]) for row in talking}) == 1
    sent = [row for row in talking if trace.facts[trace.op[row]].kind is OpClass.SEND]
    assert set(trace.workers) == set(talking) - set(sent)
    assert len(sent) == 2 and len(set(trace.workers.values())) == 2
