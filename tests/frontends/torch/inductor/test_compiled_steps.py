"""Steps whose model is compiled: Inductor's kernels against real runs and counts by hand."""

from __future__ import annotations

import functools
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.frontends.torch import small_models as small
from tests.frontends.torch.in_child import record_in_child

#: What a GPU ran of a compiled block, forward: kernels and products in their order, with the shapes
#: of Triton's tensors (a profiler's trace on an MI300X, torch_compile_triton of
#: github.com/AMD-AGI/TraceLens).
BATCH, LENGTH, DIM, HIDDEN, HEADS = 8, 4096, 2048, 8192, 16
ROWS = BATCH * LENGTH
X, W = (BATCH, LENGTH, DIM), (DIM,)
RAN = [
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", [X, W, X]),
    *[("mm", [(ROWS, DIM), (DIM, DIM)])] * 3,
    ("_scaled_dot_product_flash_attention", [(BATCH, HEADS, LENGTH, DIM // HEADS)] * 3),
    ("mm", [(ROWS, DIM), (DIM, DIM)]),
    ("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1", [X, (ROWS, DIM), W, X]),
    *[("mm", [(ROWS, DIM), (DIM, HIDDEN)])] * 2,
    ("triton_poi_fused__unsafe_view_mul_silu_2", [(BATCH, LENGTH, HIDDEN), (ROWS, HIDDEN)]),
    ("mm", [(ROWS, HIDDEN), (HIDDEN, DIM)]),
    ("triton_poi_fused__unsafe_view_add_3", [X, X, (ROWS, DIM)]),
]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        h = self.first(x)
        heads = (
            w(h).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(*heads)
        x = x + self.o(y.transpose(1, 2).reshape(x.shape))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def block(mesh):
    with torch.device("cuda"):
        model = Block().to(torch.bfloat16)
        x = torch.empty(X, dtype=torch.bfloat16)
    return torch.compile(model), x


def infer(model, x):
    with torch.no_grad():
        return model(x)


@functools.cache
def compiled(function, setup, shape=(1,), axes=("dp",)):
    return record_in_child(function, setup, shape, axes, compile_for="h100-sxm")


def name_of(op):
    return op.name.split(".")[1]


def kernels(recording):
    return [op for op in recording.ops if name_of(op) not in ("empty_strided", "empty")]


def tensors_of(op):
    """Shapes of a kernel's tensors: of an op of PyTorch, those that it takes but does not write."""
    if op.name.startswith("aten."):
        return [item.shape for item in op.args if hasattr(item, "shape")]
    read, written, _ = op.args
    changed = {(item.storage, item.offset) for item in read}
    fresh = [item.shape for item in written if (item.storage, item.offset) not in changed]
    return [item.shape for item in read] + fresh


def test_a_compiled_block_has_the_kernels_and_products_that_a_gpu_ran_in_their_order():
    found = kernels(compiled(infer, block))
    assert [name_of(op) for op in found] == [name for name, _ in RAN]
    for op, (name, shapes) in zip(found, RAN, strict=True):
        assert sorted(tensors_of(op)) == sorted(shapes), name


def rows(mesh):
    return (torch.compile(work), *(torch.empty(64, 256, device="cuda") for _ in range(2)))


def work(x, y):
    return torch.exp(x * y).sum(1), x[:, :32] + 1


def call(function, *args):
    return function(*args)


def test_a_kernel_reads_writes_and_computes_what_its_loops_do():
    # Per element: a product, an exponential, a sum. Of x, y: 64 x 256 float32; 64 sums.
    # The second one: a sum per element of 64 x 32, of which it reads no more.
    first, second = (json.loads(op.args[2]) for op in kernels(compiled(call, rows)))
    whole, part = 64 * 256, 64 * 32
    assert first == {
        "flops": 2 * whole, "transcendentals": whole,
        "read": [4 * whole, 4 * whole], "written": [4 * 64],
    }  # fmt: skip
    assert second == {
        "flops": part, "transcendentals": 0, "read": [4 * part], "written": [4 * part],
    }  # fmt: skip


def halves(x):
    return x * torch.full_like(x, 0.5)


def halved(mesh):
    return torch.compile(halves), torch.empty(64, 256, device="cuda")


def test_constants_keep_their_values_while_a_graph_is_simplified():
    found = compiled(call, halved)
    (kernel,) = kernels(found)  # a product with 1 would be none
    assert json.loads(kernel.args[2])["flops"] == 64 * 256
    assert not found.warnings


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(256))

    def forward(self, x):
        return torch.exp(x * self.weight)


def many(mesh):
    with torch.device("cuda"):
        layers = nn.Sequential(*(Twice() for _ in range(12)))
    for layer in layers:
        layer.compile()
    return layers, torch.empty(64, 256, device="cuda")


def test_blocks_of_one_kind_are_compiled_once_however_many_there_are():
    # PyTorch compiles one piece of code anew at most eight times, and leaves it eager then.
    found = compiled(infer, many)
    assert [name_of(op) for op in kernels(found)] == ["triton_poi_fused_exp_mul_0"] * 12
    assert not found.warnings


def training(mesh):
    model, optimizer, tokens = small.plain(mesh)
    return torch.compile(model), optimizer, tokens


def products(recording):
    """(batch, rows, inner, columns) of every product, however it is called, and how often."""
    found = {}
    for op in recording.ops:
        if name_of(op) in ("mm", "addmm", "bmm", "baddbmm"):
            first, second = [item.shape for item in op.args if hasattr(item, "shape")][-2:]
            key = (*first, second[-1])
            found[key] = found.get(key, 0) + 1
    return found


def changed(recording):
    """Names of what a step changes that is there before it."""
    written = {view.storage for op in recording.ops for view in op.writes}
    return {item.name for item in recording.inputs if item.view.storage in written}


def test_a_compiled_training_step_has_the_products_of_the_eager_one_and_changes_the_same():
    eager = record_in_child(small.step, small.plain, (1,), ("dp",))
    found = compiled(small.step, training)
    assert products(found) == products(eager)
    assert changed(found) == changed(eager)
    assert sum(op.name.startswith("inductor") for op in found.ops) > 10
    assert len(kernels(found)) < len(kernels(eager))
    assert not found.warnings


def blocks(mesh, shard=small.sharded):
    model, optimizer, tokens = shard(mesh)
    for layer in model.layers.values():
        layer.compile(fullgraph=True)
    return model, optimizer, tokens


def collectives(recording):
    """Collectives in their order: name, ranks, shapes of their tensors."""
    return [
        (op.name, recording.groups[op.group].ranks, *map(str, tensor_shapes(op)))
        for op in recording.ops
        if op.group >= 0
    ]


def tensor_shapes(op):
    for item in op.args:
        for view in item if isinstance(item, tuple) else (item,):
            if hasattr(view, "shape"):
                yield view.shape


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((4,), ("dp",)),
        pytest.param((2, 2), ("dp", "tp"), marks=pytest.mark.thorough),
    ],
)
def test_compiled_blocks_of_a_sharded_model_communicate_as_eager_ones(shape, axes):
    eager = record_in_child(small.step, small.sharded, shape, axes)
    found = compiled(small.step, blocks, shape, axes)
    assert collectives(found) == collectives(eager)
    assert products(found) == products(eager)
    assert any(op.name.startswith("inductor") for op in found.ops)


def other_backend(mesh):
    model, optimizer, tokens = small.plain(mesh)
    return torch.compile(model, backend="aot_eager"), optimizer, tokens


@pytest.mark.thorough
def test_another_backend_is_eager_code_and_that_is_reported():
    found = compiled(small.step, other_backend)
    eager = record_in_child(small.step, small.plain, (1,), ("dp",))
    assert [op.name for op in found.ops] == [op.name for op in eager.ops]
    ((text, _),) = found.warnings.items()
    assert "backend aot_eager is not Inductor" in text and "test_compiled_steps.py" in text


def test_nothing_compiled_is_reported():
    found = compiled(call, lambda mesh: (work, *(torch.empty(4, 64, device="cuda"),) * 2))
    assert list(found.warnings) == [
        "nothing is compiled (torch.compile): all of the step is eager code"
    ]


def broken(mesh):
    def fails(x, y):
        return torch.exp(refused(x) * y)

    return (torch.compile(fails), *(torch.empty(64, 256, device="cuda") for _ in range(2)))


def refused(x):
    """Dynamo does not trace into this."""
    torch._dynamo.graph_break()
    return x + 1


@pytest.mark.thorough
def test_the_parts_around_a_graph_break_are_compiled():
    found = kernels(compiled(call, broken))
    assert [name_of(op) for op in found] == ["triton_poi_fused_add_0", "triton_poi_fused_exp_mul_0"]


early = torch.compile(work)  # where a file is imported, before any capture


def test_what_was_compiled_before_the_capture_began_is_compiled_for_its_gpu():
    found = compiled(call, lambda mesh: (early, *(torch.empty(64, 256, device="cuda"),) * 2))
    assert all(op.name.startswith("inductor") for op in kernels(found))
    assert not found.warnings


def test_what_was_compiled_before_the_capture_began_is_eager_at_the_partitioned_level():
    setup = functools.partial(rows_for, early)
    found = record_in_child(call, setup, (1,), ("dp",))
    eager = record_in_child(call, functools.partial(rows_for, work), (1,), ("dp",))
    assert [op.name for op in found.ops] == [op.name for op in eager.ops]


def rows_for(function, mesh):
    return (function, *(torch.empty(64, 256, device="cuda") for _ in range(2)))
