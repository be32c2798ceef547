"""Periods: where the nodes of an unrolled program repeat.

The idea: a recorded or unrolled step repeats a microbatch, a layer or an accumulated batch many
times, node for node. Nodes ``x`` and ``x + n`` are alike if all their properties (kind, op, source,
work, bytes, what is exchanged with which ranks) are the same, and if their operands also come from
nodes that are n apart, or from outside the repeated part. Lags n are found by autocorrelation, and
then compared column by column.

    warm-up    F0 F1      F2 B0  F3 B1  F4 B2  F5 B3      B4 B5    cool-down
                          [period ][     ][     ]
    [part] = periods(graph)
    part.nodes, part.count          # nodes of F and B together, 4
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.communication import Communication
from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, Ints, NodeKind, WorkloadGraph
from flint.mesh.ragged import row_of_entry

#: The fewest periods of a part.
_LEAST: Final = 4
#: The most lags that are tried for one part.
_LAGS: Final = 24
#: How much more than a shorter period a longer one must cover.
_MORE: Final = 1.1
_SEED: Final = 20_250_101
#: Ops whose parameters say which part is taken, or which value: each microbatch has its own.
_OF_ONE: Final = ("slice", "constant")


@dataclass(frozen=True, slots=True)
class Periods:
    """A part of a graph that repeats.

    Attributes:
        start: its first node.
        nodes: number of nodes of one period.
        count: number of periods.
    """

    start: int
    nodes: int
    count: int

    @property
    def end(self) -> int:
        """The first node after it."""
        return self.start + self.nodes * self.count


def periods(graph: WorkloadGraph, least: int = _LEAST) -> list[Periods]:
    """The parts of a graph that repeat, in order.

    Args:
        graph: a program; the bodies of its loops are not looked into.
        least: fewest periods of a part.
    """
    found: list[Periods] = []
    graph = replace(graph, op=_ops(graph)[graph.op])
    details = _details(graph)
    numbers = _numbers(graph, details)
    left = [(0, len(graph))]
    while left:
        low, high = left.pop()
        part = _longest(graph, numbers, details, low, high, least)
        if part is not None:
            found.append(part)
            left += [(low, part.start), (part.end, high)]
    return sorted(found, key=lambda part: part.start)


def communication_numbers(communications: tuple[Communication, ...]) -> Ints:
    """A number per communication, equal for those that exchange the same among the same ranks."""
    among: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}
    keys: dict[Hashable, int] = {}
    numbers = np.zeros(len(communications), np.int64)
    for index, item in enumerate(communications):
        ranks = item.groups if item.groups is not None else item.permutation
        # Tables over many ranks are compared once per object.
        if id(ranks) not in by_object:
            by_object[id(ranks)] = among.setdefault(ranks, len(among))
        # The channel matters only between send and recv (see flint.execution.tags).
        channel = item.channel if item.kind in ("send", "recv") else 0
        key = (
            by_object[id(ranks)], channel, item.kind, item.reduction, item.operand_bytes,
            item.result_bytes, item.dtypes, item.communicator, item.process_group, item.origin,
            item.exact, item.largest_bytes,
        )  # fmt: skip
        numbers[index] = keys.setdefault(key, len(keys))
    return numbers


def _ops(graph: WorkloadGraph) -> Ints:
    """A number per entry of the table of ops, equal for those that do the same work."""
    known: dict[Hashable, int] = {}
    numbers = [
        known.setdefault((name, hero, () if name in _OF_ONE else form), len(known))
        for name, hero, form in graph.tables.entries()
    ]
    return np.array(numbers or [0], np.int64)


def _details(graph: WorkloadGraph) -> Ints:
    """What each node exchanges, as a number, shape [nodes].

    Loops and conditionals are never equal to another node.
    """
    own = np.arange(len(graph), dtype=np.int64)
    talks = graph.kind == NodeKind.COMMUNICATION
    detail = np.where(graph.kind == NodeKind.COMPUTE, -1, -2 - own)
    if talks.any():
        table = communication_numbers(graph.tables.communications)
        detail[talks] = table[graph.detail[talks]]
    return detail


def _numbers(graph: WorkloadGraph, details: Ints) -> Ints:
    """A number per node, equal for nodes that differ only in their operands, shape [nodes].

    The numbers are hashes, so different nodes may share one; ``_alike`` compares their columns.
    """
    columns = [details, *(getattr(graph, name) for name in NODE_COLUMNS if name != "detail")]
    columns += [np.diff(graph.operand_ptr), np.diff(graph.order_ptr)]
    columns.append(_hashed(graph.result_ptr, [graph.result_type]))
    columns.append(_hashed(graph.work_ptr, [getattr(graph, name) for name in WORK_COLUMNS]))
    whole = np.zeros(len(graph), np.uint64)
    for number, column in enumerate(columns):
        whole = _mixed(whole + column.astype(np.int64).view(np.uint64) + np.uint64(number))
    return np.unique(whole, return_inverse=True)[1].astype(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Values with their bits spread over all 64 (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hashed(ptr: Ints, columns: list[NDArray[np.integer]]) -> Ints:
    """A hash of each row of a ragged table: its length, its entries and their order."""
    place = (np.arange(int(ptr[-1]), dtype=np.int64) - ptr[row_of_entry(ptr)]).view(np.uint64)
    entry = _mixed(place + np.uint64(1))
    for column in columns:
        entry = _mixed(entry * np.uint64(3) + column.astype(np.int64).view(np.uint64))
    total = np.zeros(len(entry) + 1, np.uint64)
    np.cumsum(entry, out=total[1:])  # modulo 2**64, and so are differences
    rows = total[ptr[1:]] - total[ptr[:-1]]
    return (_mixed(rows) + np.diff(ptr).view(np.uint64)).view(np.int64)


def _longest(
    graph: WorkloadGraph, numbers: Ints, details: Ints, low: int, high: int, least: int
) -> Periods | None:
    """The part of ``low .. high`` that repeats over most nodes."""
    best: Periods | None = None
    for lag in _lags(numbers[low:high], least):
        equal = np.zeros(high - low, np.bool_)
        equal[: high - low - lag] = numbers[low : high - lag] == numbers[low + lag : high]
        start, end = _run(equal)
        if end - start < (least - 1) * lag:
            continue
        start, end = _run(_alike(graph, details, low + start, low + end, lag)) + (low + start)
        part = Periods(int(start), lag, 1 + int(end - start) // lag)
        if part.count < least:
            continue
        covered = part.nodes * (part.count - 1)
        if best is None or covered > _MORE * best.nodes * (best.count - 1):
            best = part
    return best


def _lags(numbers: Ints, least: int) -> list[int]:
    """Lags at which most nodes are equal to those that far after them, in ascending order.

    The autocorrelation of random phases, one per number: unequal numbers cancel out.
    """
    size = len(numbers)
    most = size // least
    if most < 1:
        return []
    random = np.random.default_rng(_SEED)
    phases = np.exp(2j * np.pi * random.random(int(numbers.max()) + 1))
    spectrum = np.fft.fft(phases[numbers], 1 << (2 * size - 1).bit_length())
    equal = np.fft.ifft(np.abs(spectrum) ** 2).real[1 : most + 1]
    lags = np.argsort(-equal, kind="stable")[:_LAGS] + 1
    return sorted(lags.tolist())


def _run(holds: NDArray[np.bool_]) -> Ints:
    """Start and end of the longest run."""
    edges = np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins):
        return np.zeros(2, np.int64)
    longest = int(np.argmax(ends - begins))
    return np.array([begins[longest], ends[longest]], np.int64)


def _alike(
    graph: WorkloadGraph, details: Ints, start: int, end: int, lag: int
) -> NDArray[np.bool_]:
    """Which nodes of ``start .. end`` have the same columns, results, work and edges as the nodes
    ``lag`` after them, shape [end - start].

    Operands and dependencies are the same if they, too, are ``lag`` apart, or if both are before
    ``start``: those have ended by then in any case.
    """
    nodes = np.arange(start, end, dtype=np.int64)
    alike: NDArray[np.bool_] = details[nodes] == details[nodes + lag]
    for name in NODE_COLUMNS:
        if name != "detail":
            column = getattr(graph, name)
            alike &= column[nodes] == column[nodes + lag]
    value = graph.operand.astype(np.int64)
    made = graph.producer[value]
    inside = np.maximum(made, 0)
    which = np.where(made < 0, 0, value - graph.inputs - graph.result_ptr[inside])
    ragged: list[tuple[Ints, list[NDArray[np.integer]], list[NDArray[np.integer]]]] = [
        (graph.result_ptr, [graph.result_type], []),
        (graph.work_ptr, [getattr(graph, name) for name in WORK_COLUMNS], []),
        (graph.operand_ptr, [which], [made]),
        (graph.order_ptr, [graph.order_kind], [graph.order_node]),
    ]
    for ptr, same, moved in ragged:
        counts = ptr[nodes + 1] - ptr[nodes]
        alike &= counts == ptr[nodes + lag + 1] - ptr[nodes + lag]
        some = alike & (counts > 0)
        row = np.repeat(np.flatnonzero(some), counts[some])
        first = np.concatenate([[0], np.cumsum(counts[some])[:-1]]) if some.any() else counts[:0]
        entry = np.arange(len(row)) - np.repeat(first, counts[some]) + ptr[nodes[row]]
        other = entry + ptr[nodes[row] + lag] - ptr[nodes[row]]
        differs = np.zeros(len(row), np.bool_)
        outside = np.zeros(len(row), np.bool_)
        for column in moved:
            here, there = column[entry], column[other]
            outside = (here < start) & (there < start)
            differs |= ~outside & (there != here + lag)
        for column in same:
            differs |= ~outside & (column[entry] != column[other])
        alike[row[differs]] = False
    return alike
