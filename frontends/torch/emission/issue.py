"""How ops were issued, as discardable attributes: number, stream, waits, phase, module, location.

The idea: not every recorded op becomes an op of the module (views, allocations and waits launch
nothing), but their dependencies must not be lost: they pass to the next op of their stream, and an
op that waits for a skipped op waits for that op's dependencies.

    attributes = issue.attributes(7, recording.ops[7])
    issue.skip(8, recording.ops[8])
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.recording.effects import shown_name
from flint.frontends.torch.recording.recording import Op
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.issue_attributes import AFTER, GRAPHED, ID, MODULE, PHASE, STREAM


class IssueAttributes:
    """Turns recorded numbers, streams and waits into attributes, op by op in issue order."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._handed_on: dict[int, set[int]] = {}
        self._stands_for: dict[int, frozenset[int]] = {}
        self._texts: dict[str, Any] = {}
        self._locations: dict[tuple[str, str, int], Any] = {}

    def skip(self, number: int, op: Op) -> None:
        """Note an op that does not become an op of the module."""
        waits = self._resolve(op.after)
        handed = self._handed_on.setdefault(op.stream, set())
        handed |= waits
        before = {self._last[op.stream]} if op.stream in self._last else set()
        self._stands_for[number] = frozenset(handed | before)

    def waits(self, number: int, op: Op) -> list[int]:
        """The ops that an op of the module waits for beyond those before it on its stream."""
        waits = self._resolve(op.after) | self._handed_on.pop(op.stream, set())
        waits.discard(self._last.get(op.stream, -1))
        self._last[op.stream] = number
        return sorted(waits)

    def _resolve(self, numbers: tuple[int, ...]) -> set[int]:
        found: set[int] = set()
        for number in numbers:
            found |= self._stands_for.get(number, frozenset((number,)))
        return found

    def attributes(self, number: int, op: Op) -> dict[str, Any]:
        """The discardable attributes of an op of the module."""
        made: dict[str, Any] = {ID: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)}
        if op.stream:
            made[STREAM] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), op.stream)
        waits = self.waits(number, op)
        if waits:
            made[AFTER] = ir.DenseI64ArrayAttr.get(waits)
        if op.graphed:
            made[GRAPHED] = ir.UnitAttr.get()
        if op.phase:
            made[PHASE] = self.text(op.phase)
        if op.module:
            made[MODULE] = self.text(op.module)
        return made

    def text(self, value: str) -> Any:
        """A string attribute, created once."""
        if value not in self._texts:
            self._texts[value] = ir.StringAttr.get(value)
        return self._texts[value]

    def location(self, op: Op) -> Any:
        """The user's line under the op's name."""
        name = shown_name(op)
        key = (name, op.file, op.line)
        if key not in self._locations:
            place = ir.Location.file(op.file, op.line, 0) if op.file else ir.Location.unknown()
            self._locations[key] = ir.Location.name(name, place)
        return self._locations[key]
