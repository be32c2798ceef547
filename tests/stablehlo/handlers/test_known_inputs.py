"""Branches and loops that values of inputs decide, as StableHLO's interpreter runs them."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from tests.stablehlo.helpers import executions, interpreted, walked

I = "tensor<i32>"  # noqa: E741
#: Every fourth step doubles what the others triple; the loop then adds 10, step + 2 times.
STEP = f"""func.func @main(%step: {I}, %x: {I}) -> {I} {{
    %four = stablehlo.constant dense<4> : {I}
    %zero = stablehlo.constant dense<0> : {I}
    %one = stablehlo.constant dense<1> : {I}
    %ten = stablehlo.constant dense<10> : {I}
    %three = stablehlo.constant dense<3> : {I}
    %part = stablehlo.remainder %step, %four : {I}
    %often = stablehlo.compare NE, %part, %zero : ({I}, {I}) -> tensor<i1>
    %index = stablehlo.convert %often : (tensor<i1>) -> {I}
    %chosen = "stablehlo.case"(%index) ({{
      %two = stablehlo.add %x, %x : {I}
      stablehlo.return %two : {I}
    }}, {{
      %more = stablehlo.multiply %x, %three : {I}
      stablehlo.return %more : {I}
    }}) : ({I}) -> {I}
    %last = stablehlo.add %step, %one : {I}
    %r:2 = stablehlo.while(%i = %zero, %v = %chosen) : {I}, {I}
    cond {{
      %p = stablehlo.compare LE, %i, %last : ({I}, {I}) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %j = stablehlo.add %i, %one : {I}
      %w = stablehlo.subtract %v, %ten : {I}
      stablehlo.return %j, %w : {I}, {I}
    }}
    return %r#1 : {I}
  }}"""


@pytest.mark.parametrize("step", [0, 1, 3, 8])
def test_a_counter_decides_branches_and_loops(step):
    [[result]] = [
        item.reshape(-1).tolist()
        for item in interpreted(STEP, [f"dense<{step}> : {I}", f"dense<1000> : {I}"])
    ]
    found = walked(STEP, values={0: step})
    trips = executions(found.graph, "subtract")
    doubles = not executions(found.graph, "multiply")
    assert result == (2000 if doubles else 3000) - 10 * trips
    assert found.by_values == {"case_0": 0 if doubles else 1, "while_0": trips}
    assert sum("values of the step's inputs" in text for text in found.warnings) == 2
    again = walked(STEP, trip_counts={"while_0": trips}, branches={"case_0": int(not doubles)})
    assert executions(again.graph, "subtract") == trips


def test_the_users_choice_is_taken_before_that_of_values():
    found = walked(STEP, values={0: 8}, branches={"": 1}, trip_counts={"while_0": 5})
    assert executions(found.graph, "multiply") == 1
    assert executions(found.graph, "subtract") == 5
    assert found.by_values == {}


def test_a_value_of_another_input_decides_nothing():
    with pytest.raises(FlintError, match="trip count of loop while_0"):
        walked(STEP, values={1: 3})
