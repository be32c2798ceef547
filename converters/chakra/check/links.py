"""Resolves dependency ids to rows of the file, and sorts the rows topologically.

The idea: a trace written in issue order has only parents above their children; one comparison over
the whole file proves it acyclic.  Only other files are sorted node by node.

    links = link(trace)
    links.data.parent[links.data.start[v]:links.data.start[v + 1]]      # rows of v's parents
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.cycles import cycle
from flint.converters.chakra.read.trace import Csr, Trace
from flint.mesh.ragged import row_of_entry


@dataclass(frozen=True, slots=True)
class Edges:
    """Parents by row: those of row v are `parent[start[v]:start[v + 1]]`."""

    start: NDArray[np.int64]
    parent: NDArray[np.int64]

    def child(self) -> NDArray[np.int64]:
        """int64: for each entry of `parent` the row whose parent it is."""
        return row_of_entry(self.start)


@dataclass(frozen=True, slots=True)
class Links:
    """The dependencies of one trace.

    Attributes:
        data: edges from `data_deps`.
        every: edges from `data_deps` and `ctrl_deps`.
        duplicate: rows whose id an earlier row has.
        missing: rows with a dependency that no node has, and `missing_id` the id.
        own: rows that depend on themselves.
        cycle: rows of one dependency cycle, in order; empty if there is none.
        order: the rows in a topological order of `every`; empty if there is a cycle.
    """

    data: Edges
    every: Edges
    duplicate: NDArray[np.int64]
    missing: NDArray[np.int64]
    missing_id: NDArray[np.uint64]
    own: NDArray[np.int64]
    cycle: NDArray[np.int64]
    order: NDArray[np.int64]


def link(trace: Trace) -> Links:
    """Resolve the dependencies of `trace`."""
    count = len(trace)
    by_id = np.argsort(trace.id, kind="stable")
    ids = trace.id[by_id]
    duplicate = np.sort(by_id[1:][ids[1:] == ids[:-1]])
    data, data_missing = _resolve(trace.data_deps, ids, by_id, count)
    ctrl, ctrl_missing = _resolve(trace.ctrl_deps, ids, by_id, count)
    every = data if not len(ctrl.parent) else _joined(data, ctrl, count)
    child = every.child()
    own = np.unique(child[child == every.parent])
    order, on_cycle = _sorted(every, child, count)
    return Links(
        data,
        every,
        duplicate,
        np.concatenate([data_missing[0], ctrl_missing[0]]),
        np.concatenate([data_missing[1], ctrl_missing[1]]),
        own,
        on_cycle,
        order,
    )


def _resolve(
    deps: Csr, ids: NDArray[np.uint64], by_id: NDArray[np.int64], count: int
) -> tuple[Edges, tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    child = row_of_entry(deps.start)
    place = np.minimum(np.searchsorted(ids, deps.ids), max(count - 1, 0))
    found = ids[place] == deps.ids if count else np.zeros(0, bool)
    parent = by_id[place] if count else np.zeros(0, np.int64)
    lost = (child[~found], deps.ids[~found])
    return _edges(child[found], parent[found], count), lost


def _edges(child: NDArray[np.int64], parent: NDArray[np.int64], count: int) -> Edges:
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(child, minlength=count))])
    return Edges(start, parent)


def _joined(first: Edges, second: Edges, count: int) -> Edges:
    child = np.concatenate([first.child(), second.child()])
    parent = np.concatenate([first.parent, second.parent])
    by_child = np.argsort(child, kind="stable")
    return _edges(child[by_child], parent[by_child], count)


def _sorted(
    edges: Edges, child: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(topological order, rows of a cycle): one of them is empty unless there are no rows."""
    none = np.zeros(0, np.int64)
    if np.all(edges.parent < child):
        return np.arange(count), none
    real = edges.parent != child  # a node that depends on itself is reported on its own
    parents, children = edges.parent[real], child[real]
    by_parent = np.argsort(parents, kind="stable")
    first = np.searchsorted(parents[by_parent], np.arange(count + 1)).tolist()
    below = children[by_parent].tolist()
    waiting = np.bincount(children, minlength=count).tolist()
    order = [row for row in range(count) if not waiting[row]]
    for row in order:
        for index in range(first[row], first[row + 1]):
            waiting[below[index]] -= 1
            if not waiting[below[index]]:
                order.append(below[index])
    if len(order) == count:
        return np.array(order, np.int64), none
    return none, cycle(parents, children, count)
