"""Trip counts against executed programs: proved and right, or not proved; never wrong.

Each loop also counts its own iterations, so that the StableHLO reference interpreter returns how
often it really ran.  What runs for longer than ``LIMIT`` is cut off, in the executed copy only.

Longer than 300 lines because each loop is a module written out, with its count derived by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from tests.stablehlo.helpers import interpreted, walked
from tests.stablehlo.loops.test_calls import TWICE
from tests.support.shared import examples

TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
DIRECTIONS = ("LT", "LE", "GT", "GE", "NE", "EQ")
LIMIT = 400


def bits(kind: str) -> int:
    return int(kind.lstrip("ui"))


def in_range(kind: str) -> st.SearchStrategy[int]:
    low, high = (
        (0, 2 ** bits(kind)) if kind[0] == "u" else (-(2 ** bits(kind) // 2), 2 ** bits(kind) // 2)
    )
    near = st.integers(-12, 40).filter(lambda n: low <= n < high)
    return near | st.integers(low, low + 12) | st.integers(high - 12, high - 1)


@dataclass(frozen=True)
class Counted:
    """A loop over ``kind`` counters: i from init by step while i DIRECTION bound."""

    kind: str
    init: int
    step: int
    bound: int
    direction: str
    subtract: bool
    swapped_sum: bool
    swapped_compare: bool
    through: str
    join: str
    second: tuple[int, int, int, str]


@st.composite
def loops(draw: st.DrawFn) -> Counted:
    kind = draw(st.sampled_from(TYPES))
    steps = st.integers(1, 7) if kind[0] == "u" else st.integers(-7, 7)
    number = in_range(kind)
    return Counted(
        kind,
        draw(number),
        draw(steps),
        draw(number),
        draw(st.sampled_from(DIRECTIONS)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(
            st.sampled_from(("", "call", "nested call", "barrier", "wider", "narrower", "reshape"))
        ),
        draw(st.sampled_from(("alone", "", "and", "or", "called and"))),
        (draw(number), draw(steps), draw(number), draw(st.sampled_from(DIRECTIONS))),
    )


def source(loop: Counted, *, cut_off: bool) -> str:
    k = f"tensor<{loop.kind}>"
    n = "tensor<i64>"
    op = "subtract" if loop.subtract and not loop.swapped_sum else "add"
    operands = "%step, %from" if loop.swapped_sum else "%from, %step"
    width = f"{'ui' if loop.kind[0] == 'u' else 'i'}"
    other = {"wider": f"tensor<{width}64>", "narrower": f"tensor<{width}8>"}.get(loop.through, "")
    advance = {
        "call": f"%next = func.call @advance(%i) : ({k}) -> {k}",
        "nested call": f"%next = func.call @outer(%i) : ({k}) -> {k}",
        "barrier": f"%both:2 = stablehlo.optimization_barrier %n, %i : {n}, {k}\n"
        f"      %next = func.call @advance(%both#1) : ({k}) -> {k}",
        "wider": f"%w = stablehlo.convert %i : ({k}) -> {other}\n"
        f"      %next = func.call @converted(%w) : ({other}) -> {k}",
        "narrower": f"%w = stablehlo.convert %i : ({k}) -> {other}\n"
        f"      %next = func.call @converted(%w) : ({other}) -> {k}",
        "reshape": f"%flat = stablehlo.reshape %i : ({k}) -> tensor<1x{loop.kind}>\n"
        f"      %back = stablehlo.reshape %flat : (tensor<1x{loop.kind}>) -> {k}\n"
        f"      %next = func.call @advance(%back) : ({k}) -> {k}",
        "": f"%step = stablehlo.constant dense<{loop.step}> : {k}\n"
        f"      %next = stablehlo.{op} {operands.replace('%from', '%i')} : {k}",
    }[loop.through]
    converted = (
        f"""
  func.func private @converted(%w: {other}) -> {k} {{
    %step = stablehlo.constant dense<{loop.step}> : {other}
    %sum = stablehlo.add %w, %step : {other}
    %next = stablehlo.convert %sum : ({other}) -> {k}
    return %next : {k}
  }}"""
        if other
        else ""
    )
    start2, step2, bound2, direction2 = loop.second
    sides = "%bound, %i" if loop.swapped_compare else "%i, %bound"
    first = f"%first = stablehlo.compare {loop.direction}, {sides} : ({k}, {k}) -> tensor<i1>"
    joined = {
        "alone": "%go = stablehlo.and %first, %first : tensor<i1>",
        "": "%go = stablehlo.and %first, %first : tensor<i1>",
        "and": "%go = stablehlo.and %first, %second : tensor<i1>",
        "or": "%go = stablehlo.or %first, %second : tensor<i1>",
        "called and": "%go = func.call @both(%first, %second) : "
        "(tensor<i1>, tensor<i1>) -> tensor<i1>",
    }[loop.join]
    guard = (
        f"""%limit = stablehlo.constant dense<{LIMIT}> : {n}
      %within = stablehlo.compare LT, %n, %limit : ({n}, {n}) -> tensor<i1>
      %last = stablehlo.and %go, %within : tensor<i1>
      stablehlo.return %last : tensor<i1>"""
        if cut_off
        else f"stablehlo.return %{'first' if loop.join == 'alone' else 'go'} : tensor<i1>"
    )
    return f"""module {{
  func.func private @both(%a: tensor<i1>, %b: tensor<i1>) -> tensor<i1> {{
    %c = stablehlo.and %a, %b : tensor<i1>
    return %c : tensor<i1>
  }}
  func.func private @advance(%from: {k}) -> {k} {{
    %step = stablehlo.constant dense<{loop.step}> : {k}
    %next = stablehlo.{op} {operands} : {k}
    return %next : {k}
  }}
  func.func private @outer(%x: {k}) -> {k} {{
    %y = func.call @advance(%x) : ({k}) -> {k}
    return %y : {k}
  }}{converted}
  func.func @main() -> {n} {{
    %init = stablehlo.constant dense<{loop.init}> : {k}
    %init2 = stablehlo.constant dense<{start2}> : {k}
    %zero = stablehlo.constant dense<0> : {n}
    %r:3 = stablehlo.while(%i = %init, %j = %init2, %n = %zero) : {k}, {k}, {n}
    cond {{
      %bound = stablehlo.constant dense<{loop.bound}> : {k}
      %bound2 = stablehlo.constant dense<{bound2}> : {k}
      {first}
      %second = stablehlo.compare {direction2}, %j, %bound2 : ({k}, {k}) -> tensor<i1>
      {joined}
      {guard}
    }} do {{
      {advance}
      %step2 = stablehlo.constant dense<{step2}> : {k}
      %next2 = stablehlo.add %j, %step2 : {k}
      %one = stablehlo.constant dense<1> : {n}
      %more = stablehlo.add %n, %one : {n}
      stablehlo.return %next, %next2, %more : {k}, {k}, {n}
    }}
    return %r#2 : {n}
  }}
}}"""


@settings(max_examples=examples(300))
@given(loops())
def test_a_proved_trip_count_is_the_executed_one(loop: Counted) -> None:
    (ran,) = interpreted(source(loop, cut_off=True))
    executed = int(ran)
    try:
        graph = walked(source(loop, cut_off=False)).graph
    except FlintError as error:
        if "never ends" in str(error):
            assert executed == LIMIT
        else:
            assert "--trip-count" in str(error)
            assert loop.kind == "ui64" or loop.through == "narrower" or executed == LIMIT
        return
    proved = graph.loops[0].trip_count
    assert proved == executed if executed < LIMIT else proved >= LIMIT


@pytest.mark.parametrize(
    ("kind", "init", "step", "bound", "direction", "trips"),
    [
        ("ui8", 250, 3, 4, "GE", 2),  # 250, 253, then 256 mod 256 = 0
        ("i8", 100, 10, 0, "GT", 3),  # 100, 110, 120, then 130 - 256 < 0
        ("i8", 0, 7, 1, "NE", 183),  # 7 x 183 = 1281 = 5 x 256 + 1
        ("i32", 5, -1, 0, "GE", 6),
        ("ui32", 3, 1, 3, "LT", 0),
    ],
)
def test_hand_derived_trip_counts(
    kind: str, init: int, step: int, bound: int, direction: str, trips: int
) -> None:
    loop = Counted(kind, init, step, bound, direction, False, False, False, "", "", (0, 1, 0, "EQ"))
    assert walked(source(loop, cut_off=False)).graph.loops[0].trip_count == trips


def test_an_endless_loop_is_an_error_that_names_it() -> None:
    loop = Counted("i8", 0, 0, 1, "LT", False, False, False, "", "", (0, 1, 0, "EQ"))
    with pytest.raises(FlintError, match=r"while_0 .*never ends"):
        walked(source(loop, cut_off=False))


NESTED = """func.func @main() -> tensor<i64> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %r:2 = stablehlo.while(%i = %zero, %n = %zero) : tensor<i64>, tensor<i64>
  cond {
    %c = stablehlo.constant dense<OUTER> : tensor<i64>
    %p = stablehlo.compare LT, %i, %c : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i64>
    %s:2 = stablehlo.while(%j = START, %m = %n) : tensor<i64>, tensor<i64>
    cond {
      %d = stablehlo.constant dense<INNER> : tensor<i64>
      %q = stablehlo.compare LT, %j, %d : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    } do {
      %k = stablehlo.add %j, %one : tensor<i64>
      %l = stablehlo.add %m, %one : tensor<i64>
      stablehlo.return %k, %l : tensor<i64>, tensor<i64>
    }
    %h = stablehlo.add %i, %one : tensor<i64>
    stablehlo.return %h, %s#1 : tensor<i64>, tensor<i64>
  }
  return %r#1 : tensor<i64>
}"""


@given(st.integers(0, 6), st.integers(-2, 6))
def test_nested_loops_multiply(outer: int, inner: int) -> None:
    text = NESTED.replace("OUTER", str(outer)).replace("INNER", str(inner))
    text = text.replace("START", "%zero")
    loop = walked(text).graph.loops[0]
    (ran,) = interpreted(text)
    assert loop.trip_count * loop.body.loops[0].trip_count == int(ran)


def test_a_counter_keeps_its_value_after_the_loop() -> None:
    # The second loop starts where the first one ended: 0..10 by 4 ends at 12; 12..20 by 4 is 2.
    text = """func.func @main() -> tensor<i8> {
      %zero = stablehlo.constant dense<0> : tensor<i8>
      %four = stablehlo.constant dense<4> : tensor<i8>
      %ten = stablehlo.constant dense<10> : tensor<i8>
      %twenty = stablehlo.constant dense<20> : tensor<i8>
      %a = stablehlo.while(%i = %zero) : tensor<i8>
      cond {
        %p = stablehlo.compare LT, %i, %ten : (tensor<i8>, tensor<i8>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %four : tensor<i8>
        stablehlo.return %j : tensor<i8>
      }
      %b = stablehlo.while(%i = %a) : tensor<i8>
      cond {
        %p = stablehlo.compare LT, %i, %twenty : (tensor<i8>, tensor<i8>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %four : tensor<i8>
        stablehlo.return %j : tensor<i8>
      }
      return %b : tensor<i8>
    }"""
    assert [loop.trip_count for loop in walked(text).graph.loops] == [3, 2]
    assert all(node.kind == NodeKind.LOOP for node in walked(text).graph if node.op == "while")


@pytest.mark.parametrize("given_as", ["", "while_0"])
def test_a_given_trip_count_is_taken_and_marked(given_as: str) -> None:
    text = TWICE.replace("%a = func.call @f(%two, %three)", "%a = func.call @f(%x, %three)")
    text = text.replace("SECOND", "%three, %two")
    loops = walked(text, trip_counts={given_as: 5}).graph.loops
    assert [(loop.trip_count, loop.known_by) for loop in loops] == [(5, "given"), (4, "proved")]


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"trip_counts": {"while_7": 5}},
         "while_7: no loop or conditional of this name needs a value"),
        ({"trip_counts": {"": 5}}, "--trip-count: every loop's trip count is known without it"),
        ({"branches": {"": 1}}, "--branch: no conditional needs a branch"),
        ({"fuse": True}, "--fuse: no kernel of PyTorch's to open, only captures of it have them"),
    ],
)  # fmt: skip
def test_a_choice_that_changes_nothing_is_a_warning(options, warning: str) -> None:
    text = TWICE.replace("SECOND", "%three, %two")
    assert walked(text, **options).warnings == {warning: 1}


def test_an_exponential_chain_of_sums_takes_no_time() -> None:
    sums = "\n".join(
        f"    %s{i + 1} = stablehlo.add %s{i}, %s{i} : tensor<i32>".replace("%s0", "%i")
        for i in range(60)
    )
    text = f"""func.func @main(%d: tensor<i32>) -> tensor<i32> {{
      %c = stablehlo.constant dense<1> : tensor<i32>
      %r = stablehlo.while(%i = START) : tensor<i32>
      cond {{
        %p = stablehlo.compare GE, %i, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
    {sums}
        stablehlo.return %s60 : tensor<i32>
      }}
      return %r : tensor<i32>
    }}"""
    # One iteration makes 2**60 of 1, which is 0 in 32 bits.
    assert walked(text.replace("START", "%c")).graph.loops[0].trip_count == 1
    with pytest.raises(FlintError, match="--trip-count"):
        walked(text.replace("START", "%d"))


@pytest.mark.parametrize(
    ("condition", "bound"),
    # From 0 in steps of 4 below 20: 0, 4, 8, 12, 16.
    [("and", ", at most 5"), ("or", "")],
)
def test_what_data_may_end_early_is_bounded_where_its_counter_is(
    condition: str, bound: str
) -> None:
    text = f"""func.func @main(%more: tensor<i1>) -> tensor<i32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %four = stablehlo.constant dense<4> : tensor<i32>
      %twenty = stablehlo.constant dense<20> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %m = %more) : tensor<i32>, tensor<i1>
      cond {{
        %p = stablehlo.compare LT, %i, %twenty : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %q = stablehlo.{condition} %m, %p : tensor<i1>
        stablehlo.return %q : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %four : tensor<i32>
        %n = stablehlo.not %m : tensor<i1>
        stablehlo.return %j, %n : tensor<i32>, tensor<i1>
      }}
      return %r#0 : tensor<i32>
    }}"""
    with pytest.raises(FlintError, match=rf"count of loop while_0 \(.*\){bound} depends on data"):
        walked(text)


def test_all_loops_that_data_end_are_named_at_once() -> None:
    loop = """%rN = stablehlo.while(%i = OF) : tensor<i32>
      cond {
        %p = stablehlo.compare LT, %i, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %i : tensor<i32>
        stablehlo.return %j : tensor<i32>
      }
    """
    loops = loop.replace("N", "1").replace("OF", "%d") + loop.replace("N", "2").replace("OF", "%r1")
    text = f"""func.func @main(%d: tensor<i32>) -> tensor<i32> {{
      {loops}
      return %r2 : tensor<i32>
    }}"""
    said = r"of loop while_0 \(.*\); of loop while_1 \(.*\) depend on data, .* give them with "
    said += r"--trip-count N \(or --trip-count while_0=N --trip-count while_1=N\)$"
    with pytest.raises(FlintError, match=said):
        walked(text)
    with pytest.raises(FlintError, match=r"trip count of loop while_1 \(.*\) depends on data"):
        walked(text, trip_counts={"while_0": 3})
    assert len(walked(text, trip_counts={"": 3}).graph.loops) == 2
