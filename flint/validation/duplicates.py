"""Captured ops that compute what another one computes: compilers run such a pair once.

The idea: two ops of the same kind and sizes whose operands are the same values, looked at through
ops that only rename a buffer (reshapes, copies), give the same result.  Rematerialisation makes
such pairs; what keeps them apart until after partitioning is gone when a backend removes them.

    repeated(expected, [12, 17])       # 1: op 17 computes what op 12 computes
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from flint.graph import WorkloadGraph
from flint.validation.expected import Expected
from flint.work import Role


def repeated(expected: Expected, positions: Iterable[int]) -> int:
    """How many of these ops compute what an earlier one of them has computed.

    Args:
        expected: a rank's ops.
        positions: ops with the same key.
    """
    known: dict[int, dict[int, Hashable]] = {}
    seen: set[Hashable] = set()
    count = 0
    for i in positions:
        number, node = int(expected.graph[i]), int(expected.node[i])
        identities = known.setdefault(number, {})
        computed = _identity(expected.graphs[number], node, identities)
        here = number, int(expected.instance[i]), computed
        count += here in seen
        seen.add(here)
    return count


def _identity(graph: WorkloadGraph, node: int, known: dict[int, Hashable]) -> Hashable:
    """What a node computes: its op, the values that it reads and the types that it gives."""
    if node not in known:
        view = graph[node]
        values = tuple((origin(graph, v), graph.type_of(v)) for v in view.operands)
        known[node] = view.op, values, view.result_types
    return known[node]


def origin(graph: WorkloadGraph, value: int) -> int:
    """The value that this one only renames: the one behind reshapes and copies."""
    while True:
        producer = int(graph.producer[value])
        if producer < 0 or graph.role[producer] != Role.ALIAS:
            return value
        first, last = graph.operand_ptr[producer : producer + 2]
        if last - first != 1:
            return value
        value = int(graph.operand[first])
