"""Emission: the ET nodes of the ranks that share a structure, as columns.

The idea: every instance of the unrolled program becomes the nodes of its form, numbered in issue
order. An edge between instances becomes edges between the nodes that its kind connects; if an
instance has no node for an edge, the waiting instance inherits what that instance waits for. In
addition, all COLL and SEND nodes of a rank, or of each communicator, are chained, because
communication has an order that node ids alone do not keep.

    program:   dot -> all_reduce -> permute -> add        (one-rank groups: the all_reduce is gone)
    emitted:   COMP -> SEND,  RECV -> COMP
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.execution.forms import INHERIT, NO_NODES, NOTHING, Form, RankForm, single
from flint.execution.node_types import NodeType
from flint.graph.communication import Communication
from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind, Ints, NodeKind
from flint.graph.joins import joins
from flint.graph.transfers import has_transfers, transfers
from flint.graph.unrolling import ABSENT, CHAINED, UNCHAINED, Unrolled
from flint.graph.work import Role
from flint.mesh.ragged import pointer, segments

_CHAINED = (NodeType.COLL, NodeType.SEND)

_CONSTANT = "a constant, in memory from the start"
_NEEDLESS = "a barrier whose users wait for its dependencies"


@dataclass(frozen=True, eq=False, slots=True)
class Emission:
    """ET nodes in order of id; a node's id is its position + 1.

    Attributes:
        instance: the unrolled instance that a node comes from, shape [nodes].
        part: its number among the nodes of its instance's form, shape [nodes].
        type: ``NodeType``, shape [nodes].
        ptr, deps: CSR over the positions of the nodes that come first, ascending.
        removed: reason why instances have no node -> their number.
    """

    instance: Ints
    part: Ints
    type: NDArray[np.int8]
    ptr: Ints
    deps: Ints
    removed: dict[str, int]

    def __len__(self) -> int:
        return len(self.instance)


def presence_of(parts: Sequence[RankForm]) -> NDArray[np.int8]:
    """What ``unroll`` needs to know about each communication."""
    codes = []
    for part in parts:
        nodes = set(part.form.nodes) - {NodeType.COMP}
        chained = bool(nodes.intersection(_CHAINED))
        codes.append(CHAINED if chained else UNCHAINED if nodes else ABSENT)
    return np.array(codes, np.int8)


def emit(
    unrolled: Unrolled,
    communications: Sequence[Communication],
    parts: Sequence[RankForm],
    chains: Ints | None = None,
) -> Emission:
    """The ET nodes of the ranks with these parts.

    Args:
        unrolled: the program, unrolled with ``presence_of(parts)`` and the same chains.
        communications: the program's table.
        parts: what the ranks do in each communication.
        chains: the chain of each communication (see ``flint.execution.chains``).
    """
    forms, of_communication = _distinct(parts)
    is_communication = unrolled.kind == NodeKind.COMMUNICATION
    constant = _constants(unrolled)
    forms.append(NO_NODES)
    form = np.where(constant, len(forms) - 1, 0)
    form[is_communication] = of_communication[unrolled.detail[is_communication]]
    needless = _needless_joins(unrolled, constant)
    form[needless] = len(forms) - 1
    table = _FormTable(forms)
    count = table.count[form]
    first = np.cumsum(count) - count
    instance = np.repeat(np.arange(len(unrolled), dtype=np.int64), count)
    part = np.arange(len(instance), dtype=np.int64) - first[instance]
    kinds = _with_transfers(table.types[form[instance], part], unrolled, instance)
    own = _OwnExchange(unrolled, communications)
    consumers, producers = _edges(unrolled, form, table, first, own)
    links = [
        _chain(instance, chained, first, own)
        for chained in _by_chain(kinds, unrolled.detail[instance], chains)
    ]
    relays = first[table.relays[form]]
    consumer = np.concatenate([consumers, relays + 1, *(link[0] for link in links)])
    producer = np.concatenate([producers, relays, *(link[1] for link in links)])
    ptr, deps = _csr(consumer, producer, len(instance))
    reasons = Counter(
        parts[index].removed for index in unrolled.detail[is_communication & (count == 0)].tolist()
    )
    for chosen, reason in ((constant, _CONSTANT), (needless, _NEEDLESS)):
        if chosen.any():
            reasons[reason] = int(chosen.sum())
    return Emission(instance, part, kinds, ptr, deps, dict(reasons))


def _with_transfers(
    kinds: NDArray[np.int8], unrolled: Unrolled, instance: Ints
) -> NDArray[np.int8]:
    """The types of nodes, with copies to the host's memory as stores and those back as loads."""
    if not any(map(has_transfers, unrolled.graphs)):
        return kinds
    way = np.concatenate([transfers(graph) for graph in unrolled.graphs])
    found = way[unrolled.template[instance]]
    kinds = np.where(found < 0, NodeType.MEM_STORE, kinds)
    return np.where(found > 0, NodeType.MEM_LOAD, kinds).astype(np.int8)


