"""Which collective each work of ``torch.distributed`` is of.

The idea: Python knows a work by its wrapper, which has to live for as long as the program may wait
for it.  It holds what the collective wrote; a program that has waited may free that, so from then
on the work is known for as long as the program itself keeps it.

    works.add(work, 7)
    works.waited(work)      # 7
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any


class PendingWorks:
    """Works, and the numbers of their collectives."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        self._kept: dict[int, Any] = {}  # the work, or a weak reference to it

    def add(self, work: Any, number: int) -> None:
        """Remember the work of a collective."""
        self._number[id(work)] = number
        self._kept[id(work)] = work

    def waited(self, work: Any) -> int | None:
        """The collective of a work that the program waits for; None if it is of none."""
        number = self._number.get(id(work))
        if number is not None:
            self._kept[id(work)] = weakref.ref(work, partial(self._forget, id(work)))
        return number

    def _forget(self, identity: int, _: Any) -> None:
        self._number.pop(identity, None)
        self._kept.pop(identity, None)
