"""Steps whose kernels run faster than PyTorch's host launches them."""

from __future__ import annotations

import pytest

from flint.graph.work import Role, Work
from flint.simulation.launches import OP, by_host, hosted
from flint.simulation.result import Figures, ProgramResult
from tests.passes.building import ACTIVATION, Graph

COPY = Work((), ACTIVATION.bytes, ACTIVATION.bytes)


def step(kernels, name="aten.mul.Tensor"):
    """One kernel after another, an all-reduce, and a view, which is not launched."""
    g = Graph()
    x = g.input()
    for _ in range(kernels):
        x = g.op(name, Role.OPAQUE, (x,), work=COPY)
    return g.finish(g.op("slice", Role.ALIAS, (g.all_reduce(x),)))


def launches(graph, **options):
    return int(by_host(graph, **options).sum())


def result(seconds, compute=1e-4):
    figures = Figures(seconds, compute, 0.0, 0.0, seconds - compute, 0.0, 1.0, 1.0, 0.5)
    return ProgramResult("main", "0", 1, figures, {}, ())


@pytest.mark.parametrize("longer", [0.9, 1.1])
@pytest.mark.parametrize("name", ["aten.mul.Tensor", "inductor.triton_poi_fused_add_0"])
def test_a_step_is_at_least_as_long_as_its_launches(longer, name):
    """199 kernels and an all-reduce; a compiler's kernels are launched one by one, too."""
    launching, device = 200 * OP, 200 * OP * longer
    (made,), notes = hosted([launches(step(199, name))], [result(device)])
    assert made.figures.step_seconds == pytest.approx(max(launching, device))
    assert made.figures.compute_seconds + made.figures.idle_seconds == pytest.approx(
        made.figures.step_seconds
    )
    assert made.figures.mfu == pytest.approx(0.5 * device / max(launching, device))
    assert bool(notes) == (longer < 1)
    assert made.launch_seconds == launching
    assert not notes or "launches 200 ops one by one" in notes[0]


def test_the_note_tells_the_rank_with_most_launches():
    made, (note,) = hosted([10, 100], [result(1e-3, 1e-6), result(1e-3, 1e-6)])
    assert "launches 100 ops" in note
    assert [one.figures.step_seconds for one in made] == pytest.approx([1e-3, 100 * OP])


def test_a_compilers_own_kernels_are_not_launched_by_pytorch():
    g = Graph()
    graph = g.finish(g.elementwise(g.input()))
    assert launches(graph) == 0
    assert hosted([0], [result(1e-9, 0.0)]) == ([result(1e-9, 0.0)], [])


def test_what_was_fused_in_an_opened_capture_is_launched():
    """Three elementwise ops and a product, an all-reduce; a view is not."""
    g = Graph()
    x = g.input()
    for _ in range(3):
        x = g.elementwise(x)
    graph = g.finish(g.op("slice", Role.ALIAS, (g.all_reduce(x),)))
    assert (launches(graph), launches(graph, opened=True)) == (1, 4)
