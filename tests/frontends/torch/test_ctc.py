"""CTC loss: its lattice, its FLOPs, lengths that are tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from flint.frontends.torch.emission import emitted  # noqa: E402
from flint.stablehlo.read.reader import read_mlir  # noqa: E402
from flint.stablehlo.walker import walk  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402
from tests.frontends.torch.real_recording import record  # noqa: E402

TIME, BATCH, CLASSES, LONGEST = 10, 2, 11, 4


def scores(mesh):
    scores = torch.randn(TIME, BATCH, CLASSES, device=mesh.device_type, requires_grad=True)
    return scores, torch.randint(1, CLASSES, (BATCH, LONGEST), device=mesh.device_type)


def by_numbers(scores, targets):
    loss = functional.ctc_loss(scores, targets, (TIME, TIME), (LONGEST, 3), zero_infinity=True)
    return torch.autograd.grad(loss, scores)


def by_tensors(scores, targets):
    lengths = [torch.full((BATCH,), size, device=scores.device) for size in (TIME, 3)]
    return torch.autograd.grad(functional.ctc_loss(scores, targets, *lengths), scores)


def by_unknown(scores, targets):
    lengths = [torch.rand(BATCH, device=scores.device).mul(size).long() for size in (TIME, LONGEST)]
    return torch.autograd.grad(functional.ctc_loss(scores, targets, *lengths), scores)


def one_after_another(scores, targets):
    loss = functional.ctc_loss(scores, targets.flatten()[1:], (TIME, TIME), (LONGEST, 3))
    return torch.autograd.grad(loss, scores)


@pytest.mark.parametrize("step", [by_numbers, one_after_another])
def test_a_ctc_loss_runs_the_kernels_that_eager_pytorch_runs(step):
    """But for how Python numbers get to the device."""
    host = ("aten.detach.default", "aten.lift_fresh.default", "aten._to_copy.default")
    fake = record_in_child(step, scores, (1,), ("dp",)).ops

    class Cpu:
        device_type = "cpu"

    eager = record(step, *scores(Cpu)).recording.ops
    views = ("aten.t.", "aten.expand", "aten.view", "aten.empty", "aten.as_strided", "aten.slice")
    ours, theirs = (
        [
            (op.name, [getattr(item, "shape", None) for item in op.results])
            for op in ops
            if op.name not in host and not op.name.startswith(views)
        ]
        for ops in (fake, eager)
    )
    assert ours == theirs


def test_a_ctc_losses_flops_are_13_per_state_and_22_with_6_per_class():
    """2 x 10 x (2 x 4 + 1) states; gradients of 10 x 2 x 11 classes."""
    recording = record_in_child(by_numbers, scores, (1,), ("dp",))
    work = {node.op: node.work for node in walk(read_mlir(emitted(recording).data, "step")).graph}
    assert work["aten._ctc_loss.default"].flops == 13 * 180
    assert work["aten._ctc_loss_backward.default"].flops == 22 * 180 + 6 * 220


@pytest.mark.parametrize(
    ("step", "longest", "assumed"), [(by_tensors, 3, []), (by_unknown, LONGEST, ["10", "4"])]
)
def test_lengths_that_are_not_known_are_taken_to_be_the_longest(step, longest, assumed):
    recording = record_in_child(step, scores, (1,), ("dp",))
    [lattice] = [op for op in recording.ops if op.name == "aten._ctc_loss.default"]
    assert [item.shape for item in lattice.results] == [(BATCH,), (BATCH, TIME, 2 * longest + 1)]
    told = [text for text in recording.warnings if "lengths are not known" in text]
    assert sorted(text.rpartition(" ")[2] for text in told) == assumed
