"""JAX profiles of GPUs whose kernels are in command buffers (CUDA graphs), which is the default."""

from __future__ import annotations

import lzma
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from jax.profiler import ProfileData

import flint
from flint.converters.profilers.xplane.command_buffers import named_ops
from flint.converters.profilers.xplane.events import events_of, modules_of
from flint.converters.profilers.xplane.program import Program
from flint.explaining.explaining import explain
from flint.graph.stated import unstated_traffic, unstated_work
from flint.hlo.messages import parse_module
from flint.observed.rows import ObservedRows
from flint.post_execution.converting import convert_traces
from flint.post_execution.node_work import with_known_work, with_nanoseconds
from tests.post_execution.jax_counts import busy

pytestmark = pytest.mark.xdist_group("post-execution-jax")

ROOT = Path(__file__).parents[2]
#: Opcodes of ops that launch kernels, where the profile of command buffers has them.
LAUNCHING = ("fusion", "custom-call", "copy", "async-start")


@pytest.fixture(scope="module")
def in_buffers(tmp_path_factory):
    """Two steps of a model with two loops on an H100: all kernels are in command buffers."""
    file = tmp_path_factory.mktemp("buffers") / "host.xplane.pb"
    packed = ROOT / "tests/data/traces/jax_command_buffers_h100.xplane.pb.xz"
    file.write_bytes(lzma.decompress(packed.read_bytes()))
    return file


def kernels_in(file):
    """(begin, end, name, what the profiler says of it) of each kernel of a GPU, in order."""
    return sorted(
        (int(event.start_ns), int(event.start_ns + event.duration_ns), event.name, stats)
        for plane in ProfileData.from_file(str(file)).planes
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
        if "cuda_graph_node_id" in (stats := dict(event.stats))
    )


