"""Array operations that passes share.

The idea: a graph is a handful of CSR tables, so that taking, renumbering and joining rows is index
arithmetic on whole columns; Python loops remain only where a decision depends on the one before.

    ptr, index = take_rows(graph.operand_ptr, nodes)      # graph.operand[index] are their operands
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from flint.graph.graph import Ints, Loop, WorkloadGraph
from flint.mesh.ragged import pointer, segments


def take_rows(ptr: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Selected CSR rows, joined end to end.

    Args:
        ptr: CSR pointer, shape [all rows + 1].
        rows: rows to take, in the order wanted, shape [rows].

    Returns:
        The pointer of the taken rows, shape [rows + 1], and the index of every entry in the old
        columns, shape [entries taken].
    """
    counts = ptr[rows + 1] - ptr[rows]
    taken = pointer(counts)
    return taken, segments(ptr[rows], counts)


def gathered(graph: WorkloadGraph, names: Iterable[str], index: Ints) -> dict[str, Any]:
    """Some columns at ``index``, for ``dataclasses.replace``."""
    return {name: getattr(graph, name)[index] for name in names}


def distinct(*keys: Ints) -> tuple[Ints, Ints]:
    """The distinct tuples of parallel columns, sorted by the first key, then the second ...

    Returns:
        The first entry of each tuple, shape [tuples], and each entry's tuple, shape [entries].
    """
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def lists(ptr: Ints, entries: Ints) -> list[list[int]]:
    """A CSR table as Python lists, for loops that cannot be arithmetic."""
    flat, ends = entries.tolist(), ptr.tolist()
    return [flat[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]


def with_bodies(
    graph: WorkloadGraph, rewrite: Callable[[WorkloadGraph, Loop | None], WorkloadGraph]
) -> WorkloadGraph:
    """``graph`` with every loop body and branch rewritten, one level down.

    Args:
        graph: the graph whose bodies are meant.
        rewrite: body, and its loop (None for a branch) -> new body.
    """
    if not graph.loops and not graph.conditionals:
        return graph
    loops = tuple(replace(loop, body=rewrite(loop.body, loop)) for loop in graph.loops)
    conditionals = tuple(
        replace(item, branches=tuple(rewrite(branch, None) for branch in item.branches))
        for item in graph.conditionals
    )
    return replace(graph, loops=loops, conditionals=conditionals)
