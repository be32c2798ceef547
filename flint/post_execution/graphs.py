"""One rank's units -> its workload graph.

The idea: a unit is a node and its measured time a work item; its work (sizes of products, bytes of
its operands) is added if the trace has shapes, so that it can be compared and modelled.  Data edges
need values: they exist only if an execution trace records tensors.

    graph = graph_of(units, edges, communications, flows=None, phases=phases)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.op_work import gemm_flops
from flint.graph.building import GraphBuilder, Row, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, Phase, Source, WorkloadGraph
from flint.graph.tensor_types import DTYPE_BITS, TensorType
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed, OpFacts
from flint.passes.columns import distinct as distinct_rows
from flint.post_execution.edges import Edges
from flint.post_execution.kernel_names import short_name
from flint.post_execution.links import Links
from flint.post_execution.node_work import with_nanoseconds
from flint.post_execution.source_lines import Line
from flint.post_execution.units import Units, around
from flint.post_execution.waits import OPTIMIZER

_BACKWARD = "autograd::engine::evaluate_function"
#: Meaningless prefixes of a kernel's name, and where its parameters begin.
#: Instead of a fact: a kernel other than the longest one of its op.
_COUNTED = -2
#: Larger sizes are not believed, so that sums stay within 64 bits.
_LARGEST = 1 << 50


@dataclass(frozen=True, eq=False)
class Flows:
    """Data between units.

    Attributes:
        inputs: types of values that are read before they are written.
        types: the types that ``result`` indexes.
        operand_ptr, operand: CSR: per unit the values that it reads: a unit, for what that unit
            wrote; or ``-1 - i`` for input ``i``; shapes [units + 1] and [operands].
        result: type of what a unit writes, -1 for those that write nothing known; shape [units].
        read, written, aliased: bytes per unit, shape [units].
    """

    inputs: tuple[TensorType, ...]
    types: tuple[TensorType, ...]
    operand_ptr: Ints
    operand: Ints
    result: Ints
    read: Ints
    written: Ints
    aliased: Ints


NO_SHAPES: Final = (
    "no shapes in the trace: FLOPs and bytes are unknown; profile with record_shapes=True"
)


def graph_of(
    units: Units,
    edges: Edges,
    communications: Mapping[int, Communication],
    flows: Flows | None,
    phases: Ints,
    lines: tuple[list[Line], Ints] | None = None,
) -> WorkloadGraph:
    """The graph of a rank.

    Args:
        units: its units, in order of issue.
        edges: dependencies without data.
        communications: unit -> what it exchanges.
        flows: data between units, if known.
        phases: ``Phase`` of each unit, shape [units].
        lines: places in the user's code and the place of each unit, if known.
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    exchange = np.full(len(units), -1, np.int64)
    for unit, item in communications.items():
        exchange[unit] = tables.communication(item)
    data = _with_moved(units, flows if flows is not None else _unknown_flows(units))
    for given in data.inputs:
        builder.input(tables.type(given))
    writes = data.result >= 0
    value: Ints = np.cumsum(writes) - writes
    builder.extend(
        _rows(units, exchange, data, tables),
        data.operand_ptr,
        np.where(data.operand < 0, data.operand, value[np.maximum(data.operand, 0)]),
        _sources(phases, lines, tables),
        edges,
    )
    graph = builder.finish(())
    return with_nanoseconds(graph, units.duration) if units.timed else graph


def _sources(phases: Ints, lines: tuple[list[Line], Ints] | None, tables: TableBuilder) -> Ints:
    """The source of each unit, shape [units]."""
    places, place = lines if lines is not None else ([Line()], np.zeros_like(phases))
    key = place * len(Phase) + phases
    known, number = np.unique(key, return_inverse=True)
    sources = []
    for item in known.tolist():
        at, phase = divmod(item, len(Phase))
        layer, file, line = places[at]
        sources.append(tables.source(Source(layer, file, line, Phase(phase))))
    found: Ints = np.array(sources, np.int64)[number]
    return found


def _unknown_flows(units: Units) -> Flows:
    """The data if a trace does not record storages: only bytes of operands, from their shapes."""
    facts = np.where(_principal(units), units.fact, len(units.facts))
    operands = np.array([*(_operand_bytes(fact) for fact in units.facts), 0], np.int64)
    nothing = np.zeros(len(units), np.int64)
    ptr, empty = np.zeros(len(units) + 1, np.int64), np.zeros(0, np.int64)
    return Flows((), (), ptr, empty, nothing - 1, operands[facts], nothing, nothing)


