"""Interning: repeated values of a program's graphs are stored once in its tables.

Most nodes differ only in their operands and origin, so the rest of a node (kind, op, role, result
types, work) is a *row*, interned like types, op names, sizes and origins.
"""

from __future__ import annotations

from typing import NamedTuple

from flint.graph.communication import Communication
from flint.graph.graph import Form, Source, Tables
from flint.graph.tensor_types import TensorType
from flint.graph.work import Work


class Row(NamedTuple):
    """A node without its operands, order edges and origin; see ``WorkloadGraph`` for the fields."""

    kind: int
    role: int
    op: int
    detail: int
    ops_merged: int
    result_types: tuple[int, ...]
    work: Work


class TableBuilder:
    """Interns the table entries of one program, and the rows of its nodes."""

    __slots__ = (
        "_entry", "_gemms", "_ops", "_row_number", "_sources", "_types", "communications", "rows",
    )  # fmt: skip

    def __init__(self, tables: Tables | None = None) -> None:
        self._types: dict[TensorType, int] = {}
        self._ops: dict[tuple[str, str, Form], int] = {}
        self._gemms: dict[tuple[int, int, int, int], int] = {}
        self._sources: dict[Source, int] = {Source(): 0}
        self._row_number: dict[Row, int] = {}
        self.rows: list[Row] = []
        self.communications: list[Communication] = []
        self._entry: dict[int, int] = {}
        if tables is not None:
            self._types = {item: i for i, item in enumerate(tables.types)}
            self._ops = {item: i for i, item in enumerate(tables.entries())}
            self._gemms = {item: i for i, item in enumerate(tables.gemms)}
            self._sources = {item: i for i, item in enumerate(tables.sources)}
            self.communications = list(tables.communications)

    def row(self, item: Row) -> int:
        """Number of a row."""
        number = self._row_number.setdefault(item, len(self.rows))
        if number == len(self.rows):
            self.rows.append(item)
        return number

    def type(self, item: TensorType) -> int:
        """Index of a type."""
        return self._types.setdefault(item, len(self._types))

    def op(self, name: str, hero: str = "", form: Form = ()) -> int:
        """Index of an op name, for a compiled fusion with what it does, and its parameters."""
        return self._ops.setdefault((name, hero, form), len(self._ops))

    def gemm(self, dims: tuple[int, int, int, int] | None) -> int:
        """Index of a GEMM size, -1 for None."""
        return -1 if dims is None else self._gemms.setdefault(dims, len(self._gemms))

    def communication(self, item: Communication) -> int:
        """Index of a communication: the same object is the same entry, equal ones need not be."""
        number = self._entry.get(id(item), -1)
        # The last entries may have been removed again, and an id reused for another object.
        if not (0 <= number < len(self.communications) and self.communications[number] is item):
            number = self._entry[id(item)] = len(self.communications)
            self.communications.append(item)
        return number

    def source(self, item: Source) -> int:
        """Index of an origin."""
        return self._sources.setdefault(item, len(self._sources))

    def finish(self) -> Tables:
        """The tables in their current state."""
        heroes = tuple(hero for _, hero, _ in self._ops)
        forms = tuple(form for *_, form in self._ops)
        return Tables(
            tuple(self._types),
            tuple(name for name, *_ in self._ops),
            tuple(self._gemms),
            tuple(self._sources),
            tuple(self.communications),
            heroes if any(heroes) else (),
            forms if any(forms) else (),
        )
