"""Looking through values that a kernel makes itself: constants, iotas, broadcasts.

The idea: compilers avoid separate kernels and buffers for a constant, an iota, a partition id or a
broadcast: every kernel that reads it recomputes it in registers.  Its readers are connected to what
*it* reads instead.  That adds no work, because only ops without FLOPs qualify:

- GENERATE ops without work;
- MOVEMENT ops with one operand of at most half the result's bytes: broadcasts;

and neither may have order edges.  Communications, loops, OPAQUE kernels, graph outputs and the
buffer that an update overwrites need a real buffer: for these the op stays a node, while the other
readers still look through it.

    %c = constant;  %b = broadcast_in_dim %c;  %r = add %x, %b        add reads %x alone
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WORK_COLUMNS, Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry, total_by_row
from flint.passes.columns import gathered

#: Arrays up to this many bytes are part of a kernel's code; larger ones are read from memory.
IMMEDIATE_BYTES = 256

#: The largest scalar index, an i64.
_INDEX_BYTES = 8
#: Roles whose ops become parts of kernels; every other node is a separate one.
FUSIBLE = (
    Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.CONTRACTION, Role.UPDATE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeenThrough:
    """A graph whose readers look through transparent ops.

    Attributes:
        graph: the graph with new operands; it still contains ops that are no longer needed.
        dropped: which ops these are, shape [nodes].
        changed: nodes that look through an operand, shape [nodes].
        reader, value, accessed: node, value and bytes of each read, shape [reads]; one entry per
            operand, and one per large constant that a node now contains.
        part: reads with the same number are of the same part of a value, shape [reads].
        position: which operand of its node each is read for, shape [reads].
    """

    graph: WorkloadGraph
    dropped: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    reader: Ints
    value: Ints
    accessed: Ints
    part: Ints
    position: Ints


def look_through(graph: WorkloadGraph, again: NDArray[np.bool_] | None = None) -> SeenThrough:
    """``graph`` with the readers of transparent ops connected to what these read.

    ``ops_merged`` and work of a dropped op are added to its first reader.

    Args:
        graph: in issue order.
        again: further nodes that every reader recomputes, see ``flint.passes.xla.priority``.
    """
    again = np.zeros(len(graph), dtype=bool) if again is None else again
    transparent, able = transparent_nodes(graph) | again, can_make_itself(graph)
    maker = graph.producer[graph.operand]
    through = transparent[maker] & (maker >= 0) & able
    accessed = accessed_bytes(graph)
    if not through.any():
        none = np.zeros(len(graph), dtype=bool)
        each, at = np.arange(len(accessed)), graph.consumer
        place = each - graph.operand_ptr[at]
        return SeenThrough(graph, none, none, at, graph.operand, accessed, each, place)
    sources = _sources(graph, transparent, again, through, accessed)
    entry, value, most, read, part = _expanded(graph, through, sources, accessed)
    reader = graph.consumer[entry]
    # An expanded entry whose value is still transparent is a constant in the kernel.
    expanded = most < np.iinfo(np.int64).max
    maker = graph.producer[value]
    constant = expanded & (maker >= 0) & transparent[maker]
    dropped = _dropped(graph, transparent, through)
    seen = replace(
        _with_work_of(graph, dropped) if again.any() else graph,
        operand_ptr=pointer(np.bincount(reader[~constant], minlength=len(graph))),
        operand=value[~constant],
        ops_merged=_adopted(graph, dropped),
    )
    read[~expanded] = accessed[~through]
    changed = np.isin(np.arange(len(graph)), graph.consumer[through])
    at = entry - graph.operand_ptr[reader]
    return SeenThrough(seen, dropped, changed, reader, value, read, part, at)


def accessed_bytes(graph: WorkloadGraph) -> Ints:
    """Bytes that each operand entry reads, shape [operands].

    An op's ``bytes_read`` is charged to its operands from the last to the first, each at most its
    size: a slice, a gather or an update reads its indices and updates in full and the rest from the
    buffer, which is the first operand in StableHLO. The rules count only one of several scalar
    indices, as XLA does, so that one is charged.  A view (nothing read, nothing written, all
    aliased) passes its operand's bytes on to its readers.
    """
    sizes = graph.value_bytes[graph.operand]
    moves = np.isin(graph.role, (Role.MOVEMENT, Role.UPDATE))[graph.consumer]
    last = np.zeros(len(sizes), dtype=bool)
    last[graph.operand_ptr[1:][np.diff(graph.operand_ptr) > 0] - 1] = True
    charged = np.where(moves & (sizes <= _INDEX_BYTES) & ~last, 0, sizes)
    total = total_by_row(charged, graph.consumer, len(graph))
    running = np.cumsum(charged)
    ends = pointer(total)[1:]
    behind = ends[graph.consumer] - running
    reads = np.where(is_view(graph), graph.bytes_aliased, graph.bytes_read)
    left: Ints = reads[graph.consumer] - behind
    return np.clip(left, 0, sizes)


def is_view(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes whose result is a view of their operand's buffer, shape [nodes]."""
    moves = (graph.bytes_read > 0) | (graph.bytes_written > 0)
    own = (graph.role == Role.UPDATE) | (graph.role == Role.GENERATE)
    view: NDArray[np.bool_] = ~moves & (graph.bytes_aliased > 0) & ~own
    return view


