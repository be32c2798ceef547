"""How many elements of a matrix remain under a mask that compares rows with columns.

causal_share(2048, 2048)       # Share(visible=2098176, all=4194304)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flint.graph.work import WorkItem


class Share(NamedTuple):
    """How many scores of a matrix are computed."""

    visible: int
    all: int

    def of(self, items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
        """Work on all scores -> that on the visible ones."""
        return tuple(item._replace(flops=item.flops * self.visible // self.all) for item in items)


def _at_least(rows: int, columns: int) -> int:
    """Number of positions (i, j) with i >= j: 1 + 2 + 3 ..., then full rows."""
    rows = max(0, rows)
    growing = min(rows, columns)
    return growing * (growing + 1) // 2 + (rows - growing) * columns


_HELD: dict[str, Callable[[int, int], int]] = {
    "GE": _at_least,
    "GT": lambda rows, columns: _at_least(rows - 1, columns),
    "LE": lambda rows, columns: _at_least(columns, rows),
    "LT": lambda rows, columns: _at_least(columns - 1, rows),
}
#: Comparisons that ``positions_held`` knows.
DIRECTIONS = frozenset(_HELD)


def positions_held(direction: str, rows: int, columns: int) -> int:
    """For how many positions (i, j) of a matrix ``i DIRECTION j`` holds."""
    return _HELD[direction](rows, columns)


def causal_share(queries: int, keys: int, window: int = 0) -> Share:
    """The part of a matrix of scores that a causal mask leaves: query ``i`` sees keys 0 to ``i``.

    Args:
        queries, keys: sizes of the matrix.
        window: how many of the last of these keys a query sees; 0 for all.
    """
    visible = positions_held("GE", queries, keys)
    if window:
        # Keys before the window are those that earlier queries see.
        visible -= positions_held("GE", queries - window, keys)
    return Share(visible, queries * keys)
