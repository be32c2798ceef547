"""A kernel's class and its FLOPs are those of its op, in captures and profiles."""

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
    torch.linalg.lu_factor_ex(x)
    spectrum = torch.fft.irfft(torch.fft.rfft2(x)[:5], dim=-1)
    noise = torch.empty_like(x).uniform_()
    wider = torch.nn.functional.interpolate(picture, scale_factor=2.0, mode="bilinear")
    return (x + noise).to(torch.bfloat16).t().clone(), wider, x.clone(), spectrum


def made(mesh=None):
    with torch.device("cpu" if mesh is None else mesh.device_type):
        return torch.ones(10, 4), torch.ones(4, 8), torch.arange(6), torch.ones(1, 2, 8, 8)


@pytest.fixture(scope="module")
def workloads(tmp_path_factory):
    """The function as captured, and as profiled."""
    captured = flint.capture(step, mesh=(1,), axes=("x",), setup=made, framework="torch").capture()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        step(*made())
    path = tmp_path_factory.mktemp("profile") / "rank0.json"
    profiler.export_chrome_trace(str(path))
    return captured, convert_traces([path])


def graphs_of(workloads):
    return [workload.programs[0].graph for workload in workloads]


def by_op(graph, column):
    """A number of each op that computes."""
    return {
        base_name(node.op.partition(": ")[0]): number
        for node, number in zip(graph, column.tolist(), strict=True)
        if node.kind is NodeKind.COMPUTE
    }


def test_an_op_is_of_the_same_class_in_a_capture_and_in_a_profile(workloads):
    captured, profiled = (by_op(graph, shown_classes(graph)) for graph in graphs_of(workloads))
    for name, kind in WANTED.items():
        assert KERNELS[captured[name]] == kind, name
        assert KERNELS[profiled[CALLED.get(name, name)]] == kind, name


def test_a_simulation_has_these_classes(workloads):
    """The cast, two clones, an embedding, a concatenation and a resized picture move data."""
    [program] = workloads[0].simulate().programs
    counts = {row.name: row.count for row in program.classes}
    assert (counts["movement"], counts["elementwise"]) == (6, 3)


def test_transforms_and_factorisations_have_the_same_flops_in_a_capture_and_in_a_profile(workloads):
    """Of 12 rows by 8: m n^2 - n^3 / 3 of a factorisation, a transform, and one back of 5 rows."""
    captured, profiled = (by_op(graph, graph.flops_by_node()) for graph in graphs_of(workloads))
    wanted = {
        "linalg_lu_factor_ex": 12 * 8**2 - 8**3 // 3 - 1,
        "_fft_r2c": 8 * (12 * 8) * 3 + 8 * (12 * 5) * 3,
    }
    wanted["_fft_c2r"] = 8 * (5 * 5) * 3
    for name, flops in wanted.items():
        # A capture's transform also multiplies by its factor.
        assert flops <= captured[name] <= flops + 12 * 8, name
        assert profiled[name] == flops, name
