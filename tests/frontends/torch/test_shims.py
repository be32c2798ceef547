"""Shims: the same answers as PyTorch's own, for less work; functions that are compiled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.in_child import in_child, record_in_child  # noqa: E402


def _meshes(ranks):
    from torch.distributed.device_mesh import init_device_mesh

    from flint.frontends.torch import shims
    from flint.frontends.torch.cluster import cluster, device, registration

    registration.register()
    shims.apply_all()
    cluster.start(0, (ranks,), ("dp",), device.NAME, 8)
    one = init_device_mesh(device.NAME, (2, ranks // 2), mesh_dim_names=("a", "b"))
    same = init_device_mesh(device.NAME, (2, ranks // 2), mesh_dim_names=("a", "b"))
    names = init_device_mesh(device.NAME, (2, ranks // 2), mesh_dim_names=("a", "c"))
    shape = init_device_mesh(device.NAME, (ranks // 2, 2), mesh_dim_names=("a", "b"))
    return [
        one == same, one == names, one == shape, one["a"] == same["a"], one["a"] == one["b"],
        one == "mesh", one._flatten_rank_map is same._flatten_rank_map,
        list(one._flatten_rank_map) == list(range(ranks)),
    ]  # fmt: skip


def test_meshes_are_equal_that_pytorch_calls_equal():
    assert in_child(_meshes, 64) == (True, False, False, True, False, False, True, True)


def _initialised(mesh):
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Linear(64, 64)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=mesh.device_type)
    return (model,)


def _initialise(model):
    torch.nn.init.normal_(model.weight)


@pytest.mark.parametrize("ranks", [8, 64])
def test_initialising_a_shard_is_one_kernel_on_any_number_of_ranks(ranks):
    recording = record_in_child(_initialise, _initialised, (ranks,), ("dp",))
    assert [op.name for op in recording.ops] == ["aten.normal_.default"]
    (op,) = recording.ops
    assert op.args[0].shape == (64 // ranks, 64)


def _labels(mesh):
    return (torch.zeros(8, dtype=torch.int64, device="cuda"),)


def _marked(labels):
    return torch.nn.functional.one_hot(labels, 5)


def test_one_hot_scatters_ones_into_zeros_as_a_gpu_does():
    """For fake tensors PyTorch compares with all classes (aten/src/ATen/native/Onehot.cpp)."""
    recording = record_in_child(_marked, _labels, (2,), ("dp",))
    assert [op.name for op in recording.ops] == ["aten.zeros.default", "aten.scatter_.value"]
    assert recording.results[0].shape == (8, 5)


def _queries(mesh):
    queries = torch.zeros(2, 4, 8, 16, device="cuda")
    return queries, torch.zeros(8, 8, dtype=torch.bool, device="cuda")


def _masked(queries, mask):
    return torch.nn.functional.scaled_dot_product_attention(queries, queries, queries, mask)


def test_a_mask_of_booleans_is_chosen_from_two_numbers():
    """``convert_boolean_attn_mask`` in aten/src/ATen/native/transformers/attention.cpp."""
    recording = record_in_child(_masked, _queries, (2,), ("dp",))
    names = [op.name for op in recording.ops]
    attention = next(number for number, name in enumerate(names) if "attention" in name)
    assert "aten.where.ScalarSelf" in names[:attention] or "aten.where.self" in names[:attention]
    assert not any("masked_fill" in name for name in names)


@pytest.mark.parametrize("called", [True, False])
def test_a_compiled_function_that_is_never_called_is_no_assumption(called):
    def build(mesh):
        @torch.compile
        def loss(output):
            """Of the output."""
            return output.sum()

        assert loss.__doc__ == "Of the output."
        device = mesh.device_type
        tokens = torch.ones(4, 8, device=device)
        return torch.nn.Linear(8, 8, device=device), loss if called else torch.sum, tokens

    def step(model, loss, tokens):
        loss(model(tokens)).backward()

    words = record_in_child(step, build, (1,), ("dp",)).warnings
    assert any("torch.compile" in text for text in words) == called


class _Halved(torch.autograd.Function):
    """With a gradient for the first of its two arguments only, as compiled code may have it."""

    @staticmethod
    def forward(context, x, times):
        return x * times

    @staticmethod
    def backward(context, gradient):
        return gradient * 0.5


def _halved(mesh):
    return [torch.ones(4, device=mesh.device_type, requires_grad=True)]


def test_a_compiled_function_of_autograd_may_leave_out_its_last_gradients():
    def step(x):
        torch.compile(lambda: _Halved.apply(x, 0.5).sum())().backward()

    assert (
        sum(
            op.name.startswith("aten.mul")
            for op in record_in_child(step, _halved, (1,), ("dp",)).ops
        )
        == 2
    )


def test_one_that_is_not_compiled_may_not():
    def step(x):
        _Halved.apply(x, 0.5).sum().backward()

    with pytest.raises(Exception, match="incorrect number of gradients"):
        record_in_child(step, _halved, (1,), ("dp",))
