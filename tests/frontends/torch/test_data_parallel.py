"""DistributedDataParallel with what users add to it."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.in_child import record_in_child  # noqa: E402
from tests.frontends.torch.real.processes import Case, preload, run_faked, run_really  # noqa: E402
from tests.support.shared import quick  # noqa: E402

preload()


def hooked(mesh):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(mesh.device_type)
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, bf16_compress_hook)
    return model, torch.randn(4, 8, 32, device=mesh.device_type)


def accumulating_step(model, x):
    with model.no_sync():
        model(x[:2]).square().mean().backward()
    model(x[2:]).square().mean().backward()


def test_a_bf16_hook_reduces_the_second_micro_batchs_gradients_only_in_bf16():
    """Per layer 96 * 32 + 96 (q, k, v), 32 * 32 + 32, 64 * 32 + 64, 32 * 64 + 32, four of 32."""
    ops = record_in_child(accumulating_step, hooked, (4,), ("dp",)).ops
    (reduced,) = [op for op in ops if op.group >= 0]
    assert reduced.name == "c10d.allreduce_.default"
    assert (reduced.writes[0].shape, reduced.writes[0].dtype) == ((2 * 8544,), "bfloat16")


def wrapped(static_graph, mesh):
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
    model = torch.nn.Sequential(*layers).to(mesh.device_type)
    options = {"static_graph": True, "find_unused_parameters": True} if static_graph else {}
    model = torch.nn.parallel.DistributedDataParallel(model, **options)
    return model, torch.randn(4, 16, device=mesh.device_type)


def plain_step(model, x):
    model(x).square().mean().backward()


def test_a_static_graphs_step_communicates_the_gradients_and_nothing_else():
    """16 * 32 + 32 and 32 * 16 + 16 numbers in one bucket; which are used is known by then."""
    ops = record_in_child(plain_step, partial(wrapped, True), (4,), ("dp",)).ops
    (reduced,) = [op for op in ops if op.group >= 0]
    assert (reduced.writes[0].shape, reduced.writes[0].dtype) == ((1072,), "float32")
    plain = record_in_child(plain_step, partial(wrapped, False), (4,), ("dp",)).ops
    assert [op.name for op in ops if op.phase == "backward"] == [
        op.name for op in plain if op.phase == "backward"
    ]


def looking(unused, mesh):
    layers = [torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)]
    model = torch.nn.Sequential(*layers).to(mesh.device_type)
    if unused:
        model.unused = torch.nn.Parameter(torch.zeros(3, device=mesh.device_type))
        first, second = model
        model.forward = lambda x: second(first(x))
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    return model, torch.randn(4, 16, device=mesh.device_type)


def test_a_step_that_looks_for_unused_parameters_and_has_none_sends_the_map_of_them():
    """1,072 gradients as above, then 4 numbers of 4 bytes; their sum is not fetched."""
    recording = record_in_child(plain_step, partial(looking, False), (4,), ("dp",), 2)
    reduced = [op for op in recording.ops if op.group >= 0]
    assert [(op.writes[0].shape, op.writes[0].dtype) for op in reduced] == [
        ((1072,), "float32"),
        ((4,), "int32"),
    ]
    assert not [text for text in recording.warnings if "Distributed" in text]


def test_an_unused_parameter_is_zeroed_reduced_and_left_alone():
    """1,072 and 3 numbers in one bucket; four gradients are written and the map is fetched."""
    recording = record_in_child(plain_step, partial(looking, True), (4,), ("dp",), 2)
    reduced = [op for op in recording.ops if op.group >= 0]
    assert [op.writes[0].shape for op in reduced] == [(1075,), (5,)]
    zeroed = [op for op in recording.ops if op.name == "aten.zero_.default"]
    assert [op.writes[0].shape for op in zeroed] == [(3,)]
    last = recording.ops.index(reduced[-1])
    written = [op.writes[0].shape for op in recording.ops[last:] if "copy_" in op.name]
    assert sorted(written) == [(5,), (16,), (16, 32), (32,), (32, 16)]
    [text] = [text for text in recording.warnings if "DistributedDataParallel" in text]
    assert "1 parameters that are not used here are assumed to be used by no rank" in text


#: What ``compressed`` has sent in this step, by any thread.
SENT = []


def compressed(start, mesh):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    plain = torch.distributed.all_reduce

    def noted(tensor, *args, **kwargs):
        SENT.append(tuple(tensor.shape))
        return plain(tensor, *args, **kwargs)

    torch.distributed.all_reduce = noted
    model, x = wrapped(False, mesh)
    model.state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=start)
    model.register_comm_hook(model.state, powerSGD_hook.powerSGD_hook)
    return model, x


def compressed_step(model, x):
    SENT.clear()
    plain_step(model, x)
    if model.state.iter > model.state.start_powerSGD_iter:
        assert SENT == [(48,), (48,), (48,)]


def test_gradients_are_compressed_as_they_are_once_compression_has_begun():
    """Of rank 1: 32 + 16 biases as they are, then vectors of 32 + 16 and of 16 + 32 numbers."""
    case = Case((2,), ("dp",), partial(compressed, 2), compressed_step, (0,), warm_up=4)
    sent = [
        [_shapes(op["args"])[0] for op in seen[0]["ops"] if op["name"].startswith("c10d.allreduce")]
        for seen in (run_really(case), run_faked(case))
    ]
    really, faked = sent
    assert faked == [(48,), (48,), (48,)]
    # The second and third are sent by the thread that ends the first, which is not always the one
    # that is recorded; that a real step sends three is asserted in it.
    assert really and really == faked[: len(really)]
    recording = record_in_child(plain_step, partial(compressed, 1000), (2,), ("dp",))
    assert len([op for op in recording.ops if op.group >= 0]) == 3
    [text] = [text for text in recording.warnings if text.startswith("PowerSGDState at ")]
    assert text.endswith("the step is one after start_powerSGD_iter=1000")


class Partly(torch.nn.Module):
    """Four of eight parameters are used."""

    def __init__(self):
        super().__init__()
        self.first, self.skipped = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16)
        self.second, self.other = torch.nn.Linear(16, 8), torch.nn.Linear(3, 5)

    def forward(self, x):
        return self.second(self.first(x).relu())


class Repeated(Partly):
    """Several backward passes reach the first layers: those of checkpoints of either kind."""

    def forward(self, x):
        for reentrant in (True, False, True):
            block = torch.nn.Sequential(self.first, torch.nn.ReLU(), self.second)
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
        return self.skipped(torch.cat([x, x], 1))


def in_small_buckets(options, made, mesh):
    model = made().to(mesh.device_type)
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0005, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, foreach=True)
    return model, optimizer, torch.randn(4, 8, device=mesh.device_type).requires_grad_()


def updating_step(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def keeping_step(model, optimizer, x):
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()


def micro_batches_step(model, optimizer, x):
    with model.no_sync():
        model(x).square().mean().backward()
    updating_step(model, optimizer, x)


def synchronised_first(model, optimizer, x):
    """Micro-batches after the first step: a static graph's first gradients must be reduced."""
    step = micro_batches_step if optimizer.state else updating_step
    step(model, optimizer, x)


