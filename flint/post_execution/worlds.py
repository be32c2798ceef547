"""How many ranks a run had, as far as the traces of some of them tell.

world_of(recorded, stated_world_of(linked))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flint.errors import FlintError
from flint.post_execution.load_rank import Linked, Recorded

#: The most ranks of a run.
_MAX_WORLD: Final = 1 << 22


def stated_world_of(linked: Mapping[int, Linked]) -> int | None:
    """Number of ranks of the run, as named by the traces, or from several files of one run.

    Raises:
        FlintError: traces are from different runs.
    """
    worlds = {item.trace.world for item in linked.values()} - {None}
    if len(worlds) > 1:
        raise FlintError(
            f"the traces are from runs with {' and '.join(map(str, sorted(worlds, key=str)))} ranks"
        )
    return next(iter(worlds), None) or (max(linked) + 1 if len(linked) > 1 else None)


def world_of(recorded: Mapping[int, Recorded], stated_world: int | None) -> int:
    """Number of ranks of the run."""
    members = [
        rank
        for item in recorded.values()
        for exchange in item.exchanges
        if exchange is not None
        for rank in exchange.group
    ]
    least = max([*recorded, *members]) + 1
    world = stated_world or least
    if world < least:
        raise FlintError(f"the traces are from a run with {world} ranks, but name rank {least - 1}")
    if world > _MAX_WORLD:
        raise FlintError(f"the traces name {world:,} ranks; the limit is {_MAX_WORLD:,}")
    return world
