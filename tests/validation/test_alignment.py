"""Longest common subsequences against the textbook's table."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.validation.matching import alignment
from flint.validation.matching.alignment import aligned, longest_ascending

SEQUENCES = st.lists(st.integers(0, 3), max_size=14)


def by_table(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else best
    return table[-1][-1]


@given(SEQUENCES, SEQUENCES)
def test_as_long_as_the_tables_and_a_subsequence_of_both(a, b):
    pairs = aligned(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    assert len(pairs) == by_table(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(pairs))


def test_one_extra_op_shifts_and_breaks_nothing():
    a = np.arange(100_000)
    b = np.insert(a, 50_000, 7)
    pairs = aligned(a, b)
    assert len(pairs) == 100_000
    assert pairs[-1] == (99_999, 100_000)


def test_sequences_without_likeness_are_not_aligned_for_hours(monkeypatch):
    monkeypatch.setattr(alignment, "MAX_DIFFERENCES", 10)
    assert aligned(np.zeros(100, dtype=np.int64), np.ones(100, dtype=np.int64)) is None


@given(st.lists(st.integers(0, 9), max_size=10, unique=True))
def test_ascending_part(numbers):
    assert longest_ascending(numbers) == by_table(numbers, sorted(numbers))
