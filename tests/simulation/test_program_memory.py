"""The memory of a recorded PyTorch step, from the capture to what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import flint
from flint.cost.systems import load_system
from flint.graph.allocations import Allocations

MIB = 2**20


def setup(mesh):
    return (torch.ones(MIB, device="cuda"),)


def step(x):
    """Three results of 4 MiB, of which two are alive at a time; the last one is returned."""
    return x.neg().neg().neg()


@pytest.fixture(scope="module")
def workload():
    return flint.capture(step, mesh=(1,), axes=("dp",), setup=setup, framework="torch").capture()


def test_the_peak_is_what_the_allocator_reserves(workload, tmp_path):
    """4 MiB before the step and 8 within it are 12; all come from one segment of 20 MiB."""
    result = workload.simulate("dgx-h100")
    assert result.peak_memory_bytes == 20 * MIB
    assert result.programs[0].memory == {
        "batch": 4 * MIB, "temporaries": 8 * MIB, "free blocks of the allocator": 8 * MIB,
    }  # fmt: skip
    workload.save(tmp_path / "out")
    assert flint.load(tmp_path / "out").simulate("dgx-h100").peak_memory_bytes == 20 * MIB


def test_a_step_fits_together_with_the_runtimes_memory(workload):
    system = load_system("dgx-h100")
    beside = workload.simulate(system).reserve_bytes
    for room, fits in ((beside + 20 * MIB, True), (beside + 19 * MIB, False)):
        device = replace(system.accelerator, memory_bytes=room)
        assert workload.simulate(replace(system, accelerator=device)).fits is fits


def test_a_device_that_is_full_at_times_is_reported(workload):
    """60 MiB on one stream and 60 on another, never at once, and there are 100."""
    rows = np.array([[60 * MIB, 0, 0, 1, 0], [60 * MIB, 1, 1, 2, 1]], np.int64)
    program = replace(workload.programs[0], allocations=Allocations.from_rows(rows, False))
    tight = replace(workload, programs=(program,))
    system = load_system("dgx-h100")
    device = replace(
        system.accelerator, memory_bytes=tight.simulate(system).reserve_bytes + 100 * MIB
    )
    result = tight.simulate(replace(system, accelerator=device))
    assert result.fits
    assert any("the device is full 2 times per step" in note for note in result.notes)


def heads(mesh):
    """Queries, keys and values, 1 x 4 x 1024 x 64; 4 x 1024 x 1024 scores in bf16 take 8 MiB."""
    return tuple(torch.ones(1, 4, 1024, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))


def by_kernel(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def by_hand(q, k, v):
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


@pytest.mark.parametrize(
    ("attention", "low", "high"),
    # By hand, the peak is the softmax's result beside its operand, unless the softmax is in place;
    # fused, it is that of attention, 512 KiB, and a sum per row, 16 KiB.
    [(by_kernel, 0, 0), (by_hand, 8 * MIB, 16 * MIB)],
)
def test_fused_attention_saves_the_scores_that_were_in_memory(attention, low, high):
    step = flint.capture(attention, mesh=(1,), axes=("dp",), setup=heads, framework="torch")
    opened = step.capture(options={"fuse": True})
    held = [
        opened.simulate("dgx-h100", attention=how).programs[0].memory["temporaries"]
        for how in ("as-written", "fused")
    ]
    assert low - 528 * 1024 <= held[0] - held[1] <= high
