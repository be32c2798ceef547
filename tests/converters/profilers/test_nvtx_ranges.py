"""NVTX ranges of PyProf and of PyTorch in exports of Nsight Systems.

The texts are as PyProf's ``nvmarker.py`` makes them: dictionaries of Python.
"""

from __future__ import annotations

import pytest

from flint.graph.work import Unit
from flint.post_execution.converting import convert_traces
from tests.converters.profilers.nsys_exports import Export


def tensor(*shape, name=""):
    """An argument as PyProf describes it."""
    return {"name": name, "type": "tensor", "shape": shape, "dtype": "float16"}


def call(module, op, *arguments):
    """A range of PyProf's around a call: the text of a Python dictionary."""
    return str({"mod": module, "op": op, "args": list(arguments)})


#: A range whose text ends early.
CUT = "{'mod': 'torch', 'op': 'mm', 'args': [{'name'"
#: PyProf's calls, and by hand: the name of the op and its FLOPs of products.
CALLS = {
    call("torch.nn.functional", "linear", tensor(16, 32), tensor(8, 32)): (
        "aten::linear", 2 * 16 * 32 * 8,
    ),
    call("Tensor", "__matmul__", tensor(4, 5), tensor(5, 6)): ("aten::matmul", 2 * 4 * 5 * 6),
    # Moved by one in each direction: 3 x 3 x 3 sums for each of 2 x 4 x 8 x 8 results.
    call(
        "torch", "conv2d", tensor(2, 3, 8, 8), tensor(4, 3, 3, 3), {"name": "", "type": "NoneType"},
        *({"name": "", "type": "tuple", "value": (1, 1)} for _ in range(3)),
        {"name": "", "type": "int", "value": 1},
    ): ("aten::conv2d", 2 * (2 * 4 * 8 * 8) * 27),
    # The weight was given by name: which argument of the op it is, the range does not say.
    call("torch.nn.functional", "linear", tensor(16, 32), tensor(8, 32, name="weight")): (
        "aten::linear", 0,
    ),
    call("apex.normalization", "forward", tensor(4, 8)): ("apex.normalization.forward", 0),
    CUT: (CUT, 0),
}  # fmt: skip


@pytest.mark.parametrize("text", CALLS)
def test_ranges_of_pyprof_are_the_calls_that_they_describe(text, tmp_path):
    """Around a call are the lines that led to it, outermost first, and its module."""
    name, flops = CALLS[text]
    export = Export(tmp_path / "report.sqlite")
    lines = ["run.py:7", "train.py:31", "/usr/lib/python3.11/site-packages/torch/functional.py:9"]
    export.range(str({"traceMarker": lines}), 0, 30)
    export.range(str({"mod": "Linear", "strRepr": "in_features=32, out_features=8"}), 1, 25)
    export.range(text, 2, 20)
    export.kernel(5, 30, 10)
    [node] = convert_traces([export.write()]).programs[0].graph
    assert node.op == f"{name}: gemm"
    found = [item.flops for item in node.work.items if item.unit == Unit.MATMUL]
    assert sum(found) == flops
    assert (node.source.file, node.source.line) == ("train.py", 31)
    assert node.source.layer == "Linear"


def test_an_embedding_reads_the_rows_that_it_is_asked_for(tmp_path):
    """PyProf has the indices first, the op the table: 3 rows of 5 numbers of 2 bytes."""
    export = Export(tmp_path / "report.sqlite")
    indices = {"name": "", "type": "tensor", "shape": (3,), "dtype": "int64"}
    export.range(call("torch.nn.functional", "embedding", indices, tensor(1000, 5)), 0, 20)
    export.kernel(5, 30, 10)
    [node] = convert_traces([export.write()]).programs[0].graph
    assert (node.work.read, node.work.written) == (3 * 5 * 2 + 3 * 8, 3 * 5 * 2)


def test_several_training_steps_under_one_range_are_counted(tmp_path):
    export = Export(tmp_path / "report.sqlite")
    export.range("step 0", 0, 300)
    for step in range(3):
        begin = 100 * step
        export.range("aten::mm, seq = 1, op_id = 7, sizes = [[4, 8], [8, 2]]", begin + 1, 10)
        for name in ("evaluate_function: AccumulateGrad", "AccumulateGrad"):
            text = f"autograd::engine::{name}" if ":" in name else f"torch::autograd::{name}"
            export.range(f"{text}, op_id = 9, sizes = [[8, 2]]", begin + 20, 10)
        export.range("Optimizer.step#SGD.step", begin + 40, 10)
        export.kernel(begin + 42, begin + 50, 5)
    warnings = convert_traces([export.write()]).warnings
    told = [text for text in warnings if "under one mark" in text]
    assert [text.split()[0] for text in told] == ["3"]


@pytest.mark.parametrize("marked", [True, False])
def test_kernels_under_a_range_around_several_steps_are_of_the_steps_that_launched_them(
    marked, tmp_path
):
    """As a public profile of eight passes of ResNet-50 has one range around the timed passes.

    A step has five kernels of 10 us without gaps.
    """
    export = Export(tmp_path / "report.sqlite")
    export.range("inference", 95, 300)
    for step in range(4):
        begin = 100 * step
        if marked:
            export.range(f"step {step}", begin, 99)
        for number, name in enumerate(["stem", "copy", "gemm", "copy", "gemm"]):
            export.kernel(begin + 2 + number, begin + 50 + 10 * number, 10, name)
    path = export.write()
    for step in range(4):
        workload = convert_traces([path], step=str(step))
        assert len(workload.programs[0].graph) == 5
        assert workload.simulate().step_seconds == pytest.approx(50e-6)
