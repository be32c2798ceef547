"""Traces of real runs: ResNet-50 under DDP on two A100s, PyTorch's execution traces, gloo ranks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import NodeType
from flint.graph.graph import Phase
from flint.post_execution.converting import convert_traces
from flint.post_execution.edges import CONTRADICTED
from flint.post_execution.waits import UNAWAITED, UNRESOLVED
from tests.converters.chakra.consumer import execute
from tests.post_execution.traces import edges
from tests.support.children import run_script
from tests.support.shared import once

TRACES = Path(__file__).parent.parent / "data" / "traces"
NCCL = TRACES / "resnet50_ddp_nccl_calls_rank0.json.gz"


def events(path):
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


@pytest.fixture(scope="module")
def resnet():
    return convert_traces([NCCL])


def kernels():
    """Everything that ran on the device in the trace, read without our reader."""
    device = ("kernel", "gpu_memcpy", "gpu_memset")
    return [event for event in events(NCCL) if event["cat"] in device]


def test_every_kernel_is_a_node_with_its_own_time(resnet):
    graph = resnet.programs[0].graph
    found = kernels()
    assert len(graph) == len(found)
    expected = sum(round(event["dur"] * 1000) for event in found)
    assert graph.measured_by_node().sum() == expected


def test_kernels_of_the_device_end_up_in_whole_microseconds_in_traces(resnet, tmp_path):
    """The compute kernels' times, added up; each node's rounding is carried to the next."""
    resnet.save(tmp_path / "out")
    micros = sum(event["dur"] for event in kernels() if "nccl" not in event["name"])
    trace = load_trace_set(tmp_path / "out").traces[0]
    assert abs(int(trace.duration[trace.type == NodeType.COMP].sum()) - micros) <= 1


def test_what_ran_earlier_never_waits_for_what_ran_later(resnet):
    """By the trace's own times, a kernel begins after everything that it waits for."""
    graph = resnet.programs[0].graph
    # Nodes are in order of launch; a launch is found by the kernel's correlation.
    calls = {
        event["args"]["correlation"]: event["ts"]
        for event in events(NCCL)
        if event["cat"] == "cuda_runtime" and "correlation" in event["args"]
    }
    ran = sorted(kernels(), key=lambda event: (calls[event["args"]["correlation"]], event["ts"]))
    assert [round(event["dur"] * 1000) for event in ran] == graph.measured_by_node().tolist()
    for before, after in edges(graph):
        assert ran[before]["ts"] + ran[before]["dur"] <= ran[after]["ts"] + 0.01


def test_buckets_are_reduced_after_their_gradients_and_copied_back_after_that(resnet):
    """DDP's five buckets: each all-reduce waits for a kernel of the backward pass, and the first
    copy of its bucket into gradients (Memcpy DtoD of ``copy_bucket_to_grad``) waits for it.

    The forward pass broadcasts two buffers first, each waited for by the copies out of it.
    """
    graph = resnet.programs[0].graph
    found = edges(graph)
    reduces = [node.index for node in graph if node.op == "all_reduce"]
    assert len(reduces) == 5
    for number in reduces:
        before = [graph[i] for i, j in found if j == number]
        after = [graph[j] for i, j in found if i == number]
        assert any(node.source.phase == Phase.BACKWARD for node in before)
        assert any(node.op == "aten::copy_: Memcpy DtoD" for node in after)
    broadcasts = [node.index for node in graph if node.op == "collective_broadcast"]
    assert len(broadcasts) == 2
    assert all(any(i == number for i, _ in found) for number in broadcasts)
    assert resnet.warnings[UNRESOLVED] == 7  # one wait per collective, none left over
    assert UNAWAITED not in resnet.warnings and CONTRADICTED not in resnet.warnings


def test_gradients_are_reduced_once_and_completely(resnet):
    """25,557,032 parameters of ResNet-50 in float32 (torchvision), in buckets of whole tensors."""
    items = issued(resnet.programs[0].graph)
    assert sum(c.bytes_in for c in items if c.kind == "all_reduce") == 4 * 25_557_032


def issued(graph):
    """The communications of a graph, node by node."""
    return [node.communication for node in graph if node.communication is not None]


@pytest.mark.parametrize("ranks", ["all", "0"])
def test_the_rank_that_has_a_trace_can_be_run(resnet, tmp_path, ranks):
    saved = resnet.save(tmp_path / "out", ranks=ranks)
    assert check(tmp_path / "out").ok
    assert saved.partial == (ranks != "all")
    if ranks == "all":
        assert execute(load_trace_set(tmp_path / "out")).complete


