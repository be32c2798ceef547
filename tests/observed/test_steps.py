"""Which steps of a trace are compared, by hand-made ones of four products and a sum of ranks."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.rows import ObservedRows
from flint.observed.steps import choose

WHOLE = ("a", "b", "c", "d", "sum")


def trace(*runs, form="xplane"):
    """A trace of these runs, each of named ops."""
    rows = ObservedRows("profile")
    for step, names in enumerate(runs):
        for name in names:
            kind = OpClass.ALL_REDUCE if name == "sum" else OpClass.GEMM
            rows.add(OpFacts(kind, name), rank=0, step=step)
    steps = tuple(f"run {number}" for number in range(len(runs)))
    return rows.finish(form=form, backend="cpu", world=1, steps=steps)


@pytest.mark.parametrize(
    ("runs", "chosen", "cut"),
    [
        ((WHOLE, WHOLE[:4]), 0, "run 1"),
        ((WHOLE[2:], WHOLE), 1, "run 0"),
        ((WHOLE[2:], WHOLE, WHOLE[:1]), 1, "run 0, run 2"),
    ],
)
def test_a_run_that_the_profilers_begin_or_end_has_cut_is_not_compared(runs, chosen, cut):
    """Devices run on while the host starts or stops JAX's profiler."""
    found = choose(trace(*runs), 0, None)
    assert (found.step, found.alike) == (chosen, (chosen,))
    [note] = found.notes
    assert note.startswith(f"not compared: {cut}, of which the profile does not contain all: ")


@pytest.mark.parametrize(
    ("runs", "form"),
    [
        ((WHOLE, WHOLE[:4]), "kineto"),  # the program itself says where its steps end
        ((WHOLE, (*WHOLE[:4], "other")), "xplane"),
        ((WHOLE[:4], (*WHOLE[:3], "sum")), "xplane"),
    ],
)
def test_runs_that_differ_otherwise_are_refused(runs, form):
    with pytest.raises(FlintError, match=r"the steps differ: .*choose one with --step \(run 0"):
        choose(trace(*runs, form=form), 0, None)
