"""The texts of a database of AMD's profilers, which other tables name by numbers.

texts = Texts(data.rows("rocpd_string", ("id", "string")))
texts.of(46), texts.place(46)                # "CopyHostToDevice", its place in texts.names
"""

from __future__ import annotations

from collections.abc import Iterable

from flint.converters.profilers.database import text
from flint.converters.profilers.rocprof.document import Names


class Texts:
    """Texts by their numbers."""

    def __init__(self, rows: Iterable[tuple[object, ...]]) -> None:
        self._texts = {number: text(value) for number, value in rows if isinstance(number, int)}
        self._places = {number: place for place, number in enumerate(self._texts)}

    @property
    def names(self) -> Names:
        """All of them as the operations of a kind of records."""
        return Names("", list(self._texts.values()))

    def of(self, number: object) -> str:
        """A text; "" if there is none."""
        return self._texts.get(number, "") if isinstance(number, int) else ""

    def place(self, number: int) -> int:
        """Where a text is in ``names``; -1 if it is not."""
        return self._places.get(number, -1)
