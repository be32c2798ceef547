"""Grouped products on GPUs: what XLA's compiler writes for them, against JAX's own dense form."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import pytest

import flint
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Unit
from flint.passes.grouped_as_dense import NAMES, as_dense
from tests.passes.xla.kernels.programs import I32, PROGRAMS, of

STEP, ARGUMENTS = PROGRAMS["grouped products"]
NOTE = "ragged_dot multiplies each row"


def products(graph: WorkloadGraph) -> Counter[int]:
    """FLOPs of products, and how many have them."""
    found: Counter[int] = Counter()
    for block, times in graph.walk():
        for flops in block.work_flops[block.work_unit == Unit.MATMUL].tolist():
            found[flops] += times
    return found


def captured(function=STEP, arguments=ARGUMENTS):
    return flint.capture(mesh=(1,))(function).capture(*arguments)


def scanned(x, up, sizes):
    def layer(x, w):
        return jax.lax.ragged_dot(x, w, sizes), None

    return jax.lax.scan(layer, x, up)[0]


LAYERS = (of(64, 16), of(3, 4, 16, 16), of(4, dtype=I32))


@pytest.fixture
def dense_form():
    """JAX writes grouped products as dense ones itself."""
    name = "jax_ragged_dot_use_ragged_dot_instruction"
    jax.config.update(name, False)
    yield
    jax.config.update(name, True)


@pytest.mark.parametrize(("step", "arguments"), [(STEP, ARGUMENTS), (scanned, LAYERS)])
def test_products_are_those_of_jaxs_dense_form(step, arguments, request) -> None:
    dense = as_dense(captured(step, arguments).graph)
    verify(dense)
    request.getfixturevalue("dense_form")
    jax.clear_caches()
    written = captured(step, arguments).graph
    assert not NAMES & set(written.tables.ops)
    assert products(dense) == products(written)


def test_rows_that_two_products_read_are_written_once() -> None:
    """One mask of the rows for both products and their gradient, each of 4 groups."""

    def both(x, up, gate, sizes):
        return jax.lax.ragged_dot(x, up, sizes) * jax.lax.ragged_dot(x, gate, sizes)

    graph = captured(both, (of(64, 16), of(4, 16, 32), of(4, 16, 32), of(4, dtype=I32))).graph
    ops = [node.op for node in as_dense(graph)]
    assert (ops.count("select"), ops.count("transpose"), ops.count("dot_general")) == (1, 1, 2)


def test_a_graph_without_grouped_products_is_the_same() -> None:
    graph = captured(lambda x: x @ x, (of(64, 64),)).graph
    assert as_dense(graph) is graph


def test_a_step_has_eight_times_the_flops_on_a_gpu_alone() -> None:
    """8 groups; XLA's compiler for TPUs has a kernel for them."""
    workload = captured()
    gpu, tpu = (workload.simulate(system) for system in ("dgx-h100", "tpu-v5p-pod"))
    assert sum(products(workload.graph).values()) == 6
    assert gpu.figures.flops / tpu.figures.flops == pytest.approx(8, rel=0.02)
    assert any(NOTE in note for note in gpu.notes)
    assert not any(NOTE in note for note in tpu.notes)


@pytest.mark.thorough
def test_pytorchs_grouped_products_stay_when_ops_are_opened() -> None:
    """Opened, ``_grouped_mm`` is a ragged product, too; PyTorch has a kernel for it."""
    pytest.importorskip("torch")
    from flint.models.torch.moe import TINY, training

    config = replace(TINY, model=replace(TINY.model, layers=1))
    plain, opened = (
        training(config, (1, 2)).capture(options={"fuse": fuse}) for fuse in (False, True)
    )
    products = {node.op for node in opened.graph} & NAMES
    on_gpu = [workload.simulate("dgx-h100") for workload in (plain, opened)]
    assert products
    assert on_gpu[1].figures.flops == pytest.approx(on_gpu[0].figures.flops, rel=0.02)
    assert not any(NOTE in note for note in on_gpu[1].notes)
