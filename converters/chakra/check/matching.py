"""Finds each communication's partners: a collective's other members, a SEND's RECV.

The idea: two ranks agree on a group's collectives iff their sequences of (kind, size) are equal, so
each distinct sequence gets a number and ranks compare numbers.  SENDs and RECVs of all ranks are
sorted by (src, dst, tag, size), keeping each rank's order; the k-th SEND then faces the k-th RECV.

    matching = match(facts)
    matching.sequence_faults, matching.unmatched_sends, ...     # empty if all is well
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import Hits, one_node
from flint.converters.chakra.check.order import unordered_pairs
from flint.converters.chakra.check.trace_views import Communicator, Facts, View
from flint.converters.chakra.schema import CollectiveKind, NodeType

SHOWN: Final = 20


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
        rank: int64 [n], the rank whose node it is.
        view: int64 [n], the index of its view.
        row: int64 [n].
    """

    key: NDArray[np.int64]
    rank: NDArray[np.int64]
    view: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Matching:
    """Who communicates with whom.

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


def group_sequence(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """All members of a group run the same collectives, (kind, size) for (kind, size), in order."""
    for communicator, parts in matching.parts.items():
        values = [_sequence(facts.views[part.view], part).tobytes() for part in parts]
        ranks, groups, number = sequence_numbers(facts, communicator, parts, values)
        by_group = np.lexsort((ranks, groups))
        ranks, groups, number = ranks[by_group], groups[by_group], number[by_group]
        first = np.searchsorted(groups, groups)
        different = np.flatnonzero(number != number[first])
        part_of = {rank: part for part in parts for rank in facts.views[part.view].ranks.tolist()}
        for place in different.tolist():
            rank, other = int(ranks[place]), int(ranks[first[place]])
            yield _first_difference(facts, rank, other, part_of[rank], part_of[other])
        starts = np.flatnonzero(first == np.arange(len(first)))
        counts = np.diff(np.append(starts, len(first)))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            if count != facts.group_size(communicator):
                present = ranks[start : start + count]
                yield _absent_members(facts, communicator, present, part_of)


def _sequence(view: View, part: Part) -> NDArray[np.int64]:
    return np.stack([view.trace.comm_type[part.rows], view.trace.comm_size[part.rows]])


def _first_difference(facts: Facts, rank: int, other: int, part: Part, theirs: Part) -> Hits:
    ours, others = facts.views[part.view], facts.views[theirs.view]
    mine, yours = _sequence(ours, part), _sequence(others, theirs)
    both = min(mine.shape[1], yours.shape[1])
    differing = np.flatnonzero(np.any(mine[:, :both] != yours[:, :both], axis=0))
    if not len(differing):
        text = (
            f"rank {rank} has {mine.shape[1]} collectives of this group, rank {other} "
            f"{yours.shape[1]}: the surplus waits forever"
        )
        row = part.rows[min(both, mine.shape[1] - 1)]
    else:
        at = int(differing[0])
        row = part.rows[at]
        text = (
            f"collective {at} of its group is {_name(mine[:, at])} on rank {rank}, but "
            f"{_name(yours[:, at])} on rank {other} (node {others.trace.id[theirs.rows[at]]}): "
            "its members wait forever or exchange the wrong data"
        )
    return one_node(
        part.view, int(row), rank, f"{text}; give all members the same kinds and sizes in one order"
    )


def _name(kind_and_size: NDArray[np.int64]) -> str:
    kind, size = kind_and_size.tolist()
    names = {int(item): item.name for item in CollectiveKind}
    return f"{names.get(kind, kind)} of {size} bytes"


def _absent_members(
    facts: Facts, communicator: Communicator, present: NDArray[np.int64], part_of: dict[int, Part]
) -> Hits:
    rank = int(present[0])
    absent = np.setdiff1d(facts.members(communicator, rank), present)
    shown = ", ".join(str(member) for member in absent[:4].tolist())
    shown += ", ..." if len(absent) > 4 else ""
    part = part_of[rank]
    return one_node(
        part.view,
        int(part.rows[0]),
        rank,
        f"its group has {len(present) + len(absent)} ranks, but {len(absent)} of them ({shown}) "
        "have no collective of it: the others wait forever; add it there or correct the group",
    )


def p2p_match(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """Every SEND has a RECV with the same (tag, src, dst, size) and the other way round."""
    sends, recvs = matching.sends, matching.recvs
    if matching.p2p_matched:
        return
    spare_sends, spare_recvs = _spare(sends, recvs), _spare(recvs, sends)
    for ours, spare, theirs, their_spare, verb in (
        (recvs, spare_recvs, sends, spare_sends, "is never sent, and waits forever"),
        (sends, spare_sends, recvs, spare_recvs, "is never received"),
    ):
        near = {tuple(theirs.key[:3, at].tolist()): at for at in their_spare[::-1].tolist()}
        for count, at in enumerate(spare.tolist()):
            src, dst, tag, size = ours.key[:, at].tolist()
            other = near.get((src, dst, tag)) if count < SHOWN else None
            hint = "add its counterpart"
            if other is not None:
                node = facts.views[theirs.view[other]].trace.id[theirs.row[other]]
                hint = f"its counterpart (node {node} there) has {theirs.key[3, other]} bytes"
            text = f"message {src} -> {dst}, tag {tag}, {size} bytes {verb}: {hint}"
            yield one_node(int(ours.view[at]), int(ours.row[at]), int(ours.rank[at]), text)


def _spare(ours: Endpoints, theirs: Endpoints) -> NDArray[np.int64]:
    """Indices into `ours` of what has no counterpart: per key what is above their number."""
    count = ours.key.shape[1]
    both = np.concatenate([ours.key, theirs.key], axis=1)
    _, key = np.unique(both, axis=1, return_inverse=True)
    key = key.reshape(-1)
    available = np.bincount(key[count:], minlength=int(key.max(initial=-1)) + 1)
    own = key[:count]
    first = np.searchsorted(own, own)
    nth = np.arange(count) - first
    return np.flatnonzero(nth >= available[own])


def p2p_order(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """SENDs (and RECVs) of one (tag, src, dst, size) are ordered by data_deps on their rank.

    Otherwise the order depends on durations, first in first out pairs the wrong ones, and what
    waits for the right one may wait for something that waits for it.
    """
    for ends, kind in ((matching.sends, "SEND"), (matching.recvs, "RECV")):
        same = np.flatnonzero(np.all(ends.key[:, 1:] == ends.key[:, :-1], axis=0))
        pairs = np.stack([ends.view[same], ends.row[same], ends.row[same + 1]])
        pairs, first = np.unique(pairs, axis=1, return_index=True)
        for index in np.unique(pairs[0]).tolist():
            view = facts.views[index]
            # The pairs are sorted by view.
            mine = slice(*np.searchsorted(pairs[0], [index, index + 1]).tolist())
            where = dict(
                zip(
                    zip(pairs[1, mine].tolist(), pairs[2, mine].tolist(), strict=True),
                    same[first[mine]].tolist(),
                    strict=True,
                )
            )
            unordered, _ = unordered_pairs(view.order, where)
            for a, b in unordered:
                src, dst, tag, size = ends.key[:, where[a, b]].tolist()
                text = (
                    f"two {kind}s of {src} -> {dst}, tag {tag}, {size} bytes (this and node "
                    f"{view.trace.id[a]}) are not ordered by data_deps, so they may pair wrongly; "
                    "give them different tags or a dependency"
                )
                yield one_node(index, b, int(ends.rank[where[a, b]]), text)
