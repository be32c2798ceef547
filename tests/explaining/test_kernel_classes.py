"""The class by which a kernel's time is explained is that of its op, in captures and profiles."""

from __future__ import annotations

import pytest

import flint
from flint.cost.classes import KERNELS, shown_classes
from flint.graph.graph import NodeKind
from flint.observed.classes import base_name
from flint.post_execution.converting import convert_traces

torch = pytest.importorskip("torch")

#: What the function below runs, by what each op does to its operands.
WANTED = {
    "mm": "matmul",
    "_to_copy": "movement", "clone": "movement", "embedding": "movement", "cat": "movement",
    "upsample_bilinear2d": "movement",
    "native_layer_norm": "reduction", "_softmax": "reduction", "sort": "reduction",
    "gelu": "elementwise", "add": "elementwise", "uniform": "elementwise",
}  # fmt: skip
#: Ops that profiles of a CPU show as the op that they call.
CALLED = {"_to_copy": "copy", "clone": "copy", "embedding": "index_select"}


def step(table, weight, words, picture):
    x = torch.nn.functional.embedding(words, table)
    x = torch.nn.functional.layer_norm(torch.mm(x, weight), (8,))
    x = torch.cat([torch.nn.functional.gelu(x), x.softmax(-1)]).sort()[0]
    noise = torch.empty_like(x).uniform_()
    wider = torch.nn.functional.interpolate(picture, scale_factor=2.0, mode="bilinear")
    return (x + noise).to(torch.bfloat16).t().clone(), wider, x.clone()


def made(mesh=None):
    with torch.device("cpu" if mesh is None else mesh.device_type):
        return torch.ones(10, 4), torch.ones(4, 8), torch.arange(6), torch.ones(1, 2, 8, 8)


def shown(workload):
    """Class of each op that computes."""
    [program] = workload.programs
    kinds = shown_classes(program.graph).tolist()
    return {
        base_name(node.op.partition(": ")[0]): KERNELS[kind]
        for node, kind in zip(program.graph, kinds, strict=True)
        if node.kind is NodeKind.COMPUTE
    }


def test_an_op_is_of_the_same_class_in_a_capture_and_in_a_profile(tmp_path):
    captured = shown(
        flint.capture(step, mesh=(1,), axes=("x",), setup=made, framework="torch").capture()
    )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step(*made())
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    profiled = shown(convert_traces([tmp_path / "rank0.json"]))
    for name, kind in WANTED.items():
        assert captured[name] == kind, name
        assert profiled[CALLED.get(name, name)] == kind, name
