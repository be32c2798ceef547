"""Another function in an XLA program is found, though all of it is fused."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.shared import quick, quick_rows
from tests.validation import xla_activations
from tests.validation.xla_activations import NAMES
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

#: Those that hold the same functions, forward and backward: the exact gelu's error function is a
#: polynomial before it is compiled, and its gradient an exponential, as silu is.
ALIKE = {frozenset({"gelu", "tanh"}), frozenset({"silu", "exact_gelu"})}
PAIRS = [pair for pair in permutations(NAMES, 2) if frozenset(pair) not in ALIKE]


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture against the run of a step."""
    return Runs(host_runs, xla_activations).compare


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(NAMES, "silu"))
def test_a_step_agrees_with_its_own_run(name, compare):
    report = compare(name)
    assert report.ok, named(report)


@pytest.mark.thorough
@pytest.mark.parametrize(("captured", "run"), quick_rows(PAIRS, ("gelu", "silu")))
def test_another_activation_is_found(captured, run, compare):
    report = compare(captured, run)
    assert not report.ok
    assert "among the fused ops" in named(report)
    assert all(item.where == "layer mlp" for item in report.differences if item.counts)
