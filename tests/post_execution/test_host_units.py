"""Ops of a CPU's profile that call lighter ones are nodes of their own, with their FLOPs."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from flint.graph.work import Unit
from flint.post_execution.converting import convert_traces
from flint.post_execution.graphs import NO_SHAPES
from flint.post_execution.host_units import NO_KERNELS, UNNAMED_KERNELS
from tests.post_execution.traces import Profile

ROWS, IN, OUT = 4, 8, 16


def profiled(made, tmp_path, *inputs):
    """The workload of a profile of ``made(*inputs)``."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        made(*inputs)
    path = tmp_path / "rank0.json"
    profiler.export_chrome_trace(str(path))
    return convert_traces([path])


def products(made, tmp_path, *inputs):
    """FLOPs of each product in a profile of ``made(*inputs)``."""
    [program] = profiled(made, tmp_path, *inputs).programs
    return [
        sum(item.flops for item in node.work.items if item.unit is Unit.MATMUL)
        for node in program.graph
        if any(item.unit is Unit.MATMUL for item in node.work.items)
    ]


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_that_copies_its_bias_first_is_a_product(bias, tmp_path):
    layer = torch.nn.Linear(IN, OUT, bias=bias)
    assert products(layer, tmp_path, torch.ones(ROWS, IN)) == [2 * ROWS * IN * OUT]


def test_products_of_a_gradient_with_a_bias_are_all_there(tmp_path):
    """Forward, for the weights and for the input: as many FLOPs each."""
    layer = torch.nn.Linear(IN, OUT)
    x = torch.ones(ROWS, IN, requires_grad=True)
    assert products(lambda: layer(x).sum().backward(), tmp_path) == [2 * ROWS * IN * OUT] * 3


def test_a_product_that_a_checkpoint_has_ended_is_not_work(tmp_path):
    """Forward two products, again the first one, and the gradients of both operands of the first,
    and of one of the second: its weight is frozen.  The second one's record when it is computed
    again is empty, as what it saves is there.
    """
    first, last = torch.ones(IN, OUT, requires_grad=True), torch.ones(OUT, IN)
    x = torch.ones(ROWS, IN, requires_grad=True)

    def step():
        checkpoint(lambda x: x + (x @ first) @ last, x, use_reentrant=False).sum().backward()

    assert products(step, tmp_path) == [2 * ROWS * IN * OUT] * 6


def test_a_dropout_that_drops_nothing_is_not_work_and_memory_is_not_reported(tmp_path):
    """Neither keeps FLOPs from being known: 3 products; no shape tells what lies in memory."""
    layers = torch.nn.Sequential(torch.nn.Linear(IN, OUT), torch.nn.Dropout(0.0))
    x = torch.ones(ROWS, IN, requires_grad=True)
    workload = profiled(lambda: layers(x).sum().backward(), tmp_path)
    result = workload.simulate()
    assert result.figures.model_flops == 3 * 2 * ROWS * IN * OUT
    assert result.to_json()["peak_memory_bytes"] is None
    assert result.fits is None
    assert not any("lists no rate" in note for note in result.notes)


def of_compiled(tmp_path, *names):
    """A compiled graph's call of 100 us on a host, with a product and with ops of such names."""
    sizes = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
    trace = Profile(0, 1)
    trace.span("## Call CompiledFxGraph abc ##", 0, 100)
    trace.op("aten::mm", 0, 10, **sizes)
    for number, name in enumerate(names, 1):
        trace.op(name, 20 * number, 10)
    trace.op("aten::mm", 90, 10, **sizes)
    return convert_traces([trace.write(tmp_path / "rank0.json")])


def test_kernels_that_inductor_made_in_cpp_are_nodes_where_the_profile_names_them(tmp_path):
    """As PyTorch 2.13 writes them with ``enable_kernel_profile``; none is an attention."""
    name = "graph_0_cpp_fused__scaled_dot_product_flash_attention_div_1"
    workload = of_compiled(tmp_path, name)
    assert [node.op for node in workload.programs[0].graph] == ["aten::mm", name, "aten::mm"]
    result = workload.simulate()
    assert result.figures.model_flops == 2 * 2 * 4 * 8 * 2
    assert {row.name for row in result.programs[0].classes} >= {"elementwise", "matmul"}
    assert UNNAMED_KERNELS not in workload.warnings


def test_a_compiled_graph_whose_kernels_are_not_named_is_reported(tmp_path):
    workload = of_compiled(tmp_path)
    workload.save(tmp_path / "out")
    assert workload.warnings[UNNAMED_KERNELS] == 1


