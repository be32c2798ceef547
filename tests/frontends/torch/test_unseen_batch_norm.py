"""Batch norm over several ranks: its parts, put together, are batch norm of all their samples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.checking import assert_equal
from tests.frontends.torch.executing import execute
from tests.frontends.torch.in_child import recorded
from tests.frontends.torch.lowering_cases.inputs import normal, positive
from tests.frontends.torch.real_recording import by_hand

EPS, MOMENTUM = 1e-5, 0.1
PARTS = normal(3, 4, 2, 5), normal(1, 4, 2, 5)  # samples of two ranks
WEIGHT, BIAS = normal(4), normal(4)


def run(name, tensors, results, *arguments):
    recording = by_hand(f"aten.{name}.default", tensors, results, *arguments)
    outputs, _ = execute(emitted(recording, strict=True).data, tensors)
    return outputs


def own_statistics():
    found = [run("batch_norm_stats", [x], [normal(4)] * 2, {0}, EPS) for x in PARTS]
    return [torch.stack(items) for items in zip(*found, strict=True)]


def counts():
    return torch.tensor([x.numel() / x.shape[1] for x in PARTS])


def statistics():
    means, scales = own_statistics()
    tensors = [PARTS[0], means, scales, counts()]
    return run(
        "batch_norm_gather_stats_with_counts", tensors, [normal(4)] * 2,
        {0}, {1}, {2}, None, None, MOMENTUM, EPS, {3},
    )  # fmt: skip


def test_the_result_is_batch_norm_of_all_samples():
    mean, scale = statistics()
    expected = F.batch_norm(torch.cat(PARTS), None, None, WEIGHT, BIAS, True, MOMENTUM, EPS)
    ours = [
        run("batch_norm_elemt", [x, WEIGHT, BIAS, mean, scale], [x], {0}, {1}, {2}, {3}, {4}, EPS)[
            0
        ]
        for x in PARTS
    ]
    assert_equal(torch.cat(ours), expected)


def test_running_statistics_are_those_of_all_samples_where_they_are_written():
    means, scales = own_statistics()
    average, variance = normal(4), positive(4)
    tensors = [PARTS[0], means, scales, average, variance, counts()]
    results = [normal(4)] * 4
    ours = run(
        "batch_norm_gather_stats_with_counts", tensors, results,
        {0}, {1}, {2}, {3}, {4}, MOMENTUM, EPS, {5},
    )  # fmt: skip
    F.batch_norm(torch.cat(PARTS), average, variance, None, None, True, MOMENTUM, EPS)
    assert_equal(ours[0], average)
    assert_equal(ours[1], variance)


def test_the_gradient_is_that_of_batch_norm_of_all_samples():
    mean, scale = statistics()
    whole = torch.cat(PARTS).requires_grad_()
    weight, bias = WEIGHT.clone().requires_grad_(), BIAS.clone().requires_grad_()
    grad = normal(*whole.shape)
    F.batch_norm(whole, None, None, weight, bias, True, MOMENTUM, EPS).backward(grad)
    grads = grad.split([len(x) for x in PARTS])
    sums = [
        run(
            "batch_norm_backward_reduce", [dy, x, mean, scale, WEIGHT], [normal(4)] * 4,
            {0}, {1}, {2}, {3}, {4}, True, True, True,
        )
        for dy, x in zip(grads, PARTS, strict=True)
    ]  # fmt: skip
    total, along, for_weight, for_bias = (sum(items) for items in zip(*sums, strict=True))
    assert_equal(for_weight, weight.grad)
    assert_equal(for_bias, bias.grad)
    ours = [
        run(
            "batch_norm_backward_elemt",
            [dy, x, mean, scale, WEIGHT, total, along, counts().int().view(2, 1)], [x],
            {0}, {1}, {2}, {3}, {4}, {5}, {6}, {7},
        )[0]
        for dy, x in zip(grads, PARTS, strict=True)
    ]  # fmt: skip
    assert_equal(torch.cat(ours), whole.grad)


def synchronised(mesh):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(mesh.device_type)
    return model, torch.ones(2, 3, 8, 8, device=mesh.device_type)


def step(model, x):
    model(x).square().mean().backward()


def test_statistics_are_gathered_and_their_gradients_summed():
    """PyTorch's SyncBatchNorm.forward sends mean, scale and one count, backward two sums."""
    recording = recorded(step, synchronised, (4,), ("dp",))
    sent = [op for op in recording.ops if op.group >= 0]
    assert [op.name for op in sent] == ["c10d._allgather_base_.default", "c10d.allreduce_.default"]
    gathered, summed = (op.writes[0].shape for op in sent)
    assert (gathered, summed) == ((1, 4 * (2 * 4 + 1)), (2 * 4,))
    [counted] = [op for op in recording.ops if "gather_stats_with_counts" in op.name]
    name_of = {given.view.storage: given.name for given in recording.inputs}
    written = [name_of.get(view.storage) for view in counted.writes]
    assert written == ["model.1.running_mean", "model.1.running_var"]  # no schema says so
    assert any("every rank is assumed to have samples" in text for text in recording.warnings)
    assert emitted(recording, strict=True)