def transparent_nodes(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that every reader recomputes, shape [nodes]."""
    transparent: NDArray[np.bool_] = (np.diff(graph.order_ptr) == 0) & made_again(graph)
    transparent[graph.order_node] = False
    return transparent


def made_again(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that cost less to rerun than their result costs to keep, shape [nodes]."""
    results = total_by_row(
        graph.value_bytes[graph.inputs :], row_of_entry(graph.result_ptr), len(graph)
    )
    operands = total_by_row(graph.value_bytes[graph.operand], graph.consumer, len(graph))
    generates = graph.role == Role.GENERATE
    broadcasts = (graph.role == Role.MOVEMENT) & (np.diff(graph.operand_ptr) == 1)
    broadcasts &= 2 * operands <= results
    simple = (graph.kind == NodeKind.COMPUTE) & (np.diff(graph.work_ptr) == 0)
    again: NDArray[np.bool_] = simple & (generates | broadcasts)
    return again


def can_make_itself(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Operand entries whose reader needs no buffer, shape [operands]."""
    fusible = (graph.kind == NodeKind.COMPUTE) & np.isin(graph.role, FUSIBLE)
    index = np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    overwritten = (graph.role == Role.UPDATE)[graph.consumer]
    overwritten &= index < np.diff(graph.result_ptr)[graph.consumer]
    able: NDArray[np.bool_] = fusible[graph.consumer] & ~overwritten
    return able


def loads(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that a contraction absorbs: conversions, movement of one tensor, shape [nodes]."""
    convert = np.array([name == "convert" for name in graph.tables.ops], dtype=bool)
    scalar = np.array([t.elements <= 1 for t in graph.tables.types] or [True], dtype=bool)
    tensors = total_by_row(
        (~scalar[graph.value_type[graph.operand]]).astype(np.int64), graph.consumer, len(graph)
    )
    found: NDArray[np.bool_] = convert[graph.op] | (graph.role == Role.MOVEMENT) & (tensors <= 1)
    return found


#: How much of a value is read: as much as the reader accesses, or a number of bytes.
_AS_ACCESSED = -1

#: A value, the operand entry that reads it, and a number for the entries that choose parts (or -1).
_Read = tuple[int, int, int]


def _sources(
    graph: WorkloadGraph,
    transparent: NDArray[np.bool_],
    again: NDArray[np.bool_],
    through: NDArray[np.bool_],
    accessed: Ints,
) -> dict[int, dict[_Read, int]]:
    """For each recomputed node, the values that its readers read instead, and how much.

    An array that is in memory is its own source.
    """
    ptr, operand = graph.operand_ptr.tolist(), graph.operand.tolist()
    producer, looks, reads = graph.producer.tolist(), through.tolist(), accessed.tolist()
    computed, moves = again.tolist(), (graph.role == Role.MOVEMENT).tolist()
    wholes = graph.value_bytes.tolist()
    sources: dict[int, dict[_Read, int]] = {}
    parts: dict[tuple[int, int], int] = {}  # (earlier choices, entry) -> number
    for node in np.flatnonzero(transparent).tolist():
        found: dict[_Read, int] = {}
        for j in range(ptr[node], ptr[node + 1]):
            inner: dict[_Read, int] = {(operand[j], j, -1): _AS_ACCESSED}
            if looks[j]:
                inner = sources[producer[operand[j]]]
            for (value, entry, part), size in inner.items():
                if computed[node] and size == _AS_ACCESSED:
                    size = min(reads[j], int(graph.value_bytes[value]))
                elif computed[node] and moves[node]:
                    share = reads[j] / max(wholes[operand[j]], 1)
                    size = math.ceil(size * min(share, 1.0))
                    part = parts.setdefault((part, j), len(parts)) if share < 1 else part
                key = value, entry, part
                found[key] = max(size, found.get(key, _AS_ACCESSED))
        if graph.role[node] == Role.GENERATE and graph.bytes_aliased[node]:
            first, last = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
            large = (v for v in range(first, last) if graph.value_bytes[v] > IMMEDIATE_BYTES)
            found |= dict.fromkeys(((v, -1, -1) for v in large), _AS_ACCESSED)
        sources[node] = found
    return sources


def _expanded(
    graph: WorkloadGraph,
    through: NDArray[np.bool_],
    sources: dict[int, dict[_Read, int]],
    accessed: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Reads with ``through`` entries replaced: entry, value, most bytes (huge: as before), read,
    part. A part of a recomputed value is made from an equally large part of its sources.
    """
    maker = graph.producer[graph.operand]
    counts = np.ones(len(graph.operand), dtype=np.int64)
    entries = np.flatnonzero(through)
    found = [sources[node] for node in maker[entries].tolist()]
    counts[entries] = [len(values) for values in found]
    entry = np.repeat(np.arange(len(counts)), counts)
    value = graph.operand[entry]
    stated = np.full(len(entry), _AS_ACCESSED, dtype=np.int64)
    seen = through[entry]
    value[seen] = [each for values in found for each, *_ in values]
    stated[seen] = [size for values in found for size in values.values()]
    most = np.full(len(entry), np.iinfo(np.int64).max, dtype=np.int64)
    most[seen] = accessed[entry[seen]]
    whole = np.maximum(graph.value_bytes[graph.operand[entry]], 1)
    share = np.minimum(accessed[entry] / whole, 1.0)
    made = np.ceil(stated * share).astype(np.int64)
    read = np.where(stated >= 0, made, np.minimum(most, graph.value_bytes[value]))
    # Several readers of what is computed from one part of a value read that part once.
    numbers: dict[_Read, int] = {}
    part = len(entry) + np.arange(len(entry))
    alike = [numbers.setdefault(key, len(numbers)) for values in found for key in values]
    part[seen] = np.where(share[seen] < 1, part[seen], alike)
    return entry, value, most, read, part


def _with_work_of(graph: WorkloadGraph, dropped: NDArray[np.bool_]) -> WorkloadGraph:
    """``graph`` with the work of dropped nodes added to their first readers.

    It is counted once, however often it is done, because arithmetic in registers costs least.
    """
    home = np.arange(len(graph))
    first = np.full(len(graph) + 1, len(graph), dtype=np.int64)
    np.minimum.at(first, graph.producer[graph.operand], graph.consumer)
    for node in np.flatnonzero(dropped)[::-1].tolist():
        home[node] = home[first[node]]
    owner = home[row_of_entry(graph.work_ptr)]
    order = np.argsort(owner, kind="stable")
    return replace(
        graph,
        work_ptr=pointer(np.bincount(owner, minlength=len(graph))),
        **gathered(graph, WORK_COLUMNS, order),
    )


def _dropped(
    graph: WorkloadGraph, transparent: NDArray[np.bool_], through: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Transparent nodes that all their readers look through, and that have readers."""
    maker = graph.producer[graph.operand]
    read, needed = np.zeros(len(graph), dtype=bool), np.zeros(len(graph), dtype=bool)
    read[maker[through]] = True
    needed[maker[~through & (maker >= 0)]] = True
    leaving = graph.producer[graph.outputs]
    needed[leaving[leaving >= 0]] = True
    return transparent & read & ~needed


def _adopted(graph: WorkloadGraph, dropped: NDArray[np.bool_]) -> Ints:
    """``ops_merged`` with that of dropped nodes added to their first readers."""
    maker = graph.producer[graph.operand]
    first = np.full(len(graph) + 1, len(graph), dtype=np.int64)
    np.minimum.at(first, maker, graph.consumer)
    merged: list[int] = graph.ops_merged.tolist()
    # In issue order: what a dropped reader adopts, it passes on.
    for node in np.flatnonzero(dropped).tolist():
        merged[int(first[node])] += merged[node]
        merged[node] = 0
    return np.array(merged, dtype=np.int64)
