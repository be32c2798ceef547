"""Routing: Zipf's law, loads from files, and what the busiest rank gets."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import UsageError
from flint.graph.routing import Routing, routing_of


def test_shares_of_zipfs_law_fall_as_its_power():
    """1, 1/2, 1/3, 1/4 over their sum 25/12; which expert is how popular is not asked here."""
    shares = sorted(routing_of("zipf:1").shares(4), reverse=True)
    harmonic = sum(Fraction(1, i) for i in range(1, 5))
    assert shares == pytest.approx([float(Fraction(1, i) / harmonic) for i in range(1, 5)])


@given(st.floats(0, 3), st.integers(1, 6), st.integers(1, 6))
def test_the_busiest_rank_has_at_least_the_mean_and_at_most_all(exponent, ranks, each):
    found = routing_of(f"zipf:{exponent:.6f}").busiest(ranks * each, ranks)
    assert 1 - 1e-9 <= found <= ranks + 1e-9


def test_busiest_of_measured_loads():
    """Ranks get 4 + 2 and 1 + 1 of 8: 6 over a mean of 4."""
    assert routing_of((4, 2, 1, 1)).busiest(4, 2) == pytest.approx(1.5)
    assert Routing().busiest(256, 32) == pytest.approx(1.0)


def test_loads_of_a_file(tmp_path):
    file = tmp_path / "loads.csv"
    file.write_text("# expert loads, one step\n4, 2\n1, 1\n")
    assert routing_of(str(file)).counts(80, 4) == [40, 20, 10, 10]


@pytest.mark.parametrize("text", ["", "# none\n", "1 two\n", "1 -1\n", "nan 1\n", "0 0\n"])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    file = tmp_path / "loads.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match="loads"):
        routing_of(str(file))


def test_experts_that_do_not_divide_are_refused():
    with pytest.raises(UsageError, match="6 experts do not divide evenly over 4 ranks"):
        Routing().busiest(6, 4)


def test_a_law_for_another_number_of_experts_is_refused():
    with pytest.raises(UsageError, match="loads of 64 experts, but the program chooses among 8"):
        routing_of("zipf:1/64").shares(8)
