"""Issue order by keys, against networkx's."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.ready_order import ready_order

SIZES = st.integers(1, 12)


@given(
    SIZES.flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 5), min_size=n, max_size=n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20),
        )
    )
)
def test_the_lowest_key_that_waits_for_nothing_is_next(drawn):
    keys, pairs = drawn
    pairs = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    graph = nx.DiGraph(pairs)
    graph.add_nodes_from(range(len(keys)))
    expected = nx.lexicographical_topological_sort(graph, lambda item: (keys[item], item))
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    assert ready_order(keys, edges[:, 0], edges[:, 1]) == list(expected)


def test_a_cycle_and_what_waits_for_it_is_left_out():
    assert ready_order([0, 0, 0, 0], np.array([0, 1, 1]), np.array([1, 0, 2])) == [3]