def test_the_path_waits_only_while_nothing_runs(in_buffers):
    """A kernel may begin before the previous one of its stream has ended, and then wait for it.

    So what is on the path beside kernels is the time in which none of them runs.
    """
    last = kernels_in(in_buffers)[len(kernels_in(in_buffers)) // 2 :]
    early = [low - end for (_, end, *_), (low, *_) in pairwise(last) if low < end]
    assert min(early) < -2_000  # nanoseconds: clocks do not differ by so much
    span = max(end for _, end, _, _ in last) - last[0][0]
    ran = busy((begin, end) for begin, end, _, _ in last)
    explanation = explain(convert_traces([in_buffers]))
    path = {part.sort: part.seconds * 1e9 for part in explanation.path}
    # The kernels of an op take their sum, in which they overlap as well.
    assert path["kernel"] == pytest.approx(ran, rel=1e-4)
    assert path["gap"] == pytest.approx(span - ran, abs=1e-4 * ran)
    assert "host" not in path


def test_a_step_whose_kernels_are_in_command_buffers_takes_their_time(in_buffers):
    kernels = kernels_in(in_buffers)
    last = kernels[len(kernels) // 2 :]
    assert [name for _, _, name, _ in kernels] == 2 * [name for _, _, name, _ in last]
    workload = convert_traces([in_buffers])
    [program] = workload.programs
    span = max(end for _, end, _, _ in last) - last[0][0]
    assert workload.simulate().step_seconds * 1e9 == pytest.approx(span, abs=2)
    spent = sum(end - begin for begin, end, _, _ in last)
    assert program.graph.measured_by_node().clip(0).sum() == spent
    assert not any("unknown" in text or "more or less" in text for text in workload.warnings)


def test_the_flops_of_a_step_are_those_of_its_program(in_buffers):
    """12 layers of a Llama whose forward pass runs twice, except the last product of each layer.

    8,192 tokens in 4 sequences, width 2,048, 16 heads (8 of keys), 5,632 inside, 32,000 words; the
    peak is what the allocator of the run said.
    """
    layer, last = 4096 * 2048 + 2048 * 2048 + 3 * 2048 * 5632, 2048 * 5632
    weights = 2 * 8192 * (12 * 3 * layer + 3 * 2048 * 32000)
    causal = 2 * 4 * 16 * 2048 * 2048 * 128 / 2  # of a product
    again = 2 * 8192 * 12 * (layer - last) + 12 * 2 * causal
    result = convert_traces([in_buffers]).simulate()
    [program] = result.programs
    model = weights + 12 * (2 + 5) * causal
    assert program.figures.model_flops == pytest.approx(model, rel=1e-3)
    assert program.figures.flops == pytest.approx(model + again, rel=3e-3)
    assert result.peak_memory_bytes == pytest.approx(12_363_576_576, rel=0.03)


def test_only_calls_that_nobody_describes_have_unknown_flops(tmp_path):
    program = tmp_path / "program.mlir"
    program.write_text("""
    func.func @main(%a: tensor<4x8xf32>) -> tensor<8x4xf32> {
      %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
      %c = stablehlo.custom_call @somebodys(%b) : (tensor<8x4xf32>) -> tensor<8x4xf32>
      return %c : tensor<8x4xf32>
    }""")
    [made] = flint.convert(program, mesh=(1,)).programs
    told = with_known_work(made.graph, {"somebodys"})
    measured = with_nanoseconds(told, np.full(len(told), 1000))
    names = [measured.tables.ops[op] for op in measured.op[unstated_work(measured)]]
    assert names == ["somebodys"]
    assert not unstated_traffic(measured).any()


def test_kernels_in_command_buffers_are_those_of_the_ops_that_were_recorded(in_buffers):
    """CUDA numbers the nodes of a graph as they are recorded: one per op, in order; what a library
    launches comes after them.
    """
    events, data = events_of(in_buffers, ObservedRows("")), in_buffers.read_bytes()
    module = parse_module(modules_of(in_buffers, data)["jit_train_step(3338)"])
    named = named_ops(events.events, Program(module, ""), module, lambda *_: None)
    places = {}
    for computation in module.computations:
        order = module.schedule.sequences[computation.id].instruction_ids
        by_id = {item.id: item for item in computation.instructions}
        launching = [by_id[n] for n in order if by_id[n].opcode in LAUNCHING]
        inside = {item.id: item.instructions for item in module.computations}
        for place, item in enumerate(launching):
            of_async = item.opcode == "async-start"
            name = inside[item.called_computation_ids[0]][-1].name if of_async else item.name
            places[name] = computation.id, place
    fusions = {name.replace(".", "_") for name in places}
    op_of = {(event.start, event.kernel): event.hlo for event in named}
    first = {}
    compared = 0
    for begin, _, kernel, stats in kernels_in(in_buffers):
        if kernel in fusions:
            place = places[op_of[begin, kernel]]
            offset = place[0], place[1] - (stats["cuda_graph_node_id"] & 0xFFFFFFFF)
            assert first.setdefault(stats["hlo_op"], offset) == offset
            compared += 1
    assert len(first) == 5 and compared == 1702


def test_products_of_cublas_are_of_calls_and_of_no_fusion_of_tritons(tmp_path):
    """Of a mixture of experts on an H200: its kernels' names (nvjet) tell whose they are."""
    packed = ROOT / "tests/data/single_gpu/moe_dropless.xplane.pb.xz"
    file = tmp_path / "host.xplane.pb"
    file.write_bytes(lzma.decompress(packed.read_bytes()))
    events, data = events_of(file, ObservedRows("")), file.read_bytes()
    buffers = [event for event in events.events if event.hlo.startswith("command_buffer")]
    [label] = {event.program for event in buffers}
    module = parse_module(modules_of(file, data)[label])
    opcode = {item.name: item.opcode for one in module.computations for item in one.instructions}
    named = named_ops(events.events, Program(module, ""), module, lambda *_: None)
    products = [event for event in named if event.kernel.startswith("nvjet_")]
    assert len(products) == 2 * 75  # steps, and calls of cuBLAS in each
    assert {opcode[event.hlo] for event in products} == {"custom-call"}
