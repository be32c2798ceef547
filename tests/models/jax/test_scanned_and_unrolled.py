"""The same model with its layers in a scan and one after another takes the same work.

What may differ is in the program, and derived here, for L layers whose weights take P bytes in f32
and which keep R bytes each for the backward pass:

- A scan puts what it keeps into stacks.  An update of a stack reads and writes R; the slice of
  it that the backward pass takes is another kernel's operand (R less) or a kernel of its own.
- Gradients too: an update reads bf16 (P/2) and writes f32 (P).  Without a scan all that reads a
  gradient reads what the product has written in bf16: the norm P/2 less, and both moments.  These
  take it times the clipping factor, which is made again from bf16 (2 x P/2), and from a stack in
  f32 written once and read twice (4 P).  In front of a stack the product writes P/2 more.
- An optimizer has a kernel for a stack where it has L for L tensors.
- Without rematerialisation a scan gathers weights again in the backward pass, because what is
  gathered is no result of an iteration.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.models.jax import llama3, pipeline
from flint.models.jax.layers import Heads
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("models")

LAYERS, WIDTH, HIDDEN, TOKENS = 4, 1024, 2048, 2 * 1024
CONFIG = replace(
    llama3.TINY, layers=LAYERS, width=WIDTH, hidden=HIDDEN, vocabulary=4096, sequence=1024,
    sequences=2, heads=Heads(queries=8, keys=4, size=128),
)  # fmt: skip
#: Query and output are WIDTH wide, key and value half of it.
WEIGHTS = 4 * (3 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN + 2 * WIDTH)
#: Policy -> elements that a layer keeps of a token: its input, and results by name.
KEPT = {
    "full": WIDTH,
    "attention": WIDTH + 2 * WIDTH + WIDTH,
    "dots": WIDTH + 2 * WIDTH + WIDTH + 2 * HIDDEN + WIDTH,
}
MESHES = {"one device": ((1,), ("data",)), "tensor": ((4, 2), ("data", "model"))}


def uncontended():
    """Without slower kernels beside communication: which these are differs between the two."""
    return without(load_system("dgx-h100"), ("contention",))


@functools.cache
def simulated(remat, mesh, scan, **changes):
    """The step; attention fused, so that masks, which a scan hands to its body, are no memory."""
    step = llama3.training(replace(CONFIG, remat=remat, scan=scan, **changes), *MESHES[mesh])
    return step.capture().simulate(uncontended(), granularity="kernel", attention="fused")


def rows(result):
    """Class of kernels or communication -> its row."""
    return {row.name: row for row in result.programs[0].classes}


def both(remat, mesh, **changes):
    """Rows of the scanned step, and of the unrolled one."""
    return tuple(rows(simulated(remat, mesh, scan, **changes)) for scan in (True, False))


def compute(found, field):
    """The sum over all kernels of a column."""
    return sum(getattr(row, field) for row in found.values() if not row.communicates)


def count(found, name):
    """Kernels of a class; 0 where there is none, and of communication."""
    return found[name].count if name in found and not found[name].communicates else 0


REMATS = quick(["full", "attention", "dots"], "full")


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", quick(MESHES, "tensor"))
@pytest.mark.parametrize("remat", REMATS)
def test_products_and_attention_take_the_same_time(remat, mesh):
    scanned, unrolled = both(remat, mesh)
    for name in ("matmul", "attention"):
        assert scanned[name].count == unrolled[name].count
        assert scanned[name].seconds == pytest.approx(unrolled[name].seconds, rel=1e-3)
    assert compute(scanned, "flops") == pytest.approx(compute(unrolled, "flops"), rel=1e-3)


@pytest.mark.thorough
def test_products_of_a_pipelines_stages_take_the_same_time():
    found = []
    for scan in (True, False):
        step = pipeline.training(replace(CONFIG, scan=scan), 4, mesh=(2, 2, 2))
        found.append(rows(step.capture().simulate(uncontended(), attention="fused")))
    # Beside a stack a product reads or writes f32 where it is bf16 without: here that shows.
    for name in ("matmul", "attention"):
        assert found[0][name].seconds == pytest.approx(found[1][name].seconds, rel=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("remat", REMATS)
def test_the_same_bytes_are_communicated(remat):
    """But for the f32 sums of squares of the gradients' norm, one per stack or per tensor."""
    scanned, unrolled = both(remat, "tensor")
    groups = {name for name, row in scanned.items() if row.communicates}
    assert groups == {name for name, row in unrolled.items() if row.communicates}
    tensors = 9 * (LAYERS - 1)
    for name in groups:
        assert 0 <= unrolled[name].bytes - scanned[name].bytes <= 4 * tensors


@pytest.mark.thorough
@pytest.mark.parametrize("remat", REMATS)
def test_a_scan_moves_what_its_stacks_take(remat):
    scanned, unrolled = both(remat, "one device")
    kept = 2 * KEPT[remat] * TOKENS
    more = compute(scanned, "bytes") - compute(unrolled, "bytes")
    assert LAYERS * (5.5 * WEIGHTS + 2 * kept) < more < LAYERS * (6.5 * WEIGHTS + 4 * kept)


@pytest.mark.thorough
@pytest.mark.parametrize("remat", REMATS)
def test_a_scan_takes_longer_by_its_stacks_only(remat):
    """On one device, where no kernel waits for communication, the step is the sum of its kernels:
    beside bytes, each that only one of the two has, has a launch and a latency."""
    scanned, unrolled = both(remat, "one device")
    more = compute(scanned, "bytes") - compute(unrolled, "bytes")
    names = scanned.keys() | unrolled.keys()
    others = sum(abs(count(scanned, name) - count(unrolled, name)) for name in names)
    device = load_system("dgx-h100").accelerator
    bandwidth = device.memory_bandwidth * device.kernel.memory_efficiency
    kernel = device.launch_overhead + device.kernel.latency
    longer = simulated(remat, "one device", True).step_seconds
    longer -= simulated(remat, "one device", False).step_seconds
    assert longer == pytest.approx(more / bandwidth, abs=others * kernel)
    assert longer > 0


@pytest.mark.thorough
@pytest.mark.parametrize("gated", quick([True, False], True))
def test_rematerialisation_adds_the_blocks_forward_products_but_the_last(gated):
    """Nothing in the backward pass reads what the last product of a block adds to the residual
    stream; scores and their mix are attention's, which the fused kernel's backward pass has."""
    full = rows(simulated("full", "one device", True, gated=gated))
    none = rows(simulated("none", "one device", True, gated=gated))
    inside = 3 * WIDTH * WIDTH + (2 if gated else 1) * WIDTH * HIDDEN
    again = LAYERS * 2 * TOKENS * inside
    assert full["matmul"].flops - none["matmul"].flops == pytest.approx(again, rel=5e-3)
