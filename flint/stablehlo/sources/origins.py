"""Where ops come from: layer, phase and source line, through the calls that are opened.

The idea: JAX names the ops of a function relative to it, so an op's path is the call's path
followed by its own.  Each distinct location is resolved once per path of calls.

    outer = origins.enter(call_op)
    origins.index(op.loc)          # of an op in the function
    origins.leave(outer)
"""

from __future__ import annotations

from dataclasses import replace

from flint.graph.building import TableBuilder
from flint.stablehlo.read.records import Module, Op, SourceInfo
from flint.stablehlo.sources.phases import path_inside, source_of


class Origins:
    """Locations of a module's ops -> indices of the program's table of sources.

    Attributes:
        known: location -> index, of ops in the function that is open.
    """

    def __init__(self, module: Module, tables: TableBuilder) -> None:
        self.known: dict[object, int] = {None: 0}
        self._module = module
        self._tables = tables
        self._path = ""
        self._by_path = {"": self.known}

    def index(self, loc: object) -> int:
        """Index of an op's origin in the table of sources."""
        found = self.known.get(loc)
        if found is None:
            found = self.known[loc] = self._tables.source(source_of(self._whole(loc)))
        return found

    def enter(self, op: Op) -> str:
        """Begin to open a call.

        Returns:
            What ``leave`` needs.
        """
        outer = self._path
        self._path = self._whole(op.loc).name.rstrip(":") or outer
        self.known = self._by_path.setdefault(self._path, {None: 0})
        return outer

    def leave(self, outer: str) -> None:
        """The call is open; ``outer`` is what ``enter`` returned."""
        self._path = outer
        self.known = self._by_path[outer]

    def where(self, op: Op) -> str:
        """An op's place for messages: op, source line and name path as far as known."""
        info = self._own(op.loc)
        place = f"{info.file}:{info.line}" if info.file else info.name
        return (
            f"{op.name} at {place}" if place else f"{op.name} in module {self._module.name or '?'}"
        )

    def _own(self, loc: object) -> SourceInfo:
        known = self._module.location is not None and loc is not None
        return self._module.location(loc) if known else SourceInfo()

    def _whole(self, loc: object) -> SourceInfo:
        info = self._own(loc)
        return replace(info, name=path_inside(self._path, info.name))
