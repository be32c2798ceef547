"""Single ops against XLA's own cost analysis: FLOPs, transcendentals, bytes accessed."""

import pytest

from flint.stablehlo.rules import RULES
from tests.stablehlo.rules.agreeing import CASES, POINTER, VARIADIC
from tests.stablehlo.rules.deviating import DEVIATIONS
from tests.stablehlo.rules.xla_cost import (
    analysis_of,
    our_cost,
    our_work,
    read_one,
    xla_computation,
    xla_cost,
)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_xla(name: str) -> None:
    assert our_cost(CASES[name]) == xla_cost(CASES[name].text)


@pytest.mark.parametrize("name", VARIADIC)
def test_agrees_with_xla_but_for_the_table_of_results(name: str) -> None:
    case = VARIADIC[name]
    ours, theirs = our_cost(case), xla_cost(case.text)
    assert ours == theirs._replace(bytes=theirs.bytes - POINTER * len(case.results))


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviates_from_xla_as_documented(name: str) -> None:
    case, ours, _reason = DEVIATIONS[name]
    assert our_cost(case) == ours
    assert xla_cost(case.text) != ours, "no deviation any more: move it to CASES"


@pytest.mark.parametrize(
    "name",
    ["add", "dot_general", "reduce", "slice", "dynamic_update_slice", "gather", "pad", "compare"],
)
def test_bytes_written_agree_with_xla(name: str) -> None:
    case = CASES[name]
    assert our_work(case).written == analysis_of(xla_computation(case.text))["bytes accessedout{}"]


@pytest.mark.parametrize("name", [*CASES, *VARIADIC, *DEVIATIONS])
def test_written_and_aliased_bytes_cover_the_results(name: str) -> None:
    deviation = DEVIATIONS.get(name)
    case = deviation.case if deviation else {**CASES, **VARIADIC}[name]
    _, _, results = read_one(case)
    work = our_work(case)
    share = {"constant splat": 0.0, "cholesky": 0.5}.get(name, 1.0)  # one value; a triangle
    assert work.written + work.aliased == share * sum(result.bytes for result in results)
    assert min(work.read, work.written, work.aliased) >= 0


def test_mhlo_twin_has_the_rule_of_the_op() -> None:
    assert RULES["mhlo.add"] is RULES["add"]
