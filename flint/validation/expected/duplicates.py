"""Captured ops that compute the same as another one: compilers run such a pair once.

The idea: two ops of the same kind and sizes whose operands are the same values, looking through ops
that only rename a buffer (reshapes, copies, barriers), have the same result.  Rematerialisation
creates such pairs; the barriers that keep them apart are gone when a backend merges them.  Graphs
do not have the dims over which a product sums: if shapes do not show them either, as for the two
gradients of ``x @ x.T``, only the n-th op of a line in one phase repeats the n-th in another.

    repeated(expected, [12, 17])       # 1: op 17 computes what op 12 computes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from flint.graph.graph import WorkloadGraph
from flint.graph.joins import renamed
from flint.validation.expected.ops import Expected


def repeated(expected: Expected, positions: Iterable[int]) -> int:
    """How many of these ops compute the same as an earlier one.

    Args:
        expected: a rank's ops.
        positions: ops with the same key.
    """
    known: dict[tuple[int, int], Hashable] = {}
    seen: set[Hashable] = set()
    in_phase: Counter[Hashable] = Counter()
    count = 0
    for i in positions:
        number, node = int(expected.graph[i]), int(expected.node[i])
        graph = expected.graphs[number]
        if (number, node) not in known:
            known[number, node] = _identity(graph, node)
        here: Hashable = number, int(expected.instance[i]), known[number, node]
        if _ambiguous(graph, node):
            source = graph[node].source
            here = here, source.file, source.line
            phase = here, source.phase
            here = here, in_phase[phase]
            in_phase[phase] += 1
        count += here in seen
        seen.add(here)
    return count


def _identity(graph: WorkloadGraph, node: int) -> Hashable:
    """What a node computes: its op, the values that it reads and the types of its results."""
    view = graph[node]
    values = tuple((origin(graph, v), graph.type_of(v)) for v in view.operands)
    return view.op, values, view.result_types


def _ambiguous(graph: WorkloadGraph, node: int) -> bool:
    """Whether shapes leave open which dims of its operands an op sums over."""
    if "conv" in graph.tables.ops[int(graph.op[node])]:
        return True
    shapes = [[dim for dim in kind.shape if dim > 1] for kind in graph[node].operand_types]
    return any(len(set(shape)) < len(shape) for shape in shapes)


def origin(graph: WorkloadGraph, value: int) -> int:
    """The value that this one only renames, looking through reshapes, copies and barriers."""
    while (before := renamed(graph, value)) is not None:
        value = before
    return value
