"""Notes on steps whose kernels run faster than PyTorch's host launches them."""

from __future__ import annotations

import pytest

from flint.graph.work import Role, Work
from flint.simulation.launches import launch_notes
from tests.passes.building import ACTIVATION, Graph

COPY = Work((), ACTIVATION.bytes, ACTIVATION.bytes)


def step(kernels, name="aten.mul.Tensor"):
    """One kernel after another, an all-reduce, and a view, which is not launched."""
    g = Graph()
    x = g.input()
    for _ in range(kernels):
        x = g.op(name, Role.OPAQUE, (x,), work=COPY)
    return g.finish(g.op("slice", Role.ALIAS, (g.all_reduce(x),)))


@pytest.mark.parametrize(("seconds", "told"), [(0.9e-3, True), (1.1e-3, False)])
def test_a_step_shorter_than_its_launches_is_told(seconds, told):
    """199 kernels and an all-reduce take a millisecond to launch, at 5 us each."""
    found = launch_notes([step(199)], [seconds])
    assert bool(found) == told
    assert not told or "launches 200 kernels one by one: at 5 us each, that takes 1 ms" in found[0]


def test_it_is_the_rank_with_most_launches_that_is_told():
    (note,) = launch_notes([step(9), step(99)], [1e-6, 1e-6])
    assert "launches 100 kernels" in note


def test_what_inductor_compiled_is_not_told():
    assert not launch_notes([step(199, "inductor.triton_poi_fused_add_0")], [1e-6])


def test_a_compilers_own_kernels_are_not_told():
    g = Graph()
    assert not launch_notes([g.finish(g.elementwise(g.input()))], [1e-9])
