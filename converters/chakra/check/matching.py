"""Finds each communication's partners: a collective's other members, a SEND's RECV.

The idea: two ranks agree on a group's collectives iff their sequences of (kind, size) are equal, so
each distinct sequence gets a number and ranks compare numbers.  SENDs and RECVs of all ranks are
sorted by (src, dst, tag, size), keeping each rank's order; the k-th SEND then faces the k-th RECV.

    matching = match(facts)
    matching.p2p_matched                  # True if every SEND has its RECV
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.trace_views import Communicator, Facts
from flint.converters.chakra.schema import NodeType


class Part(NamedTuple):
    """The collectives of one communicator in one view.

    Attributes:
        view: index of the view.
        rows: their rows, in dependency order.
        nth: their indices in the view's sequence of all collectives.
    """

    view: int
    rows: NDArray[np.int64]
    nth: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """SENDs or RECVs of all ranks, sorted by (src, dst, tag, size), then by order in the rank.

    Attributes:
        key: int64 [4, n]: src, dst, tag, size.
        rank: int64 [n], the rank of the node.
        view: int64 [n], the index of its view.
        row: int64 [n].
    """

    key: NDArray[np.int64]
    rank: NDArray[np.int64]
    view: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matching:
    """Which ranks communicate with which.

    Attributes:
        parts: communicator -> its collectives in each view that has some.
        sends, recvs: facing each other entry by entry, if `p2p_matched`.
    """

    parts: dict[Communicator, list[Part]]
    sends: Endpoints
    recvs: Endpoints

    @property
    def p2p_matched(self) -> bool:
        """True if every SEND has its RECV and the other way round."""
        return np.array_equal(self.sends.key, self.recvs.key)


def match(facts: Facts) -> Matching:
    """Match all ranks' communications.  Every view's dependencies must be sound."""
    parts: dict[Communicator, list[Part]] = {}
    for view in facts.views:
        colls = view.order.colls
        communicators, of_row = view.communicators
        of_coll = of_row[colls]
        by_communicator = np.argsort(of_coll, kind="stable")
        bounds = np.searchsorted(of_coll[by_communicator], np.arange(len(communicators) + 1))
        for number, communicator in enumerate(communicators):
            index = by_communicator[bounds[number] : bounds[number + 1]]
            parts.setdefault(communicator, []).append(Part(view.index, colls[index], index))
    return Matching(parts, _endpoints(facts, NodeType.SEND), _endpoints(facts, NodeType.RECV))


def _endpoints(facts: Facts, kind: NodeType) -> Endpoints:
    columns: list[NDArray[np.int64]] = [np.zeros((7, 0), np.int64)]
    for view in facts.views:
        rows = view.rows(kind)
        if not len(rows):
            continue
        trace = view.trace
        rows = rows[np.argsort(view.order.place[rows], kind="stable")]
        own = np.repeat(view.ranks, len(rows))
        rows = np.tile(rows, len(view.ranks))
        peer = (trace.comm_dst if kind is NodeType.SEND else trace.comm_src)[rows]
        src, dst = (own, peer) if kind is NodeType.SEND else (peer, own)
        view_of = np.full(len(rows), view.index)
        columns.append(
            np.stack([src, dst, trace.comm_tag[rows], trace.comm_size[rows], own, view_of, rows])
        )
    table = np.concatenate(columns, axis=1)
    table = table[:, np.lexsort(table[3::-1])]
    return Endpoints(table[:4], table[4], table[5], table[6])


def sequence_numbers(
    facts: Facts, communicator: Communicator, parts: list[Part], values: list[bytes]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For all ranks that use the communicator: (ranks, their group, a number for their value).

    `values` has one entry per part; equal numbers mean equal values.
    """
    known: dict[bytes, int] = {}
    ranks = np.concatenate([facts.views[part.view].ranks for part in parts])
    number = np.concatenate(
        [
            np.full(len(facts.views[part.view].ranks), known.setdefault(value, len(known)))
            for part, value in zip(parts, values, strict=True)
        ]
    )
    return ranks, facts.group_of_ranks(communicator, ranks), number
