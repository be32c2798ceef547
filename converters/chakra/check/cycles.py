"""Cycles of directed graphs that are given as two arrays of edges.

The idea: SciPy finds the strongly connected components; a cycle is inside one of them, so a walk
against the edges that never leaves a component returns to an earlier vertex.

    cycle(np.array([0, 1, 2]), np.array([1, 2, 0]), 3)       # array([1, 2, 0])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.mesh.ragged import Ints


def components(source: Ints, target: Ints, count: int) -> NDArray[np.int32]:
    """int32 [count]: the number of the strongly connected component of each vertex."""
    # Most sets of traces have levels (see `graph`) and never need this import.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(source), bool), (source, target)), shape=(count, count))
    _, component = connected_components(edges.tocsr(), directed=True, connection="strong")
    return np.asarray(component, np.int32)


def cycle(source: Ints, target: Ints, count: int) -> Ints:
    """The vertices along one cycle, each before its successor; empty if there is no cycle.

    Edges from a vertex to itself do not count.
    """
    component = components(source, target, count)
    inside = (component[source] == component[target]) & (source != target)
    before = dict(zip(target[inside].tolist(), source[inside].tolist(), strict=True))
    if not before:
        return np.zeros(0, np.int64)
    vertex = min(before)
    place: dict[int, int] = {}
    while vertex not in place:
        place[vertex] = len(place)
        vertex = before[vertex]
    return np.array(list(place)[place[vertex] :][::-1], np.int64)
