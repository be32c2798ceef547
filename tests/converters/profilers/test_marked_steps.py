"""Marks of steps around more than one training step, as PyTorch runs and records them."""

from __future__ import annotations

import pytest

from flint.post_execution.converting import convert_traces

torch = pytest.importorskip("torch")


def train(models, order):
    """Update models in turns."""
    for number in order:
        model, optimizer = models[number]
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("order", "steps"), [((0,), 0), ((0, 0), 2), ((0, 0, 0), 3), ((0, 1), 0), ((0, 1, 0, 1), 2)]
)
def test_several_training_steps_under_one_mark_are_counted(order, steps, tmp_path):
    """Two models that are trained in turns (a GAN) have one training step together."""
    models = []
    for width in (8, 16):
        model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Linear(width, 1))
        models.append((model, torch.optim.SGD(model.parameters(), lr=0.1)))
    with torch.profiler.profile(
        record_shapes=True,
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(tmp_path / "rank0.json")),
    ) as profiler:
        for _ in range(3):
            train(models, order)
            profiler.step()
    warnings = convert_traces([tmp_path / "rank0.json"]).warnings
    told = [text for text in warnings if "under one mark" in text]
    assert [text.split()[0] for text in told] == ([str(steps)] if steps else [])
