"""Scatters that XLA compiles, against what an H200 took (jax 0.11.2, November 2026)."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import pytest

import flint
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, I32, of


def microseconds(rows, updates, width, dtype, granularity):
    """Of the kernel that adds rows at indices to rows."""
    step = flint.capture(mesh=(1,))(lambda x, at, more: x.at[at].add(more))
    arguments = (
        of(rows, width, dtype=dtype),
        of(updates, dtype=I32),
        of(updates, width, dtype=dtype),
    )
    graph = apply(step.capture(*arguments).graph, granularity)
    system = load_system("hgx-h200")
    model = replace(system.accelerator, kernel=system.accelerator.kernel.on_one_device())
    [at] = [index for index, node in enumerate(graph) if node.op == "scatter"]
    return float(kernel_seconds(graph, replace(system, accelerator=model))[at]) * 1e6


@pytest.mark.parametrize("granularity", ["kernel", "xla"])
@pytest.mark.parametrize(
    ("rows", "updates", "measured"),
    # ``input_scatter_fusion`` in tests/data/single_gpu/moe_dropless.xplane.pb.xz: what experts
    # made, and the gradient of an embedding.
    [(8192, 16384, 192.6), (32000, 8192, 103.2)],
)
def test_half_precision_is_added_element_by_element(granularity, rows, updates, measured) -> None:
    found = microseconds(rows, updates, 1536, jnp.bfloat16, granularity)
    assert found == pytest.approx(measured, rel=0.1)


def test_rows_of_f32_are_added_several_elements_at_once() -> None:
    """2.6 ps for an element of 1,000,000 edges of 128 features (docs/accuracy/one-gpu.md)."""
    found = microseconds(100_000, 1_000_000, 128, F32, "xla")
    assert found == pytest.approx(128e6 * 2.6e-6, rel=0.1)


def test_what_replaces_is_not_added() -> None:
    step = flint.capture(mesh=(1,))(lambda x, at, more: x.at[at].set(more * more))
    arguments = of(8192, 1536), of(4096, dtype=I32), of(4096, 1536)
    system = load_system("hgx-h200")
    for granularity in ("kernel", "xla"):
        graph = apply(step.capture(*arguments).graph, granularity)
        [at] = [index for index, node in enumerate(graph) if node.op == "scatter"]
        assert kernel_seconds(graph, system)[at] < 4096 * 1536 * 7e-12 / 2
