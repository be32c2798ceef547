"""Rank classes: which ranks of a program have the same trace, or one of the same shape.

The idea: ranks are told apart by columns, one per thing that can differ (does this permutation send
and receive here, is the rank in this group, how far down the broadcast tree is it).  Equal rows are
a *structure*: the same nodes with the same edges.  Within a structure, ranks whose peers take
equally many bytes as varints are a *class*: one encoded buffer, a few bytes stamped per rank.
Within a class, ranks with equal stamps have equal files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.communication import Communication
from flint.converters.chakra.comm_groups import GroupIds
from flint.converters.chakra.encode import varint_width
from flint.converters.chakra.forms import ABSENT, COLLECTIVE_KIND, Part, part_of
from flint.converters.chakra.peers import Peer, children_in_tree, combine, shape_of_exchange
from flint.graph import NodeKind, WorkloadGraph
from flint.groups import Groups, TableGroups

Ints = NDArray[np.int64]

_OWN = Peer("own")


@dataclass(frozen=True, eq=False, slots=True)
class Structure:
    """Ranks that run the same nodes.

    Attributes:
        ranks: ascending.
        parts: what they do, per entry of the program's communication table.
    """

    ranks: Ints
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Stamps:
    """The quantities by which ranks of one structure differ.

    Attributes:
        peers: ranks that stand in messages; the first is the rank itself.
        groups: groups that stand as ids, numbered after the peers.
        ids: the ids.
    """

    peers: dict[Peer, int]
    groups: dict[Groups, int]
    ids: GroupIds

    def values(self, ranks: Ints) -> list[Ints]:
        """The value of every stamp at each rank."""
        found = [peer.values(ranks) for peer in self.peers]
        return found + [self.ids.numbers(groups, ranks) for groups in self.groups]


def used_communications(graph: WorkloadGraph) -> list[int]:
    """Entries of the communication table that the program issues."""
    found: set[int] = set()
    for block, _ in graph.walk():
        found.update(block.detail[block.kind == NodeKind.COMMUNICATION].tolist())
    return sorted(found)


def structures(
    communications: Sequence[Communication], used: Sequence[int], ranks: Ints
) -> list[Structure]:
    """Partition ``ranks`` by what they do in the communications ``used``."""
    code, first = combine(_columns([communications[i] for i in used], ranks), len(ranks))
    members = _split(code, len(first))
    return [
        Structure(ranks[where], _parts(communications, used, int(ranks[one])))
        for where, one in zip(members, first.tolist(), strict=True)
    ]


def stamps_of(
    structure: Structure,
    communications: Sequence[Communication],
    used: Sequence[int],
    ids: GroupIds,
) -> Stamps:
    """What differs between the ranks of a structure."""
    peers = {_OWN: 0}
    groups: dict[Groups, int] = {}
    known: set[int] = set()
    for index in used:
        part, item = structure.parts[index], communications[index]
        # Parts are shared between communications: tables of peers are hashed once.
        if id(part) not in known:
            known.add(id(part))
            for peer in part.peers:
                peers.setdefault(peer, len(peers))
        collective = item.groups if item.kind in COLLECTIVE_KIND and part.form.nodes else None
        if collective is not None and ids.mask(collective) is None:
            groups.setdefault(collective, 0)
    numbered = {item: len(peers) + i for i, item in enumerate(groups)}
    return Stamps(peers, numbered, ids)


def classes(stamps: Stamps, ranks: Ints) -> list[tuple[Ints, Ints, list[Ints]]]:
    """Split a structure's ranks into classes.

    Returns:
        Per class: its ranks, which distinct file each has, and the stamps' values per file.
    """
    values = stamps.values(ranks)
    # A rank that talks to nobody does not say its own number.
    if len(stamps.peers) == 1:
        values[0] = np.zeros_like(ranks)
    widths = [varint_width(np.maximum(column, 0)) for column in values[: len(stamps.peers)]]
    code, first = combine(widths, len(ranks))
    found = []
    for where in _split(code, len(first)):
        columns = [column[where] for column in values]
        file, first_of_file = combine(columns, len(where))
        found.append((ranks[where], file, [column[first_of_file] for column in columns]))
    return found


def _columns(items: Iterable[Communication], ranks: Ints) -> Iterable[Ints]:
    seen: set[tuple[str, int]] = set()
    for item in items:
        groups = item.groups
        key = ("p", id(item.permutation)) if item.point_to_point else (
            "t" if item.kind == "collective_broadcast" else "g", id(groups))  # fmt: skip
        if key in seen:
            continue
        seen.add(key)
        if item.point_to_point and item.permutation is not None:
            yield shape_of_exchange(item.permutation, ranks)
        elif item.kind == "collective_broadcast" and groups is not None:
            yield children_in_tree(groups, ranks)
            yield (groups.position(ranks) == 0).astype(np.int64)
        elif isinstance(groups, TableGroups):
            yield np.minimum(groups.group_size(ranks), 2)


def _parts(
    communications: Sequence[Communication], used: Sequence[int], rank: int
) -> tuple[Part, ...]:
    """The parts of one rank; entries that are not used are absent."""
    nothing = Part(ABSENT)
    parts = [nothing] * len(communications)
    known: dict[tuple[str, int, bool], Part] = {}
    for index in used:
        item = communications[index]
        empty = not (item.bytes_out if item.kind == "recv" else item.bytes_in)
        key = (item.kind, id(item.permutation or item.groups), empty)
        if key not in known:
            known[key] = part_of(item, rank)
        parts[index] = known[key]
    return tuple(parts)


def _split(code: Ints, count: int) -> list[Ints]:
    """Row numbers by class, ascending."""
    if count <= 1:
        return [np.arange(len(code), dtype=np.int64)] * count
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
