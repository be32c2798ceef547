"""Rules about the set: are all files there, does every rank belong to the groups that it names.

The idea: facts that depend on the rank are computed for all ranks of a view at once
(`Facts.group_size`, peers as arrays); only ranks with point-to-point nodes are checked one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import (
    ERROR,
    NO_ROWS,
    WARNING,
    Hits,
    Round,
    one_node,
    whole_set,
)
from flint.converters.chakra.check.trace_views import Communicator, Facts, View
from flint.converters.chakra.network import Network
from flint.converters.chakra.read.framing import FramingError, MissingMetadata
from flint.converters.chakra.schema import MAX_NETWORK_DIMS, NodeType
from flint.errors import FlintError

SET_RULES: Final = Round[[Facts]]()


def _unreadable(facts: Facts, kind: type[FlintError]) -> Iterator[Hits]:
    for rank, error in facts.set.unreadable.items():
        known = MissingMetadata if isinstance(error, MissingMetadata) else FramingError
        if known is kind:
            text = str(error).removeprefix(f"{facts.set.path(rank)}: ")
            yield Hits(None, NO_ROWS, np.array([rank]), text)


@SET_RULES.rule("framing", ERROR, blocks=True)
def framing(facts: Facts) -> Iterator[Hits]:
    """Every file is varint32 lengths and Chakra messages to its last byte."""
    yield from _unreadable(facts, FramingError)


@SET_RULES.rule("missing-metadata", ERROR, blocks=True)
def missing_metadata(facts: Facts) -> Iterator[Hits]:
    """Every file starts with GlobalMetadata, or consumers swallow its first node silently."""
    yield from _unreadable(facts, MissingMetadata)


@SET_RULES.rule("missing-file", ERROR, blocks=True)
def missing_file(facts: Facts) -> Iterator[Hits]:
    """Ranks 0..N-1 all have a file; N is the product of the network's extents."""
    there = facts.set.class_of_rank() >= 0
    there[list(facts.set.unreadable)] = True
    absent = np.flatnonzero(~there)
    if len(absent):
        yield Hits(
            None,
            NO_ROWS,
            absent,
            lambda rank: (
                f"there is no trace of rank {rank} (the world has {facts.set.size} "
                "ranks): consumers stop; write the traces of all ranks or correct npus_count"
            ),
        )


@SET_RULES.rule("world-size", WARNING)
def world_size(facts: Facts) -> Iterator[Hits]:
    """There are at least two ranks: simulators of networks refuse a world of one."""
    if facts.set.size < 2:
        yield whole_set("there is one rank: ASTRA-sim refuses it, flint simulate does not")


@SET_RULES.rule("group-table", ERROR, blocks=True)
def group_table(facts: Facts) -> Iterator[Hits]:
    """Keys of the group table are integers >= 1, its members are distinct ranks of the world."""
    for key, problem in facts.set.groups.problems:
        yield whole_set(f"group {key!r} of the group table {problem}")


@SET_RULES.rule("network-dims", WARNING)
def network_dims(facts: Facts) -> Iterator[Hits]:
    """More than four network dims are simulated wrongly without explicit groups."""
    network = facts.set.network
    if network is not None and len(network.npus_count) > MAX_NETWORK_DIMS:
        yield whole_set(
            f"the network has {len(network.npus_count)} dims; consumers handle at most "
            f"{MAX_NETWORK_DIMS} without explicit groups; merge inner dims"
        )


@SET_RULES.rule("implementations", WARNING)
def implementations(facts: Facts) -> Iterator[Hits]:
    """The system file names one implementation per network dim: further dims are not simulated."""
    network = facts.set.network
    if network is None:
        return
    dims = len(network.npus_count)
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        listed = facts.set.system.get(f"{kind}-implementation")
        if isinstance(listed, list) and len(listed) < dims:
            yield whole_set(
                f"{kind}-implementation of the system file has {len(listed)} entries for {dims} "
                "network dims: the other dims are silently not simulated; name one per dim"
            )


@SET_RULES.rule("endpoint-delay", ERROR)
def endpoint_delay(facts: Facts) -> Iterator[Hits]:
    """With an endpoint delay of 0 the simulator aborts or hangs at the first collective."""
    delay = facts.set.system.get("endpoint-delay")
    if isinstance(delay, int | float) and delay < 1 and _collects(facts):
        yield whole_set(
            f"endpoint-delay of the system file is {delay}: consumers abort or hang at the first "
            "collective; write at least 1 (ns)"
        )


def _collects(facts: Facts) -> bool:
    return any(len(view.rows(NodeType.COLL)) for view in facts.views)


def _colls_by_communicator(
    facts: Facts,
) -> Iterator[tuple[View, Communicator, NDArray[np.int64]]]:
    for view in facts.views:
        communicators, of_row = view.communicators
        for index, communicator in enumerate(communicators):
            if not communicator.problem:
                yield view, communicator, np.flatnonzero(of_row == index)


