"""Trip counts of functions that are called several times: each call knows its own."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from tests.stablehlo.helpers import interpreted, walked

TWICE = """module {
  func.func private @f(%from: tensor<i32>, %step: tensor<i32>) -> tensor<i64> {
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %r:2 = stablehlo.while(%i = %from, %n = %zero) : tensor<i32>, tensor<i64>
    cond {
      %c = stablehlo.constant dense<10> : tensor<i32>
      %p = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %step : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %m = stablehlo.add %n, %one : tensor<i64>
      stablehlo.return %j, %m : tensor<i32>, tensor<i64>
    }
    return %r#1 : tensor<i64>
  }
  func.func @main(%x: tensor<i32>) -> (tensor<i64>, tensor<i64>) {
    %two = stablehlo.constant dense<2> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<i32>
    %a = func.call @f(%two, %three) : (tensor<i32>, tensor<i32>) -> tensor<i64>
    %b = func.call @f(SECOND) : (tensor<i32>, tensor<i32>) -> tensor<i64>
    return %a, %b : tensor<i64>, tensor<i64>
  }
}"""


def test_each_call_of_a_function_has_its_own_trip_count() -> None:
    text = TWICE.replace("SECOND", "%three, %two")
    expected = [int(n) for n in interpreted(text, ["dense<0> : tensor<i32>"])]
    assert [loop.trip_count for loop in walked(text).graph.loops] == expected == [3, 4]


@pytest.mark.parametrize("second", ["%x, %two", "%two, %x"])
def test_what_an_earlier_call_knew_is_not_taken_for_a_later_one(second: str) -> None:
    with pytest.raises(FlintError, match="--trip-count while_1=N"):
        walked(TWICE.replace("SECOND", second))


#: A factor from a table, which the loop carries along; it runs from 100 at first and then from 1.
BY_TABLE = """module {
  func.func private @f(%from: tensor<i32>, %table: tensor<2xi32>) -> tensor<i64> {
    %zero = stablehlo.constant dense<0> : tensor<i64>
    %at = stablehlo.constant dense<0> : tensor<i32>
    %r:3 = stablehlo.while(%i = %from, %t = %table, %n = %zero)
      : tensor<i32>, tensor<2xi32>, tensor<i64>
    cond {
      %c = stablehlo.constant dense<100> : tensor<i32>
      %p = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %s = stablehlo.dynamic_slice %t, %at, sizes = [1]
        : (tensor<2xi32>, tensor<i32>) -> tensor<1xi32>
      %by = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
      %j = stablehlo.multiply %i, %by : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %m = stablehlo.add %n, %one : tensor<i64>
      stablehlo.return %j, %t, %m : tensor<i32>, tensor<2xi32>, tensor<i64>
    }
    return %r#2 : tensor<i64>
  }
  func.func @main(%x: tensor<2xi32>) -> (tensor<i64>, tensor<i64>) {
    %hundred = stablehlo.constant dense<100> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %two = stablehlo.constant dense<[2, 5]> : tensor<2xi32>
    %ten = stablehlo.constant dense<[10, 5]> : tensor<2xi32>
    %a = func.call @f(%hundred, %two) : (tensor<i32>, tensor<2xi32>) -> tensor<i64>
    %b = func.call @f(%one, SECOND) : (tensor<i32>, tensor<2xi32>) -> tensor<i64>
    return %a, %b : tensor<i64>, tensor<i64>
  }
}"""


def test_each_call_steps_by_its_own_table() -> None:
    text = BY_TABLE.replace("SECOND", "%ten")
    expected = [int(n) for n in interpreted(text, ["dense<[0, 0]> : tensor<2xi32>"])]
    assert [loop.trip_count for loop in walked(text).graph.loops] == expected == [0, 2]


def test_a_table_of_an_earlier_call_is_not_taken_for_data() -> None:
    with pytest.raises(FlintError, match="--trip-count while_1=N"):
        walked(BY_TABLE.replace("SECOND", "%x"))


def test_a_callee_inside_a_body_does_not_take_an_argument_of_an_earlier_call() -> None:
    # @step has been called with a constant before; in the loop its argument is data.
    text = """module {
      func.func private @step(%i: tensor<i32>, %by: tensor<i32>) -> tensor<i32> {
        %j = stablehlo.add %i, %by : tensor<i32>
        return %j : tensor<i32>
      }
      func.func @main(%x: tensor<i32>) -> tensor<i32> {
        %two = stablehlo.constant dense<2> : tensor<i32>
        %from = func.call @step(%two, %two) : (tensor<i32>, tensor<i32>) -> tensor<i32>
        %r = stablehlo.while(%i = %from) : tensor<i32>
        cond {
          %c = stablehlo.constant dense<10> : tensor<i32>
          %p = stablehlo.compare LT, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        } do {
          %j = func.call @step(%i, %x) : (tensor<i32>, tensor<i32>) -> tensor<i32>
          stablehlo.return %j : tensor<i32>
        }
        return %r : tensor<i32>
      }
    }"""
    with pytest.raises(FlintError, match="--trip-count while_0=N"):
        walked(text)
    assert walked(text.replace("(%i, %x)", "(%i, %two)")).graph.loops[0].trip_count == 3
