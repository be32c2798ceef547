"""Captured collectives against those that the same step executes on host devices."""

from __future__ import annotations

import pytest

import flint
from tests.frontends.jax.comparing import (
    assert_same_collectives,
    captured_totals,
    flops_by_xlas_rules,
    xlas_flops,
)
from tests.support.nodes import product_flops
from tests.support.shared import quick

STEPS_MODULE = "tests.frontends.jax.steps"
STEPS = ("mlp", "scan", "unrolled", "ring", "four", "explicit", "bf16", "ruled", "turned")

#: Library calls and calls of Python, of whose FLOPs XLA knows nothing.
CALLS = ("decompositions", "called", "each_called")


@pytest.mark.parametrize("name", quick([*STEPS, *CALLS, "skipping"], "mlp", "scan", "explicit"))
def test_collectives_are_those_that_run(name, captured, host_runs):
    workload = captured(name, reduce_scatter=False)
    assert_same_collectives(workload, host_runs.collectives(f"{STEPS_MODULE}:{name}"))


@pytest.mark.parametrize("name", quick(STEPS, "turned"))
def test_the_text_next_to_a_module_is_the_same(name, captured, tmp_path):
    """XLA converts the module to the text, and ``flint convert`` reads it."""
    workload = captured(name, reduce_scatter=False)
    workload.save_programs(tmp_path)
    mesh = workload.mesh
    text = flint.convert(
        tmp_path / "programs" / "main.mlir",
        mesh=mesh.shape,
        axes=mesh.axes,
        reduce_scatter=False,
    )
    assert captured_totals(text) == captured_totals(workload)


@pytest.mark.parametrize("name", STEPS)
def test_flops_are_xlas_of_the_partitioned_module(name, captured):
    [program] = captured(name, reduce_scatter=False).programs
    assert flops_by_xlas_rules(program) == xlas_flops(program)


def test_the_first_rank_alone_calls_python_for_all(captured):
    """A callback outside of manual computations runs once, on the first device."""
    workload = captured("called")
    callers = {
        tuple(program.ranks.array().tolist())
        for program in workload.programs
        if any("python" in node.op for graph, _ in program.graph.walk() for node in graph)
    }
    assert callers == {(0,)}
    assert sum("calls Python on the host" in text for text in workload.warnings) == 1
    [program] = captured("each_called").programs
    assert any("python" in node.op for node in program.graph)


def test_a_rank_computes_the_blocks_that_its_queries_see_forward_and_backward(captured):
    """Rank r of the context axis sees the keys of ranks 0 to r.

    A block is 2 products forward (scores, output) and 4 backward (two gradients of each), each of
    1 sequence, 4 heads, 16 x 16 scores and 8 columns: 2 * 4 * 16 * 16 * 8 FLOPs.
    """
    workload = captured("skipping", reduce_scatter=False)
    assert not workload.warnings
    product = 2 * 4 * 16 * 16 * 8
    ranks = []
    for program in workload.programs:
        flops = product_flops(program)
        for rank in program.ranks.array().tolist():
            assert flops == 6 * product * (rank % 4 + 1)
            ranks.append(rank)
    assert sorted(ranks) == list(range(8))
