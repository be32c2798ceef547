"""Words of what programs issue: equal exactly where what they stand for is equal."""

from __future__ import annotations

import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.graph.graph import NodeKind
from flint.workload.issue_words import EMPTY, Word, issued
from tests.graph.unrolling.random_graphs import programs
from tests.support.shared import examples

LETTERS = {name: Word(1, size, size) for size, name in enumerate("abc", start=1)}

#: A word as nested lists: letters, and (count, word) for a repetition.
NESTED = st.recursive(
    st.lists(st.sampled_from("abc"), max_size=4),
    lambda inner: st.lists(
        st.one_of(st.sampled_from("abc"), st.tuples(st.integers(0, 4), inner)), max_size=4
    ),
    max_leaves=8,
)


def written_out(nested):
    return "".join(
        item if isinstance(item, str) else item[0] * written_out(item[1]) for item in nested
    )


def word(nested):
    found = EMPTY
    for item in nested:
        found += LETTERS[item] if isinstance(item, str) else word(item[1]).times(item[0])
    return found


@given(NESTED, NESTED)
@settings(max_examples=examples(300))
def test_words_are_equal_where_they_are_when_written_out(one, other):
    first, second = written_out(one), written_out(other)
    assert (word(one) == word(other)) == (first == second)
    assert word(one).length == len(first)
    assert word(one).bytes == sum("abc".index(letter) + 1 for letter in first)


def test_the_same_loops_cut_in_other_places_are_the_same_word():
    """(ab) n times and b is a and then (ba) ... only where the numbers agree, however large."""
    n = 10**18
    a, b = LETTERS["a"], LETTERS["b"]
    assert (a + b).times(n) == a + (b + a).times(n - 1) + b
    assert (a + b).times(n) != a + (b + a).times(n - 2) + b
    assert (a + b).times(n) != (b + a).times(n)
    assert (a.times(n) + b.times(n)).length == 2 * n


def unrolled(graph, communicator):
    found = []
    for node in range(len(graph)):
        if graph.kind[node] == NodeKind.COMMUNICATION:
            item = graph.tables.communications[int(graph.detail[node])]
            if item.communicator == communicator:
                found.append((item.kind, item.bytes_in))
        elif graph.kind[node] == NodeKind.LOOP:
            loop = graph.loops[int(graph.detail[node])]
            found += unrolled(loop.body, communicator) * loop.trip_count
    return found


@given(programs(), programs())
@settings(max_examples=examples(100), deadline=None)
def test_programs_issue_the_same_where_they_do_when_unrolled(one, other):
    first, second = issued([one, other])
    names = {item.communicator for graph in (one, other) for item in graph.tables.communications}
    for name in names:
        found = unrolled(one, name), unrolled(other, name)
        assert (first.on(name) == second.on(name)) == (found[0] == found[1])
        assert first.on(name).length == len(found[0])


def test_the_work_grows_with_the_digits_of_a_count():
    def calls(count):
        seen = 0

        def traced(_frame, event, _argument):
            nonlocal seen
            seen += event == "call"

        sys.setprofile(traced)
        try:
            LETTERS["a"].times(count)
        finally:
            sys.setprofile(None)
        return seen

    per_bit = np.diff([calls(2**bits) for bits in (10, 20, 40, 80)]) / (10, 20, 40)
    assert per_bit.max() <= 4
