"""How many elements of a matrix a mask leaves that compares rows with columns.

causal_share(2048, 2048)       # Share(visible=2098176, all=4194304)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.work import WorkItem

Ints: TypeAlias = NDArray[np.int64]

#: Of row ``i`` the number of columns ``j``, of so many, for which ``i DIRECTION j``.
_HELD: dict[str, Callable[[Ints, int], Ints]] = {
    "GE": lambda row, _: row + 1,
    "GT": lambda row, _: row,
    "LE": lambda row, columns: columns - row,
    "LT": lambda row, columns: columns - 1 - row,
}
#: Comparisons that ``positions_held`` knows.
DIRECTIONS = frozenset(_HELD)


class Share(NamedTuple):
    """How many of a matrix of scores are computed."""

    visible: int
    all: int

    def of(self, items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
        """Work on all scores -> that on the visible ones."""
        return tuple(item._replace(flops=item.flops * self.visible // self.all) for item in items)


def positions_held(direction: str, rows: int, columns: int) -> int:
    """Of how many positions (i, j) of a matrix ``i DIRECTION j`` holds."""
    held = _HELD[direction](np.arange(rows, dtype=np.int64), columns)
    return int(np.clip(held, 0, columns).sum())


def causal_share(queries: int, keys: int) -> Share:
    """What a causal mask leaves of a matrix of scores: query ``i`` sees keys 0 to ``i``."""
    return Share(positions_held("GE", queries, keys), queries * keys)
