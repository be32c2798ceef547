"""Rank classes: which ranks of a structure have the same trace, or one of the same layout.

The idea: within a structure (``flint.execution.structures``), ranks whose peers take the same
number of bytes as varints are a *class*: one encoded buffer, with a few bytes stamped per rank.
Within a class, ranks with equal stamps have equal files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flint.converters.chakra.comm_groups import GroupIds
from flint.converters.chakra.schema import COLLECTIVE_KIND
from flint.converters.chakra.write.encode import varint_width
from flint.execution.peers import Peer, combine
from flint.execution.structures import Structure, rows_by_class
from flint.graph.communication import Communication
from flint.mesh.groups import Groups
from flint.mesh.ragged import Ints

_OWN = Peer("own")


@dataclass(frozen=True, eq=False, slots=True)
class Stamps:
    """The quantities by which ranks of one structure differ.

    Attributes:
        peers: ranks that occur in messages; the first is the rank itself.
        groups: groups that occur as ids, numbered after the peers.
        ids: the ids.
    """

    peers: dict[Peer, int]
    groups: dict[Groups, int]
    ids: GroupIds

    def values(self, ranks: Ints) -> list[Ints]:
        """The value of every stamp at each rank."""
        found = [peer.values(ranks) for peer in self.peers]
        return found + [self.ids.numbers(groups, ranks) for groups in self.groups]


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
    # A rank without messages does not contain its own number.
    if len(stamps.peers) == 1:
        values[0] = np.zeros_like(ranks)
    widths = [varint_width(np.maximum(column, 0)) for column in values[: len(stamps.peers)]]
    code, first = combine(widths, len(ranks))
    found = []
    for where in rows_by_class(code, len(first)):
        columns = [column[where] for column in values]
        file, first_of_file = combine(columns, len(where))
        found.append((ranks[where], file, [column[first_of_file] for column in columns]))
    return found
