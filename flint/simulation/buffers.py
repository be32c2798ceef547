"""Which buffer each value of a block uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role

#: Roles of ops that may overwrite an operand that they read.
_IN_PLACE = (Role.ALIAS, Role.ELEMENTWISE, Role.UPDATE, Role.OPAQUE)


def buffers(
    graph: WorkloadGraph,
    last: list[int],
    reused: dict[int, int],
    kept: set[int],
    size: list[int],
) -> list[int]:
    """The value whose buffer each value uses (itself if it has its own)."""
    buffer = list(range(graph.values))
    last = list(last)
    operand_ptr, result_ptr = graph.operand_ptr.tolist(), graph.result_ptr.tolist()
    operand = graph.operand.tolist()
    aliased = graph.bytes_aliased.tolist()
    alias = (graph.role == Role.ALIAS).tolist()
    elementwise = (graph.role == Role.ELEMENTWISE).tolist()
    in_place = np.isin(graph.role, _IN_PLACE).tolist()
    inside = _overwrites(graph)
    kinds = graph.kind.tolist()
    constant = constant_nodes(graph)
    fixed = {
        value
        for node in range(len(graph))
        if constant[node]
        for value in range(graph.inputs + result_ptr[node], graph.inputs + result_ptr[node + 1])
    }
    untouched = kept | fixed
    for node in range(len(graph)):
        operands = operand[operand_ptr[node] : operand_ptr[node + 1]]
        results = range(graph.inputs + result_ptr[node], graph.inputs + result_ptr[node + 1])
        if kinds[node] == NodeKind.LOOP or (alias[node] and kinds[node] == NodeKind.COMPUTE):
            beside = {buffer[o] for o in operands[len(results) :]} if not alias[node] else set()
            pairs = [
                (r, o) for r, o in zip(results, operands, strict=False) if buffer[o] not in beside
            ]
        elif aliased[node] > 0 and kinds[node] == NodeKind.COMPUTE:
            pairs = [(r, o) for r in results for o in operands if size[o] == size[r]]
        elif inside[node]:
            pairs = _in_place_pairs(results, operands, size)
        elif elementwise[node] and kinds[node] == NodeKind.COMPUTE:
            # Only the output that an input is donated to may take its buffer.
            pairs = [
                (r, o)
                for r in results
                for o in operands
                if size[o] == size[r] and buffer[o] >= graph.inputs
            ]
        else:
            pairs = []
        for result, source in pairs:
            owner = buffer[source]
            free = alias[node] or inside[node] or (last[owner] <= node and owner not in untouched)
            fits = alias[node] or size[source] == size[result]
            if buffer[result] == result and free and fits:
                buffer[result] = owner
                last[owner] = max(last[owner], last[result])
        for result in results:
            if buffer[result] != result or result not in reused:
                continue
            source = buffer[reused[result]]
            until = node if in_place[node] and kinds[node] == NodeKind.COMPUTE else node - 1
            if last[source] <= until:
                buffer[result] = source
                last[source] = last[result]
    return buffer


def constant_nodes(graph: WorkloadGraph) -> list[bool]:
    """Nodes whose results take no memory: constants that are never written."""
    constant = (graph.role == Role.GENERATE) & (graph.bytes_written == 0)
    found: list[bool] = (constant & (graph.kind == NodeKind.COMPUTE)).tolist()
    return found


def _overwrites(graph: WorkloadGraph) -> list[bool]:
    """PyTorch's in-place ops, whose names end with an underscore: the results go into the first
    operands. A copy does not read what it overwrites.
    """
    ops = (name.split(".")[:2] for name in graph.tables.ops)
    named = [
        op[0] == "aten" and op[-1].endswith("_") and not op[-1].endswith("copy_") for op in ops
    ]
    chosen = np.array([*named, False])[graph.op] & (graph.kind == NodeKind.COMPUTE)
    found: list[bool] = (chosen & (graph.role == Role.OPAQUE)).tolist()
    return found


def _in_place_pairs(
    results: Sequence[int], operands: Sequence[int], size: Sequence[int]
) -> list[tuple[int, int]]:
    """Each result of an in-place op with the operand whose buffer it takes.

    Ops on lists have the operands of one tensor after those of another, beginning with the one that
    is written; a factor that all share occurs once, after the operands of the first tensor.
    """
    if results and operands and len(operands) % len(results) == 0:
        return list(zip(results, operands[:: len(operands) // len(results)], strict=True))
    left = iter(operands)
    return [(r, next((o for o in left if size[o] == size[r]), r)) for r in results]