def test_an_execution_trace_alone_has_order_sizes_and_data(tmp_path):
    """Ten all-gathers of one float on two ranks, each read by nothing but the next ops."""
    workload = convert_traces([TRACES / "et_1.0.2_rank0.json.gz"])
    items = issued(workload.programs[0].graph)
    assert [(item.kind, item.bytes_in, item.bytes_out) for item in items] == [
        ("all_gather", 4, 8)
    ] * 10
    workload.save(tmp_path / "out")
    assert check(tmp_path / "out").ok


def profiled(factory, name):
    """The folder of both profilers' traces of a step on gloo ranks."""
    pytest.importorskip("torch")
    script = Path(__file__).parent.parent / "validation" / "torch_profiling.py"
    place = f"tests.validation.torch_steps:{name}"
    return once(
        factory,
        f"torch-{name}",
        lambda folder: run_script(script, folder, place, imported="torch"),
    )


@pytest.fixture(scope="module")
def gloo(tmp_path_factory):
    """A tensor-parallel step on two ranks."""
    return convert_traces([profiled(tmp_path_factory, "tp")])


@pytest.mark.xdist_group("post-execution-gloo")
@pytest.mark.parametrize("name", ["tp", pytest.param("1f1b", marks=pytest.mark.thorough)])
def test_a_step_on_gloo_ranks_takes_its_measured_time_again(tmp_path_factory, name):
    """From the first begin of the last mark of a rank to its last end: the host's time around ops,
    and while it hands over messages, is part of it.
    """
    marks = []
    paths = sorted(profiled(tmp_path_factory, name).glob("kineto_rank*.json"))
    for path in paths:
        listed = json.loads(path.read_text())["traceEvents"]
        steps = [e for e in listed if e["name"].startswith("ProfilerStep#")]
        marks.append(max((e["ts"], e["ts"] + e["dur"]) for e in steps))
    measured = max(end for _, end in marks) - min(begin for begin, _ in marks)
    assert convert_traces(paths).simulate().step_seconds * 1e6 == pytest.approx(measured, rel=2e-2)


@pytest.mark.xdist_group("post-execution-gloo")
def test_both_profilers_of_real_ranks_make_one_workload(gloo, tmp_path):
    assert [str(program.ranks) for program in gloo.programs] == ["0", "1"]
    assert CONTRADICTED not in gloo.warnings
    first, second = (
        [(c.kind, c.bytes_in) for c in issued(program.graph)] for program in gloo.programs
    )
    assert first == second and first
    gloo.save(tmp_path / "out")
    assert check(tmp_path / "out").ok
    assert execute(load_trace_set(tmp_path / "out")).complete


@pytest.mark.xdist_group("post-execution-gloo")
def test_every_collective_of_real_ranks_waits_for_data_and_is_waited_for(gloo):
    """Its operand is written by some op before it, and some op reads what it leaves."""
    for program in gloo.programs:
        graph = program.graph
        data = list(zip(graph.producer[graph.operand], graph.consumer, strict=True))
        talks = np.flatnonzero(graph.kind == 1)
        read = {int(before) for before, _ in data}
        fed = {int(after) for _, after in data}
        assert len(talks) >= 10
        assert set(talks.tolist()) <= fed
        # All but the last one of a step, whose result the next step reads.
        assert len(set(talks.tolist()) - read) <= 1


def test_both_ranks_of_the_step_meet_in_every_collective(tmp_path):
    """The same trace as that of rank 1, whose clock is a second ahead: 5 all-reduces for both."""
    document = json.loads(gzip.decompress(NCCL.read_bytes()))
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    document["distributedInfo"]["rank"] = 1
    for event in document["traceEvents"]:
        event["ts"] += 1e6
    (tmp_path / "rank1.json").write_text(json.dumps(document))
    workload = convert_traces([tmp_path])
    assert [program.name for program in workload.programs] == ["rank_0", "rank_1"]
    workload.save(tmp_path / "out")
    report = check(tmp_path / "out")
    assert report.ok and report.size == 2
    assert execute(load_trace_set(tmp_path / "out")).complete
    [communicator] = workload.communicators
    assert communicator.groups.members(0).tolist() == [0, 1]


def test_kernels_are_classed_by_the_ops_that_they_ran_for(resnet):
    """Time of matrix products and convolutions, by the ops' names in the file."""
    listed = events(NCCL)
    name = {e["args"].get("External id"): e["name"] for e in listed if e["cat"] == "cpu_op"}
    wanted = {"aten::cudnn_convolution", "aten::convolution_backward", "aten::addmm", "aten::mm"}
    micros = sum(e["dur"] for e in kernels() if name[e["args"]["External id"]] in wanted)
    rows = {row.name: row for row in resnet.simulate("dgx-h100").programs[0].classes}
    assert abs(rows["matmul"].seconds - micros * 1e-6) < 1e-9
