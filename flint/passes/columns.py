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

from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, Ints, Loop, WorkloadGraph
from flint.mesh.ragged import pointer, row_of_entry, segments


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


def nodes_between(graph: WorkloadGraph, first: int, end: int) -> dict[str, Any]:
    """The columns of a block's nodes from ``first`` to ``end``, except those of order edges."""
    columns: dict[str, Any] = {name: getattr(graph, name)[first:end] for name in NODE_COLUMNS}
    for rows, names in _ROWS.items():
        ptr = getattr(graph, rows)[first : end + 1]
        columns[rows] = ptr - ptr[0]
        columns |= {name: getattr(graph, name)[ptr[0] : ptr[-1]] for name in names}
    return columns


#: Pointers of a graph and their columns, except order edges.
_ROWS = {
    "result_ptr": ("result_type",),
    "operand_ptr": ("operand",),
    "work_ptr": WORK_COLUMNS,
}


def repeated(graph: WorkloadGraph, copies: Ints) -> tuple[WorkloadGraph, Ints, Ints]:
    """One block with each node several times in a row, for steps that a caller makes of them.

    The last copy stands for the node: others read its results and wait for it, and it has its
    ``ops_merged``.  The first one waits for what the node waited for.

    Args:
        graph: one block.
        copies: how often each node occurs, shape [nodes].

    Returns:
        The block, the former node of each copy, and the last copy of each former node.
    """
    rows = np.repeat(np.arange(len(graph)), copies)
    last = np.cumsum(copies) - 1
    number = np.arange(len(rows)) - (last - copies + 1)[rows]
    first, final = number == 0, number == copies[rows] - 1
    result_ptr, results = take_rows(graph.result_ptr, rows)
    operand_ptr, operands = take_rows(graph.operand_ptr, rows)
    work_ptr, items = take_rows(graph.work_ptr, rows)
    order_ptr, orders = take_rows(graph.order_ptr, rows)
    made = np.concatenate(
        [np.arange(graph.inputs), graph.inputs + np.flatnonzero(final[row_of_entry(result_ptr)])]
    )
    kept = first[row_of_entry(order_ptr)]
    columns = gathered(graph, NODE_COLUMNS, rows)
    columns["ops_merged"] = np.where(final, graph.ops_merged[rows], 0)
    copied = replace(
        graph,
        **columns,
        **gathered(graph, WORK_COLUMNS, items),
        result_ptr=result_ptr,
        result_type=graph.result_type[results],
        operand_ptr=operand_ptr,
        operand=made[graph.operand[operands]],
        work_ptr=work_ptr,
        order_ptr=pointer(np.bincount(row_of_entry(order_ptr)[kept], minlength=len(rows))),
        order_node=last[graph.order_node[orders[kept]]],
        order_kind=graph.order_kind[orders[kept]],
        outputs=made[graph.outputs],
    )
    return copied, rows, last


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