def _constants(unrolled: Unrolled) -> NDArray[np.bool_]:
    """Instances that are not executed: constants that a loop or a communication uses."""
    moved = unrolled.column("bytes_read") + unrolled.column("bytes_written")
    moved = moved[unrolled.template]
    generated = unrolled.column("role")[unrolled.template] == Role.GENERATE
    constant: NDArray[np.bool_] = (unrolled.kind == NodeKind.COMPUTE) & generated & (moved == 0)
    return constant


def _needless_joins(unrolled: Unrolled, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Joins that can be removed without adding edges: their users wait for what the join waits for.

    A join of n values with m users replaces n x m edges by n + m; a barrier after one value, or
    before one kernel, saves none.

    Args:
        unrolled: the program.
        gone: instances without a node, shape [instances].
    """
    is_join = np.concatenate([joins(graph) for graph in unrolled.graphs])[unrolled.template]
    places = np.flatnonzero(is_join).tolist()
    users = np.bincount(unrolled.deps, minlength=len(unrolled))
    stands_for: dict[int, int] = {}
    for place in places:
        before = unrolled.deps[unrolled.ptr[place] : unrolled.ptr[place + 1]]
        # In issue order, so that replacements of earlier joins are known.
        waits = sum(stands_for.get(other, 1) for other in before[~gone[before]].tolist())
        if waits * int(users[place]) <= waits + int(users[place]):
            stands_for[place] = waits
    needless = np.zeros(len(unrolled), np.bool_)
    needless[list(stands_for)] = True
    return needless


class _FormTable:
    """Forms as columns, indexed by form number and ``EdgeKind``."""

    def __init__(self, forms: Sequence[Form]) -> None:
        longest = max(len(form.nodes) for form in forms)
        self.count = np.array([len(form.nodes) for form in forms], np.int64)
        self.types = np.zeros((len(forms), max(longest, 1)), np.int8)
        for row, form in enumerate(forms):
            self.types[row, : len(form.nodes)] = form.nodes
        self.relays = np.array([form.relays for form in forms], np.bool_)
        # Shape [2, forms, edge kinds]: up to two nodes wait, up to two are waited for.
        self.into = np.full((2, len(forms), len(EdgeKind)), NOTHING, np.int64)
        self.out = np.full((2, len(forms), len(EdgeKind)), NOTHING, np.int64)
        for row, form in enumerate(forms):
            self.into[0, row, EdgeKind.DATA] = form.data_in
            self.out[0, row, EdgeKind.DATA] = form.data_out
            self.out[0, row, EdgeKind.ORDER] = form.order_out
            self.out[:, row, EdgeKind.STREAM] = form.stream_out
            for kind in (EdgeKind.ORDER, EdgeKind.STREAM):
                self.into[:, row, kind] = form.order_in


class _OwnExchange:
    """Distinguishes a send op from the receive op of the same exchange.

    A rank that sends and receives around a ring must not hold back its receive until its send has
    ended: its neighbour does the same, and neither would begin.

    Attributes:
        sends, receives: number of the exchange of each instance of that kind, -1 elsewhere.
    """

    def __init__(self, unrolled: Unrolled, communications: Sequence[Communication]) -> None:
        keys: dict[object, int] = {}
        sends = np.full(len(communications) + 1, -1, np.int64)
        receives = sends.copy()
        for index, item in enumerate(communications):
            if item.kind in ("send", "recv"):
                number = keys.setdefault(item.channel or item.permutation, len(keys))
                (sends if item.kind == "send" else receives)[index] = number
        self.any = bool(keys)
        # Compute instances have detail -1: the extra last entry.
        self.sends, self.receives = sends[unrolled.detail], receives[unrolled.detail]

    def joins(self, consumer: Ints, producer: Ints) -> NDArray[np.bool_]:
        """Which edges go from the send to the receive of one exchange."""
        number = self.receives[consumer]
        joined: NDArray[np.bool_] = (number >= 0) & (number == self.sends[producer])
        return joined


def _distinct(parts: Sequence[RankForm]) -> tuple[list[Form], Ints]:
    """Distinct forms, the plain COMP first, and the form of each communication."""
    numbers: dict[Form, int] = {single(NodeType.COMP): 0}
    of_communication = [numbers.setdefault(part.form, len(numbers)) for part in parts]
    return list(numbers), np.array(of_communication, np.int64)


def _edges(
    unrolled: Unrolled, form: Ints, table: _FormTable, first: Ints, own: _OwnExchange
) -> tuple[Ints, Ints]:
    """Edges between nodes that come from edges between instances."""
    waiting, kind_in = unrolled.consumer, unrolled.dep_kind.astype(np.int64)
    awaited, kind_out = unrolled.deps, kind_in
    consumers, producers = [], []
    while True:
        inherits = table.out[0, form[awaited], kind_out] == INHERIT
        if own.any:
            inherits |= own.joins(waiting, awaited)
        stay = ~inherits
        for source in range(2):
            out = table.out[source, form[awaited[stay]], kind_out[stay]]
            for target in range(2):
                into = table.into[target, form[waiting[stay]], kind_in[stay]]
                real = (out >= 0) & (into >= 0)
                consumers.append(first[waiting[stay][real]] + into[real])
                producers.append(first[awaited[stay][real]] + out[real])
        if not inherits.any():
            return np.concatenate(consumers), np.concatenate(producers)
        waiting, kind_in, awaited, kind_out = _inherited(
            unrolled, waiting[inherits], kind_in[inherits], awaited[inherits]
        )


def _inherited(
    unrolled: Unrolled, waiting: Ints, kind_in: Ints, gone: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Each edge to a ``gone`` instance, replaced by edges to what that instance waits for."""
    low, count = unrolled.ptr[gone], unrolled.ptr[gone + 1] - unrolled.ptr[gone]
    entry = segments(low, count)
    kinds = len(EdgeKind)
    pair = np.repeat(waiting * kinds + kind_in, count)
    target = unrolled.deps[entry] * kinds + unrolled.dep_kind[entry]
    span = len(unrolled) * kinds + 1
    pair, target = np.divmod(distinct(pair * span + target), span)
    return pair // kinds, pair % kinds, target // kinds, target % kinds


def _by_chain(
    kinds: NDArray[np.int8], detail: Ints, chains: Ints | None
) -> Iterator[NDArray[np.int8]]:
    """The types of the nodes of each chain; nodes of other chains get the type of compute nodes."""
    if chains is None:
        yield kinds
        return
    mine = np.append(chains, -1)[detail]  # compute nodes have the detail -1
    for number in range(int(chains.max(initial=-1)) + 1):
        yield np.where(mine == number, kinds, NodeType.COMP).astype(kinds.dtype)


def _chain(
    instance: Ints, kinds: NDArray[np.int8], first: Ints, own: _OwnExchange
) -> tuple[Ints, Ints]:
    """The communication order: each COLL and SEND waits for the previous one.

    A RECV waits for what the SEND of the same exchange would wait for, never for that SEND.
    """
    links = np.flatnonzero(np.isin(kinds, _CHAINED))
    receives = np.flatnonzero(kinds == NodeType.RECV)
    before = np.searchsorted(links, first[instance[receives]]) - 1
    if own.any and len(links):
        while True:
            candidate = instance[links[np.maximum(before, 0)]]
            skip = (before >= 0) & own.joins(instance[receives], candidate)
            if not skip.any():
                break
            before = before - skip
    held = before >= 0
    consumer = np.concatenate([links[1:], receives[held]])
    return consumer, np.concatenate([links[:-1], links[before[held]]])


def _csr(consumer: Ints, producer: Ints, count: int) -> tuple[Ints, Ints]:
    key = distinct(consumer * max(count, 1) + producer)
    consumer, producer = np.divmod(key, max(count, 1))
    return pointer(np.bincount(consumer, minlength=count)), producer
