"""Results of PyTorch's fused attention in the layout of its operands.

The idea: programs turn [batch, tokens, heads, size] into [batch, heads, tokens, size] before they
call attention, and back behind it. PyTorch's kernels read the first layout by its strides and make
the result like the queries, and each gradient like what it is the gradient of (``at::empty_like``),
so that turning such a result back moves nothing, and no kernel does it.

    q = transpose x;  y = attention q, k, v;  z = transpose y          # z is laid out as x: a view
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.passes.columns import with_bodies

#: How the names of these kernels begin.
_KERNELS: Final = "aten._scaled_dot_product_"
#: How many operands precede the queries, keys and values: backward, the result's gradient.
_BEFORE: Final = {False: 0, True: 1}
#: The most ops between a transpose and attention: rotations of queries and keys.
_BETWEEN: Final = 16


def without_turning_back(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` with transposes that name memory only, where they undo, behind attention, those in
    front of it; some of these are views already.
    """
    graph = with_bodies(graph, lambda body, _: without_turning_back(body))
    ops = graph.tables.ops
    attention = [name.startswith(_KERNELS) for name in ops]
    transpose = [name == "transpose" for name in ops]
    if not any(attention):
        return graph
    role = graph.role.copy()
    for node in range(len(graph)):
        maker = _maker(graph, node)
        if maker >= 0 and transpose[graph.op[node]] and attention[graph.op[maker]]:
            value = int(graph.operand[graph.operand_ptr[node]])
            was = _shape(graph, value)
            made = _shape(graph, int(graph.result_ptr[node]) + graph.inputs)
            back = (*was[:1], *was[2:3], *was[1:2], *was[3:])
            if len(was) == 4 and made == back and _turned(graph, maker, value):
                role[node] = Role.ALIAS
    return replace(graph, role=role) if (role != graph.role).any() else graph


def _turned(graph: WorkloadGraph, attention: int, result: int) -> bool:
    """Whether the operand of attention that a result is made like has been transposed."""
    backward = "_backward" in graph.tables.ops[graph.op[attention]]
    nth = result - graph.inputs - int(graph.result_ptr[attention]) + _BEFORE[backward]
    ops = graph.tables.ops
    node = int(graph.producer[graph.operands_of(attention)[nth]])
    for _ in range(_BETWEEN):
        passed = node >= 0 and graph.role[node] in (Role.ELEMENTWISE, Role.ALIAS)
        if not passed or ops[graph.op[node]] == "transpose":
            break
        node = _maker(graph, node)
    return node >= 0 and ops[graph.op[node]] == "transpose"


def _maker(graph: WorkloadGraph, node: int) -> int:
    """What makes a node's first operand, or -1."""
    first, end = graph.operand_ptr[node : node + 2]
    return int(graph.producer[graph.operand[first]]) if first < end else -1


def _shape(graph: WorkloadGraph, value: int) -> tuple[int, ...]:
    return tuple(graph.tables.types[graph.value_type[value]].shape)
