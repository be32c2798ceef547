"""All-to-alls of DTensors, which gloo's ranks run as all-gathers."""

from __future__ import annotations

import pytest

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.resharded import RESHARDED
from flint.validation.rewrites.table import match


def collective(kind, size=128):
    return OpFacts(kind, str(kind), (((size // 4,), "f32"),), (size,), "f32")


def gather(size=128):
    return collective(OpClass.ALL_GATHER, size)


def exchange(size=128):
    return collective(OpClass.ALL_TO_ALL, size)


def matched(captured, executed):
    rules = rules_for(executed, recorded=True, backend="cpu")
    return match(Matching(captured, executed, rules))


@pytest.mark.parametrize(
    ("captured", "executed", "changed"),
    [
        ([gather(), exchange(), gather()], [gather()] * 3, 1),
        ([exchange(), gather(64), exchange()], [gather(), gather(64), gather()], 2),
        ([exchange(), exchange(64)], [exchange(), gather(64)], 1),
        ([gather(), exchange()], [gather(), exchange()], 0),
    ],
)
def test_an_all_gather_in_the_place_of_an_all_to_all_is_its_partner(captured, executed, changed):
    found = matched(captured, executed)
    assert sorted((i, j) for i, j, _ in found.pairs) == [(n, n) for n in range(len(captured))]
    assert found.explained[RESHARDED] == changed


@pytest.mark.parametrize(
    ("captured", "executed"),
    [
        ([exchange()], [gather(64)]),  # other bytes
        ([exchange()], [collective(OpClass.ALL_REDUCE)]),
        ([gather()], [exchange()]),  # no backend does this
        ([exchange(), gather(64)], [gather(64), gather()]),  # in another order
    ],
)
def test_what_no_rank_runs_in_its_place_is_a_difference(captured, executed):
    found = matched(captured, executed)
    assert found.unmatched_captured and found.unmatched_executed