def test_what_a_profile_lacks_is_reported_with_what_records_it(tmp_path):
    """Shapes, marks of steps that do not repeat, and kernels for which the host waits."""
    layer, other = torch.nn.Linear(IN, OUT), torch.nn.Linear(OUT, OUT)
    both = torch.nn.Sequential(layer, other)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for model in (layer, both):
            model(torch.ones(ROWS, IN)).sum().backward()
            torch.optim.SGD(model.parameters()).step()
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    workload = convert_traces([tmp_path / "rank0.json"])
    assert NO_SHAPES in workload.warnings
    [steps] = [text for text in workload.warnings if "steps 2 times" in text]
    assert "call profiler.step()" in steps
    trace = Profile(0, 1)
    trace.op("aten::mm", 0, 10)
    trace.call("cudaDeviceSynchronize", 20)
    workload = convert_traces([trace.write(tmp_path / "without.json")])
    assert workload.warnings[NO_KERNELS] == 1


def test_time_between_the_ops_of_a_host_is_reported(tmp_path):
    """Without kernels: 10 us of an op, 60 of nothing, 10 of another one; or 9,980 of nothing."""
    for pause, said in ((60, "in 75% of the step's 80 us"), (9_980, "in more than 99% of the")):
        trace = Profile(0, 1)
        trace.op("aten::mm", 0, 10)
        trace.op("aten::mm", 10 + pause, 10)
        [text] = [
            text
            for text in convert_traces([trace.write(tmp_path / "rank0.json")]).warnings
            if "no op ran" in text
        ]
        assert said in text


#: Ops with what they call, (name, begin, microseconds), as PyTorch 2.13 records them on a CPU.
UNKNOWN = {
    "fft": (
        [("aten::fft_rfft", 0, 220), ("aten::_fft_r2c", 5, 200), ("aten::empty", 10, 19),
         ("aten::permute", 30, 4), ("aten::resize_", 40, 1)],
        {"aten::_fft_r2c": 200},
    ),
    "upsampling": (
        [("aten::upsample_bilinear2d", 0, 248), ("aten::upsample_bilinear2d", 10, 221),
         ("aten::as_strided", 15, 8), ("aten::empty", 30, 12)],
        {"aten::upsample_bilinear2d": 221},
    ),
    "factors, with a copy of the matrix": (
        [("aten::linalg_lu_factor_ex", 0, 89), ("aten::copy_", 5, 7)],
        {"aten::linalg_lu_factor_ex": 89},
    ),
    "upsampling of a few elements, which takes less time than its copy": (
        [("aten::upsample_bilinear2d", 0, 95), ("aten::upsample_bilinear2d", 15, 80),
         ("aten::contiguous", 20, 58), ("aten::clone", 22, 50), ("aten::empty_like", 24, 4),
         ("aten::copy_", 30, 40)],
        {"aten::upsample_bilinear2d": 80},
    ),
    "only a call of others": (
        [("aten::pad_sequence", 0, 60), ("aten::empty", 2, 8), ("aten::copy_", 15, 20),
         ("aten::copy_", 40, 15)],
        {"aten::copy_": 35},
    ),
    "a view": (
        [("aten::tensor_split", 0, 20), ("aten::as_strided", 2, 3), ("aten::mm", 30, 10)],
        {"aten::mm": 10},
    ),
    "a library's product, into a result that it is given": (
        [("_C::onednn_mm", 0, 100), ("aten::item", 2, 3), ("aten::_local_scalar_dense", 3, 1),
         ("aten::mm", 110, 10)],
        {"_C::onednn_mm": 100, "aten::mm": 10},
    ),
    "a library's op that calls another's": (
        [("vllm::attention", 0, 100), ("aten::view", 2, 3), ("_C::cpu_attention", 95, 4)],
        {"_C::cpu_attention": 4},
    ),
    "random numbers": (
        [("aten::randn", 0, 60), ("aten::empty", 2, 8), ("aten::normal_", 12, 40)],
        {"aten::normal_": 40},
    ),
    "a view of complex numbers": (
        [("aten::view_as_real", 0, 20), ("aten::mm", 30, 10)], {"aten::mm": 10},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_op_of_unknown_class_is_a_node_if_it_works_itself(case, tmp_path):
    ops, wanted = UNKNOWN[case]
    trace = Profile(0, 1)
    for name, begin, took in ops:
        trace.op(name, begin, took)
    [program] = convert_traces([trace.write(tmp_path / "rank0.json")]).programs
    found = dict.fromkeys(wanted, 0.0)
    for node, measured in zip(program.graph, program.graph.measured_by_node(), strict=True):
        found[node.op] += measured / 1e3
    assert found == wanted


def test_an_execution_trace_has_ops_of_unknown_class_that_make_their_results(tmp_path):
    """Without times: an FFT is an op, and the function around it is not."""
    layer, x = torch.nn.Linear(IN, OUT), torch.ones(ROWS, IN)
    path = tmp_path / "et_rank0.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    torch.view_as_real(torch.fft.rfft(layer(x))).sum()
    observer.stop()
    observer.unregister_callback()
    [program] = convert_traces([path]).programs
    assert [node.op for node in program.graph] == ["aten::addmm", "aten::_fft_r2c", "aten::sum"]
