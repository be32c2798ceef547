"""Who sends in a broadcast: the first rank of its group, as in StableHLO.

root_first(everybody(4), 2).table()        # [[2, 0, 1, 3]]
agree(exchanges, meetings)                 # a rank that does not record the root has the others'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flint.mesh.groups import Groups, TableGroups
from flint.post_execution.exchanges import Exchange
from flint.post_execution.meetings import Meetings


def root_first(groups: Groups, place: int) -> Groups:
    """The groups with the member at a place in front; the others keep their order."""
    if place == 0:
        return groups
    table = groups.table()
    return TableGroups(
        groups.world, np.concatenate([table[:, [place]], np.delete(table, place, axis=1)], axis=1)
    )


def agree(exchanges: Mapping[int, list[Exchange | None]], meetings: Meetings) -> None:
    """Give the exchanges of all ranks the roots that any of them records.

    Args:
        exchanges: exchanges of each traced rank's units; changed in place.
        meetings: the meetings of these.
    """
    for rank, items in exchanges.items():
        places = iter(meetings.number[rank])
        for unit, item in enumerate(items):
            if item is None:
                continue
            root = meetings.exchange[next(places)].root
            if item.root != root:
                items[unit] = replace(item, root=root)
