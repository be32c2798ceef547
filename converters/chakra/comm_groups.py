"""Group ids and the comm-groups file.

The idea: a group that spans whole network dims needs no id (`involved_dim` says it).  Every other
group instance gets a decimal id; the ids of one workload all have the same number of digits, so
that a rank's id can be stamped over another's without moving a byte.

    ids = GroupIds(dims, [groups, ...])
    ids.mask(groups)             # (True, False): written as involved_dim
    ids.numbers(groups, ranks)   # or the id of each rank's group
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.mesh.groups import Groups, StridedGroups
from flint.mesh.network_dims import NetworkDims
from flint.mesh.ragged import Ints

MAX_ID: Final = 999_999_999
"""Consumers read ids into 32-bit integers; nine digits fit for sure."""


class GroupIds:
    """Ids of all groups of a workload that need one.

    Attributes:
        digits: decimal digits of every id.
    """

    def __init__(self, dims: NetworkDims, used: Iterable[Groups]) -> None:
        self._dims = dims
        self._masks: dict[Groups, tuple[bool, ...] | None] = {}
        self._first: dict[Groups, int] = {}
        total = 0
        for groups in used:
            if groups in self._masks:
                continue
            if groups.world != dims.world:
                raise FlintError(
                    f"a communicator is over {groups.world} ranks, but the mesh has {dims.world}"
                )
            mask = self._masks[groups] = dims.mask(groups)
            if mask is None:
                self._first[groups] = total
                total += groups.count
        self.digits = 1
        while total > 9 * 10 ** (self.digits - 1):
            self.digits += 1
        self._base = 10 ** (self.digits - 1)
        if self._base + total - 1 > MAX_ID:
            raise FlintError(
                f"the workload has {total} groups that need ids; the limit is {MAX_ID}"
            )

    def mask(self, groups: Groups) -> tuple[bool, ...] | None:
        """The network dims that make up ``groups``, None where they need an id."""
        return self._masks[groups]

    def numbers(self, groups: Groups, ranks: Ints) -> Ints:
        """The id of each rank's group; -1 for a rank that is in none."""
        number = groups.number(ranks)
        return np.where(number >= 0, self._base + self._first[groups] + number, -1)

    def members(self, groups: Groups, ranks: Ints) -> dict[str, list[int]]:
        """Id to members, for the groups of more than one rank that ``ranks`` are in."""
        alone = groups.group_size(ranks) < 2
        numbers = np.where(alone, -1, self.numbers(groups, ranks))
        ids, first = np.unique(numbers, return_index=True)
        first, ids = first[ids >= 0], ids[ids >= 0]
        if not len(ids):
            return {}
        if isinstance(groups, StridedGroups):
            rows = groups.base(ranks[first])[:, None] + groups.offsets()
            return dict(zip(map(str, ids.tolist()), rows.tolist(), strict=True))
        rows = groups.rows[groups.number(ranks[first])]
        return {
            str(number): [rank for rank in row if rank >= 0]
            for number, row in zip(ids.tolist(), rows.tolist(), strict=True)
        }