UNUSED = {
    "looking": ({"find_unused_parameters": True}, updating_step, Partly),
    "views": (
        {"find_unused_parameters": True, "gradient_as_bucket_view": True}, updating_step, Partly,
    ),
    "kept gradients": ({"find_unused_parameters": True}, keeping_step, Partly),
    "micro-batches": ({"find_unused_parameters": True}, micro_batches_step, Partly),
    "static": ({"static_graph": True}, updating_step, Partly),
    "static, several passes": ({"static_graph": True}, updating_step, Repeated),
    "static, several passes, micro-batches": ({"static_graph": True}, synchronised_first, Repeated),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(UNUSED, "looking"))
def test_unused_parameters_are_treated_as_by_real_processes(name):
    """Buckets, the map, copies, what the optimizer updates: of two gloo processes."""
    options, step, made = UNUSED[name]
    setup = partial(in_small_buckets, options, made)
    case = Case((2,), ("dp",), setup, step, (0, 1), warm_up=3)
    real, faked = run_really(case), run_faked(case)
    for rank in case.ranks:
        ours, theirs = (_told(seen[rank]["ops"]) for seen in (faked, real))
        assert Counter(ours) == Counter(theirs)
        assert [op for op in ours if op[0] in ORDERED] == [op for op in theirs if op[0] in ORDERED]


#: What the order of is compared; unused parameters come in that of a hash table.
ORDERED = ("aten.mm.default", "aten.mul.out", "c10d.allreduce_.default")


#: What is the host's alone on a GPU, and what only the step after the first does.
LEFT_OUT = frozenset(
    ("read", "wait", "aten.fill_.Scalar", "aten.empty.memory_format", "c10d.broadcast_.default")
)


def _told(ops):
    """Name, shapes that it is given and phase of every op."""
    kept = [op for op in ops if op["name"] not in LEFT_OUT]
    return [(op["name"], tuple(_shapes(op["args"])), op.get("phase")) for op in kept]


def _shapes(item):
    if isinstance(item, list):
        return [shape for part in item for shape in _shapes(part)]
    return [tuple(item["view"][2])] if isinstance(item, dict) and "view" in item else []


def partitioned(mesh):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, x = wrapped(False, mesh)
    options = {"optimizer_class": torch.optim.SGD, "lr": 0.1, "momentum": 0.9}
    return model, ZeroRedundancyOptimizer(model.parameters(), **options), x


def partitioned_step(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_partitioned_optimizers_owners_broadcast_what_they_updated():
    """The largest first, each to the rank that has least: two weights, biases of 32 and of 16."""
    recording = record_in_child(partitioned_step, partitioned, (4,), ("dp",), 2)
    sent = [op for op in recording.ops if op.name == "c10d.broadcast_.default"]
    assert [op.writes[0].shape for op in sent] == [(32, 16), (16, 32), (32,), (16,)]
    assert [next(item for item in op.args if type(item) is int) for op in sent] == [0, 1, 2, 3]
    states = [item.view.shape for item in recording.inputs if item.role == "optimizer state"]
    assert states == [(32,)]  # the third's momentum


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def test_scripted_functions_run_wherever_they_are_made():
    def step(x):
        return torch.jit.script(doubled)(scripted(x))

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def setup(mesh):
        return (torch.randn(4, device=mesh.device_type),)

    ops = record_in_child(step, setup, (1,), ("dp",)).ops
    assert [op.name.split(".")[1] for op in ops] == ["relu", "mul", "mul"]