@SET_RULES.rule("group-unknown", ERROR, blocks=True)
def group_unknown(facts: Facts) -> Iterator[Hits]:
    """Every pg_name is in the group table: consumers stop otherwise."""
    for view, communicator, rows in _colls_by_communicator(facts):
        if communicator.group and communicator.group not in facts.set.groups.members:
            text = (
                f"pg_name {communicator.group} is not in the group table: consumers stop; add the "
                "group or give the table with the traces"
            )
            yield Hits(view.index, rows, view.ranks, text)


@SET_RULES.rule("group-member", ERROR, blocks=True)
def group_member(facts: Facts) -> Iterator[Hits]:
    """A rank only takes part in collectives of its groups: consumers assert otherwise."""
    for view, communicator, rows in _colls_by_communicator(facts):
        members = facts.set.groups.members.get(communicator.group)
        if communicator.group and members is not None:
            strangers = np.setdiff1d(view.ranks, members)
            if len(strangers):
                text = (
                    f"its rank is not a member of group {communicator.group}: consumers assert; "
                    "correct the table or the pg_name"
                )
                yield Hits(view.index, rows, strangers, text)


@SET_RULES.rule("group-of-one", ERROR, blocks=True)
def group_of_one(facts: Facts) -> Iterator[Hits]:
    """A collective over one rank hangs: leave it out."""
    for view, communicator, rows in _colls_by_communicator(facts):
        if facts.group_size(communicator) == 1 and facts.set.size > 1:
            text = (
                "is a collective of a group of one rank, which hangs; leave it "
                "out and let its dependents depend on its dependencies"
            )
            yield Hits(view.index, rows, view.ranks, text)


@SET_RULES.rule("p2p-peer", ERROR, blocks=True)
def p2p_peer(facts: Facts) -> Iterator[Hits]:
    """Peers are other ranks of the world, and the own side, where given, is the own rank."""
    size = facts.set.size
    for view in facts.views:
        trace = view.trace
        sides = (
            (NodeType.SEND, "comm_dst", trace.comm_dst, "comm_src", trace.comm_src),
            (NodeType.RECV, "comm_src", trace.comm_src, "comm_dst", trace.comm_dst),
        )
        for kind, peer_name, peer, own_name, own in sides:
            rows = view.rows(kind)
            rows = rows[trace.field[peer_name][rows] != 0]
            if not len(rows):
                continue
            outside = (peer[rows] < 0) | (peer[rows] >= size)
            given = trace.field[own_name][rows] != 0
            for rank in view.ranks.tolist():
                wrong = outside | (peer[rows] == rank) | (given & (own[rows] != rank))
                for row in rows[wrong].tolist():
                    if not 0 <= peer[row] < size:
                        text = f"{peer_name} {peer[row]} is not a rank of 0..{size - 1}"
                    elif peer[row] == rank:
                        text = f"{kind.name} of rank {rank} with itself"
                    else:
                        text = f"{own_name} {own[row]} in the trace of rank {rank}"
                    yield one_node(
                        view.index, row, rank, f"{text}: consumers assert; correct the peer"
                    )


@SET_RULES.rule("network-span", WARNING)
def network_span(facts: Facts) -> Iterator[Hits]:
    """A pg_name group or P2P pair across two network dims is mispriced: one link is paid only."""
    network = facts.set.network
    if network is None or len(network.npus_count) < 2:
        return
    remedy = "each hop pays the first differing dim's link only, so its time is wrong"
    spans: dict[int, int] = {}
    for view, communicator, rows in _colls_by_communicator(facts):
        members = facts.set.groups.members.get(communicator.group)
        if members is None:
            continue
        group = communicator.group
        if group not in spans:
            spans[group] = network.dims_spanned(members)
        if spans[group] > 1:
            text = (
                f"group {group} spans {spans[group]} network dims: {remedy}; where it is a product "
                "of whole dims write involved_dim instead"
            )
            yield Hits(view.index, rows, view.ranks, text)
    for view in facts.views:
        sends = view.rows(NodeType.SEND)
        if not len(sends):
            continue
        for rank in view.ranks.tolist():
            peers = view.trace.comm_dst[sends]
            far = sends[(peers >= 0) & (_differing_dims(network, rank, peers) > 1)]
            if len(far):
                text = f"sends across two or more network dims: {remedy}"
                yield Hits(view.index, far, np.array([rank]), text)


def _differing_dims(network: Network, rank: int, peers: NDArray[np.int64]) -> NDArray[np.int64]:
    differing = np.zeros(len(peers), np.int64)
    for extent, stride in zip(network.npus_count, network.strides(), strict=True):
        differing += peers // stride % extent != rank // stride % extent
    return differing
