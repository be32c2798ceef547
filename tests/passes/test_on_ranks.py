"""Programs of some ranks among all ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.communication import Communication
from flint.graph.graph import with_tables
from flint.mesh.groups import from_table
from flint.mesh.permutation import permutation
from flint.passes.on_ranks import on_ranks
from tests.passes.building import Graph

RANKS = st.permutations(range(8)).map(lambda some: np.array(some[:4]))


def placed(item, ranks):
    """A communication of a program of four devices, among eight ranks."""
    build = Graph()
    graph = build.builder.finish((build.input(),))
    graph = with_tables(graph, replace(graph.tables, communications=(item,)))
    return on_ranks(graph, ranks, 8).tables.communications[0]


@given(RANKS)
def test_groups_are_those_of_the_ranks_that_run_it(ranks):
    groups = from_table(4, np.array([[0, 2], [1, 3]]))
    item = Communication("all_gather", None, groups, None, (4,), (8,), ("f32",))
    found = placed(item, ranks).groups
    for device, others in enumerate(([0, 2], [1, 3], [0, 2], [1, 3])):
        assert found.members(int(ranks[device])).tolist() == ranks[others].tolist()
    elsewhere = np.setdiff1d(np.arange(8), ranks)
    assert (found.number(elsewhere) == -1).all()


@given(RANKS)
def test_messages_go_between_the_ranks_that_run_it(ranks):
    ring = permutation(4, np.array([[0, 1], [1, 2], [2, 3]]))
    item = Communication("collective_permute", None, None, ring, (4,), (4,), ("f32",))
    target = placed(item, ranks).permutation.target
    for one, other in ((0, 1), (1, 2), (2, 3)):
        assert target[ranks[one]] == ranks[other]
    assert (target >= 0).sum() == 3
