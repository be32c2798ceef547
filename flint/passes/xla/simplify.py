"""What XLA's compiler removes from a program before it fuses: what is computed twice, conversions
to a narrower type and back, factors that can be multiplied earlier.

The idea: a program lowered from JAX writes some ops several times, such as the deviation from a
mean and its square, and some whose results nothing reads (``HloDCE``). Ops of the same name on the
same operands are one op (``HloCSE``); a value that is converted twice is converted once, and not at
all if that gives its own type (``SimplifyFPConversions``).  Ops whose parameters are not in the
graph stay as they are, and so do values that loops carry: each begins in a buffer of its own.

    convert bf16 (f32 x) -> convert f32          x
    convert f8 (f32 x) -> convert bf16           convert bf16 (f32 x)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.dead_invariants import unread
from flint.passes.order_edges import without_nodes
from flint.passes.rematerialize import transparent_nodes
from flint.passes.xla.reductions import of_nothing

#: Ops on elements whose parameters are not in the graph.
_PARAMETERS: Final = frozenset({"reduce_precision", "map", "reduce"})
#: Ops whose parameters are in the graph.
_KEPT: Final = frozenset(
    {
        "compare",
        "transpose",
        "concatenate",
        "reverse",
        "slice",
        "gather",
        "scatter",
        "constant",
        "iota",
    }
)
_FLOATS: Final = ("f", "bf")
_BOOLEAN: Final = "i1"
#: What ops do that have no effect but their results.
_PURE: Final = (
    Role.ALIAS, Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.CONTRACTION,
    Role.UPDATE,
)  # fmt: skip


def simplified(graph: WorkloadGraph) -> WorkloadGraph:
    """One block without what XLA removes; nodes without readers go with it."""
    return _same(_rescaled(_same(without_unread(graph))))


def equal_values(graph: WorkloadGraph) -> Ints:
    """The first value that is computed alike, shape [values]."""
    return _stands(graph)[0]


def without_unread(graph: WorkloadGraph) -> WorkloadGraph:
    """One block without what nothing reads, and what only that reads (``HloDCE``)."""
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    pure = np.isin(graph.role, _PURE)[graph.producer]
    return without_nodes(graph, unread(graph, np.flatnonzero((uses == 0) & pure)))


def _same(graph: WorkloadGraph) -> WorkloadGraph:
    """Without ops that are there twice, and conversions that change nothing."""
    stand, sources = _stands(graph)
    operand = stand[graph.operand]
    operand[graph.operand_ptr[list(sources)]] = list(sources.values())
    gone = np.flatnonzero(stand != np.arange(graph.values))
    if not len(gone) and not sources:
        return graph
    left = np.union1d(gone, np.setdiff1d(graph.operand, operand))
    changed = replace(graph, operand=operand, outputs=stand[graph.outputs])
    return without_nodes(changed, unread(changed, left))


def _rescaled(graph: WorkloadGraph) -> WorkloadGraph:
    """Products by a constant and then by a broadcast value: the constant is multiplied into that;
    sums of what is negated; and products by a condition, which select.

    multiply (multiply x, broadcast c), broadcast s        multiply x, broadcast (c s)
    """
    types, producer = graph.value_type.tolist(), graph.producer.tolist()
    elements = [kind.elements for kind in graph.tables.types]
    role = graph.role.tolist()
    multiplies = np.array([name == "multiply" for name in graph.tables.ops], dtype=bool)[graph.op]
    spread = [-1] * graph.values  # what a value is a broadcast of
    for node in np.flatnonzero(transparent_nodes(graph) & (graph.role == Role.MOVEMENT)).tolist():
        value = int(graph.operand[graph.operand_ptr[node]])
        made = graph.inputs + int(graph.result_ptr[node])
        spread[made] = spread[value] if spread[value] >= 0 else value
    operand = graph.operand.copy()
    for entry in np.flatnonzero(multiplies[graph.consumer]).tolist():
        maker = producer[int(operand[entry])]
        if maker >= 0 and graph.tables.ops[graph.op[maker]] == "convert":
            source = int(operand[graph.operand_ptr[maker]])
            if graph.type_of(source).dtype == _BOOLEAN:  # it selects the other factor or zero
                operand[entry] = source
    negates = np.array([name == "negate" for name in graph.tables.ops], dtype=bool)[graph.op]
    for entry in np.flatnonzero((graph.role == Role.REDUCTION)[graph.consumer]).tolist():
        maker = producer[int(operand[entry])]
        if maker >= 0 and negates[maker]:  # the sum is negated
            operand[entry] = operand[graph.operand_ptr[maker]]
    scaled: dict[int, int] = {}  # product by a constant -> the other factor
    for node in np.flatnonzero(multiplies).tolist():
        first, end = graph.operand_ptr[node : node + 2].tolist()
        made = graph.inputs + int(graph.result_ptr[node])
        if end - first != 2:
            continue
        for at, other in ((first, first + 1), (first + 1, first)):
            factor = spread[int(operand[other])]
            if factor < 0 or elements[types[factor]] == elements[types[made]]:
                continue
            operand[at] = scaled.get(int(operand[at]), operand[at])
            maker = producer[factor]
            if maker >= 0 and role[maker] == Role.GENERATE and elements[types[factor]] == 1:
                scaled[made] = int(operand[at])
            break
    changed = replace(graph, operand=operand)
    left = np.setdiff1d(graph.operand, operand)
    return without_nodes(changed, unread(changed, left)) if len(left) else changed


def _stands(graph: WorkloadGraph) -> tuple[Ints, dict[int, int]]:
    """The value that stands for each value, shape [values], and what conversions convert."""
    ops, names = graph.op.tolist(), [graph.tables.ops[op] for op in graph.op.tolist()]
    types, producer = graph.value_type.tolist(), graph.producer.tolist()
    forms = [form for *_, form in graph.tables.entries()]
    moves = np.array([name in _KEPT for name in graph.tables.ops], dtype=bool)[graph.op]
    alone = (np.diff(graph.result_ptr) == 1) & (np.diff(graph.order_ptr) == 0)
    alone[graph.order_node] = False
    alone &= graph.kind == NodeKind.COMPUTE
    same = alone & np.isin(graph.role, (Role.ELEMENTWISE, Role.ALIAS))
    nothing = of_nothing(graph) & alone
    same |= nothing
    same |= alone & transparent_nodes(graph) & (graph.role == Role.MOVEMENT)
    same |= alone & np.isin(graph.role, (Role.MOVEMENT, Role.UPDATE, Role.GENERATE)) & moves
    sums = _sums(graph) & alone
    same |= sums
    same[graph.producer[_carried(graph)]] = False
    stand = list(range(graph.values))
    known: dict[tuple[object, ...], int] = {}
    sources: dict[int, int] = {}
    operands, ptr = graph.operand.tolist(), graph.operand_ptr.tolist()
    for node in np.flatnonzero(same).tolist():
        made = graph.inputs + int(graph.result_ptr[node])
        taken = [stand[value] for value in operands[ptr[node] : ptr[node + 1]]]
        if nothing[node]:
            stand[made] = taken[0]
            continue
        if names[node] == "convert":
            source = _converted_from(graph, names, taken[0], producer, stand)
            if types[source] == types[made]:
                stand[made] = source
                continue
            if source != taken[0]:
                taken = [source]
                sources[node] = source
        kept = names[node] in _KEPT or sums[node]
        unknown = not forms[ops[node]] if kept else names[node] in _PARAMETERS or not taken
        if not unknown:
            stand[made] = known.setdefault((ops[node], *taken, types[made]), made)
    return np.array(stand, dtype=np.int64), sources


def _sums(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Reductions of floats, whose operation is told by the constant that they begin with."""
    floats = np.array([kind.dtype.startswith(_FLOATS) for kind in graph.tables.types], dtype=bool)
    named = np.array([name == "reduce" for name in graph.tables.ops], dtype=bool)[graph.op]
    found: NDArray[np.bool_] = named & (graph.role == Role.REDUCTION)
    for node in np.flatnonzero(found).tolist():
        operands = graph.operands_of(node)
        found[node] = len(operands) == 2 and bool(floats[graph.value_type[operands[0]]])
    return found


def _carried(graph: WorkloadGraph) -> Ints:
    """Made values that a loop carries, from its first iteration on."""
    values = [
        value
        for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
        for value in graph.operands_of(node)[: graph.loop_of(node).carried].tolist()
        if graph.producer[value] >= 0
    ]
    return np.array(values, dtype=np.int64)


def _converted_from(
    graph: WorkloadGraph, names: list[str], value: int, producer: list[int], stand: list[int]
) -> int:
    """What a value has been converted from, if all of these are floats."""
    while (maker := producer[value]) >= 0 and names[maker] == "convert":
        source = stand[int(graph.operand[graph.operand_ptr[maker]])]
        kinds = (graph.type_of(source).dtype, graph.type_of(value).dtype)
        if not all(kind.startswith(_FLOATS) for kind in kinds):
            break
        value = source
    return value
