"""A program of some ranks, with its communications among all ranks.

The idea: a program that is compiled for four devices numbers them from 0 to 3.  Where the cluster
has other ranks as well, its groups and permutations are those of the four ranks that run it.

    graph = on_ranks(graph, np.array([4, 5, 6, 7]), world=8)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import Ints, WorkloadGraph, with_tables
from flint.mesh.groups import from_table
from flint.mesh.permutation import permutation


def on_ranks(graph: WorkloadGraph, ranks: Ints, world: int) -> WorkloadGraph:
    """``graph`` with its communications among the ranks that run it.

    Args:
        graph: of a program that numbers its devices from 0.
        ranks: the rank of each device, shape [devices].
        world: number of ranks.
    """
    if np.array_equal(ranks, np.arange(world)):
        return graph
    known: dict[int, Communication] = {}

    def among(item: Communication) -> Communication:
        # Tables over many ranks are made once per object, not once per op.
        key = id(item.permutation or item.groups)
        if key not in known:
            known[key] = _among(item, ranks, world)
        found = known[key]
        return replace(item, permutation=found.permutation, groups=found.groups)

    communications = tuple(among(item) for item in graph.tables.communications)
    return with_tables(graph, replace(graph.tables, communications=communications))


def _among(item: Communication, ranks: Ints, world: int) -> Communication:
    if item.permutation is not None:
        target = item.permutation.target
        sends = target >= 0
        pairs = np.stack([ranks[sends], ranks[target[sends]]], axis=1)
        return replace(item, permutation=permutation(world, pairs))
    if item.groups is None:
        return item
    table = item.groups.table()
    return replace(item, groups=from_table(world, np.where(table >= 0, ranks[table], -1)))
