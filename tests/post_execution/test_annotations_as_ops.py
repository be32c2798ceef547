"""PyTorch before 1.12 writes the annotations of process groups as ops, and has no ops of c10d.

In a published profile of a ring on four gloo ranks (PyTorch 1.11), ``gloo:send`` lasts until its
sender asks for it, and everything that the thread runs in the meantime lies within it.
"""

import pytest

from flint.converters.profilers.kineto.rows import BESIDE_KERNELS
from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile, exchanged

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