def _with_moved(units: Units, data: Flows) -> Flows:
    """The data, corrected for ops that move only parts of their operands, and for copies of no op;
    counted once per op.
    """
    parts = np.array([fact.moved is not None for fact in units.facts], bool)[units.fact]
    if not parts.any():
        return data
    moved = np.array([fact.moved or (0, 0) for fact in units.facts], np.int64)
    once = _principal(units) | (units.row < 0)
    read, written = np.where(once, moved[units.fact].T, 0)
    return replace(
        data,
        read=np.where(parts, read, data.read),
        written=np.where(parts, written, data.written),
        aliased=np.where(parts, 0, data.aliased),
    )


def work_lacking(units: Units, form: str) -> dict[str, int]:
    """What a trace does not record about the work of a rank's ops, with counts."""
    counts = np.bincount(units.fact[_principal(units)], minlength=len(units.facts)).tolist()
    found: dict[str, int] = {}
    for fact, count in zip(units.facts, counts, strict=True):
        if fact.lacks and count:
            found[fact.lacks] = found.get(fact.lacks, 0) + count
    ran = [fact for fact, count in zip(units.facts, counts, strict=True) if count]
    if (
        form == "kineto"
        and ran
        and all(fact.operands is None and fact.parts is None for fact in ran)
    ):
        found[NO_SHAPES] = 1
    return found


def _rows(units: Units, exchange: Ints, data: Flows, tables: TableBuilder) -> Ints:
    """The row of each unit in the tables: a node without its operands and its time.

    Args:
        units: units of one rank; many of them are equal.
        exchange: for each unit, index into the tables' communications; -1 for none.
        data: bytes and results.
        tables: the rows are added here.
    """
    types = [tables.type(item) for item in data.types]
    work = {fact: _work(units.facts[fact]) for fact in set(units.fact.tolist())}
    has_work = np.array([bool(work.get(fact)) for fact in range(len(units.facts))], bool)
    # All work of an op counts with the longest of its kernels.
    others = np.where(has_work[units.fact] & (units.row >= 0), _COUNTED, -1)
    principal = np.where(_principal(units), units.fact, others)
    work[_COUNTED] = (WorkItem(Unit.VECTOR, "f32", 0),)
    labels, label_of = _labels(units)
    columns = (label_of, principal, exchange, data.result, data.read, data.written, data.aliased)
    first, same = distinct_rows(*columns)
    order = np.argsort(first)  # rows are numbered as they appear
    row = np.empty(len(first), np.int64)
    for place, at in zip(order.tolist(), first[order].tolist(), strict=True):
        name, fact, number, result, read, written, aliased = (int(item[at]) for item in columns)
        label, kind, role = labels[name], NodeKind.COMPUTE, Role.OPAQUE
        if number >= 0:
            kind, role = NodeKind.COMMUNICATION, Role.COLLECTIVE
            label = tables.communications[number].kind
        made = () if result < 0 else (types[result],)
        moved = Work(work.get(fact, ()), read, written, aliased)
        described = Row(int(kind), int(role), tables.op(label), number, 1, made, moved)
        row[place] = tables.row(described)
    return row[same]


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


def _labels(units: Units) -> tuple[list[str], Ints]:
    """Names of nodes (the op, and on a device its kernel), and the name of each, shape [units]."""
    if not units.device:
        return list(units.names), units.name
    first, number = distinct_rows(units.name, units.fact)
    # Few kernels are named, by ops of many sizes.
    short = {name: short_name(units.names[name]) for name in set(units.name[first].tolist())}
    labels = []
    for at in first.tolist():
        kernel, op = short[int(units.name[at])], units.facts[units.fact[at]].name
        labels.append(f"{op}: {kernel}" if op else kernel)
    return labels, number


def _principal(units: Units) -> NDArray[np.bool_]:
    """The longest unit of each op, which gets the op's work."""
    chosen = np.zeros(len(units), bool)
    known = np.flatnonzero(units.row >= 0)
    order = known[np.lexsort((units.duration[known], units.row[known]))]
    row = units.row[order]
    chosen[order[np.append(row[1:] != row[:-1], True)[: len(order)]]] = True
    return chosen


def _work(fact: OpFacts) -> tuple[WorkItem, ...]:
    """FLOPs of an op, as far as recorded."""
    if fact.gemms is None:
        return fact.work or ()
    return tuple(
        WorkItem(Unit.MATMUL, fact.dtype if fact.dtype in DTYPE_BITS else "f32", gemm_flops(g), g)
        for g in fact.gemms or ()
        if gemm_flops(g) < _LARGEST
    )


def _operand_bytes(fact: OpFacts) -> int:
    """Bytes of an op's operands, as far as recorded."""
    read = sum(
        math.prod(shape) * DTYPE_BITS[dtype] // 8
        for shape, dtype in fact.operands or ()
        if dtype in DTYPE_BITS
    )
    return read if read < _LARGEST else 0
