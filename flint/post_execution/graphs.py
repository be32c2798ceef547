"""One rank's units -> its workload graph.

The idea: a unit is a node and its measured time a work item; what it computes (sizes of products,
bytes of its operands) stands beside it where the trace has shapes, so that it can be compared and
modelled.  Edges by data need values: they are there where an execution trace tells of tensors.

    graph = graph_of(units, edges, communications, flows=None, phases=phases)
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.building import GraphBuilder, TableBuilder
from flint.communication import Communication
from flint.cost.op_work import gemm_flops
from flint.graph import NodeKind, Phase, Source, WorkloadGraph
from flint.post_execution.edges import Edges
from flint.post_execution.links import Links
from flint.post_execution.units import Units, around
from flint.post_execution.waits import OPTIMIZER
from flint.tensor_types import DTYPE_BITS, TensorType
from flint.validation.observed import Observed, OpFacts
from flint.work import Role, Unit, Work, WorkItem

Ints = NDArray[np.int64]

_BACKWARD = "autograd::engine::evaluate_function"
#: What a kernel's name begins with that says nothing of it, and where its parameters begin.
_RETURNS = re.compile(r"^(void|int|bool) ")
_PARAMETERS = re.compile(r"[<(]")
_LONGEST = 60
#: Beyond this no size is believed: sums stay within 64 bits.
_LARGEST = 1 << 50


@dataclass(frozen=True, eq=False)
class Flows:
    """Data between units.

    Attributes:
        inputs: types of what is read before anything of it was written.
        operands: per unit the values that it reads: a unit, for what that unit wrote; or
            ``-1 - i`` for input ``i``.
        results: per unit the type of what it writes, None of those that write nothing known.
        read, written, aliased: bytes per unit.
    """

    inputs: tuple[TensorType, ...]
    operands: list[list[int]]
    results: list[TensorType | None]
    read: Ints
    written: Ints
    aliased: Ints


def graph_of(
    units: Units,
    edges: Edges,
    communications: Mapping[int, Communication],
    flows: Flows | None,
    phases: Ints,
) -> WorkloadGraph:
    """The graph of a rank.

    Args:
        units: its units, in order of issue.
        edges: dependencies without data.
        communications: unit -> what it exchanges.
        flows: data between units, where it is known.
        phases: ``Phase`` of each unit, shape [units].
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    for given in flows.inputs if flows is not None else ():
        builder.input(tables.type(given))
    sources = [tables.source(Source(phase=Phase(phase))) for phase in range(len(Phase))]
    ops = _labels(units)
    principal = _principal(units)
    order: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for before, after, why in zip(
        edges.before.tolist(), edges.after.tolist(), edges.kind.tolist(), strict=True
    ):
        order[after].append((before, why))
    known: dict[int, tuple[tuple[WorkItem, ...], int]] = {}
    value: list[int] = []
    duration, fact_of = units.duration.tolist(), units.fact.tolist()
    for unit in range(len(units)):
        items: tuple[WorkItem, ...] = ()
        read = written = aliased = 0
        if principal[unit]:
            fact = fact_of[unit]
            if fact not in known:
                known[fact] = _work_of(units.facts[fact])
            items, read = known[fact]
        operands: list[int] = []
        types: list[int] = []
        if flows is not None:
            operands = [source if source < 0 else value[source] for source in flows.operands[unit]]
            result = flows.results[unit]
            types = [] if result is None else [tables.type(result)]
            read, written = int(flows.read[unit]), int(flows.written[unit])
            aliased = int(flows.aliased[unit])
        if duration[unit] >= 0:
            items = (*items, WorkItem(Unit.MEASURED, "index", duration[unit]))
        item = communications.get(unit)
        detail, kind, role = -1, NodeKind.COMPUTE, Role.OPAQUE
        op = ops[unit]
        if item is not None:
            detail, kind, role = len(tables.communications), NodeKind.COMMUNICATION, Role.COLLECTIVE
            tables.communications.append(item)
            op = item.kind
        made = builder.node(
            kind,
            tables.op(op),
            operands,
            types,
            role=role,
            work=Work(items, read, written, aliased),
            detail=detail,
            source=sources[int(phases[unit])],
            order=order.get(unit, ()),
        )
        value.append(made.start)
    return builder.finish(())


def phases_of(units: Units, trace: Observed, links: Links | None) -> Ints:
    """The phase of each unit, by the ops and annotations around it, shape [units]."""
    backward = np.array([fact.name.startswith(_BACKWARD) for fact in trace.facts], bool)
    inside = around(trace.parent, backward[trace.op]) >= 0
    found = np.full(len(units), int(Phase.UNKNOWN), np.int64)
    if inside.any():
        found[:] = int(Phase.FORWARD)
        known = units.row >= 0
        found[known & inside[np.maximum(units.row, 0)]] = int(Phase.BACKWARD)
    for span in links.spans if links is not None else ():
        if span.name.startswith(OPTIMIZER):
            within = (units.issued >= span.start) & (units.issued < span.end)
            found[within & (found != int(Phase.BACKWARD))] = int(Phase.OPTIMIZER)
    return found


def _labels(units: Units) -> list[str]:
    """What each node is called: its op, and on a device its kernel."""
    if not units.device:
        return [units.names[name] for name in units.name.tolist()]
    short = [_short(name) for name in units.names]
    known: dict[tuple[int, int], str] = {}
    found = []
    for name, fact in zip(units.name.tolist(), units.fact.tolist(), strict=True):
        label = known.get((name, fact))
        if label is None:
            op = units.facts[fact].name
            label = known[name, fact] = f"{op}: {short[name]}" if op else short[name]
        found.append(label)
    return found


def _short(name: str) -> str:
    """``void at::native::f<float>(int)`` as ``f``."""
    plain = _RETURNS.sub("", name).replace("(anonymous namespace)::", "")
    head = _PARAMETERS.split(plain, maxsplit=1)[0].strip()
    return (head.rsplit("::", 1)[-1] or plain or "kernel")[:_LONGEST]


def _principal(units: Units) -> list[bool]:
    """Of the units of each op the longest one: it stands for what the op computes."""
    chosen = np.zeros(len(units), bool)
    known = np.flatnonzero(units.row >= 0)
    order = known[np.lexsort((units.duration[known], units.row[known]))]
    row = units.row[order]
    chosen[order[np.append(row[1:] != row[:-1], True)[: len(order)]]] = True
    found: list[bool] = chosen.tolist()
    return found


def _work_of(fact: OpFacts) -> tuple[tuple[WorkItem, ...], int]:
    """FLOPs of an op's products and bytes of its operands, as far as the trace tells."""
    items = tuple(
        WorkItem(Unit.MATMUL, fact.dtype if fact.dtype in DTYPE_BITS else "f32", gemm_flops(g), g)
        for g in fact.gemms or ()
        if gemm_flops(g) < _LARGEST
    )
    read = sum(
        math.prod(shape) * DTYPE_BITS[dtype] // 8
        for shape, dtype in fact.operands or ()
        if dtype in DTYPE_BITS
    )
    return items, read if read < _LARGEST else 0
