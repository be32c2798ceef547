"""Trace sets through a real ASTRA-sim, where ``FLINT_ASTRA_SIM`` names one, in both its forms."""

from __future__ import annotations

import os

import pytest

from flint.converters.chakra.astra_sim.comparison import compare
from flint.converters.chakra.astra_sim.run import BINARY_VARIABLE, astra_sim_binary
from tests.converters.chakra.astra_sim.random_sets import random_set
from tests.converters.chakra.astra_sim.real_runs import AWARE, UNAWARE, Case, cases, compared

pytestmark = pytest.mark.skipif(
    not os.environ.get(BINARY_VARIABLE), reason=f"{BINARY_VARIABLE} names no ASTRA-sim binary"
)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_both_engines_agree_or_the_difference_is_named(case: Case, tmp_path):
    if not astra_sim_binary().with_name(case.binary).is_file():
        pytest.skip(f"there is no {case.binary} beside the binary")
    found = compared(case, tmp_path / "out")
    assert found.agrees, found.unexplained
    assert found.rows


@pytest.mark.parametrize("seed", range(60))
def test_random_sets_agree_or_the_difference_is_named(seed):
    workload, system = random_set(seed)
    forms = (UNAWARE, AWARE) if len(workload.mesh.shape) == 1 else (UNAWARE,)
    for form in forms:
        binary = astra_sim_binary().with_name(form)
        if binary.is_file():
            found = compare(workload, system, binary=binary, time_limit=120)
            assert found.agrees, (form, system, found.unexplained)
