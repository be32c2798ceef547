"""Counted without trying iterations: as a counter that is run, and as worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.graph.scalars import Place, Scalar, constant
from flint.stablehlo.loops.counters import argument_scalars
from flint.stablehlo.loops.linear_counts import first_false
from tests.support.shared import examples

HOLDS = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b, "NE": lambda a, b: a != b, "EQ": lambda a, b: a == b,
}  # fmt: skip
PLACE = Place(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64))


def counted(kind, init, step, bound, direction, swapped=False):
    [counter] = argument_scalars([constant(init)], [step], [kind], 0)
    sides = (constant(bound), counter) if swapped else (counter, constant(bound))
    found = first_false(Scalar("compare", sides, direction), 0, PLACE, 1)
    return None if found is None else int(found[0])


def run(kind, init, step, bound, direction, swapped):
    """Iterations of a counter that wraps around; None where it comes back to where it was."""
    span = 2 ** int(kind.lstrip("ui"))
    value, seen = init, set()
    while value not in seen:
        a, b = (bound, value) if swapped else (value, bound)
        if not HOLDS[direction](a, b):
            return len(seen)
        seen.add(value)
        value = (value + step) % span
        value -= span if kind[0] == "i" and value >= span // 2 else 0
    return None


@given(st.data(), st.sampled_from(["i8", "ui8"]), st.sampled_from([*HOLDS]), st.booleans())
@settings(max_examples=examples(1000))
def test_a_count_is_that_of_the_counter(data, kind, direction, swapped):
    low = 0 if kind[0] == "u" else -128
    number = st.integers(low, low + 255)
    arguments = (
        kind, data.draw(number), data.draw(st.integers(-9, 9)), data.draw(number), direction,
        swapped,
    )  # fmt: skip
    found = counted(*arguments)
    assert found is None or found == run(*arguments)


@pytest.mark.parametrize(
    ("kind", "init", "step", "bound", "direction", "trips"),
    [
        ("i64", 0, 1, 10**18, "LT", 10**18),
        ("i64", 5, 3, 10**18, "LE", (10**18 - 5) // 3 + 1),
        ("i64", 10**18, -7, 0, "GT", -(-(10**18) // 7)),
        ("i64", 0, 4, 2**62, "NE", 2**60),
        ("i64", 0, 3, 2**62, "NE", None),  # passes the bound
        ("i32", 0, 1, 2**31 - 1, "LT", 2**31 - 1),
        ("i32", 0, 1, 2**31 - 1, "LE", None),  # wraps around
        ("ui32", 0, 1, 2**32 - 1, "LT", 2**32 - 1),
        ("i64", 0, -1, 5, "LT", None),  # goes away from the bound
    ],
)
def test_long_loops_are_counted(kind, init, step, bound, direction, trips):
    assert counted(kind, init, step, bound, direction) == trips


def test_most_loops_that_end_are_counted():
    """Counters that reach their bound before they wrap around are never given up."""
    for init in range(-128, 128, 17):
        for bound in range(init, 120):
            assert counted("i8", init, 1, bound, "LT") == bound - init
            assert counted("i8", bound, -1, init, "GT") == bound - init
