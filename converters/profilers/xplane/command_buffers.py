"""Kernels of command buffers (CUDA graphs) -> the HLO ops that launched them.

The idea: XLA records successive ops of a computation into a command buffer, and the profiler names
only this buffer.  But kernels run in the order of the schedule; a fusion's kernel has its name, or
that of an equal fusion; between them lie the kernels of libraries.  So the kernels of one execution
of a computation are aligned with its ops, by the least cost; a kernel outside of command buffers
is of the op that it names.

    events = named_ops(events, Program(module), module)
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.converters.profilers.xplane.events import Event
from flint.converters.profilers.xplane.program import Program
from flint.hlo import hlo_pb2 as pb

#: What the profiler names an op that is a command buffer.
BUFFER = "command_buffer"
#: What runs no kernel of its own.
_SILENT = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional",
    "after-all", "async-done", "async-update", "copy-done", "add-dependency", "partition-id",
    "replica-id", "opt-barrier",
})  # fmt: skip
_MAX_DEPTH = 64
#: Costs of an alignment: an op without a kernel; a kernel on an op that hardly launches it; one
#: that an op does not launch, and one that names another op.
_SKIPPED, _UNLIKELY, _UNFIT, _OTHER = 1.0, 1.5, 5.0, 50.0
#: With a higher mean cost per kernel, nothing is known.
_MOST = 1.0


#: What a fusion may consist of that the compiler makes a copy.
_MOVING = frozenset({
    "parameter", "constant", "bitcast", "tuple", "copy", "slice", "dynamic-slice",
    "dynamic-update-slice", "get-tuple-element", "compare", "select", "add", "subtract", "clamp",
    "convert", "multiply", "minimum", "maximum",
})  # fmt: skip
#: What a fusion's configuration has if its kernel is Triton's, which has the fusion's name.
_TRITON = b'"kind":"__triton'
_SLICES = frozenset({"copy", "slice", "dynamic-slice", "dynamic-update-slice"})


class _Op(NamedTuple):
    """An op that launches kernels.

    Attributes:
        name: its name.
        content: what fusions that compute the same have in common; b"" for others.
        library: whether libraries may make its kernels.
        moves: whether it may be a copy.
    """

    name: str
    content: bytes
    library: bool
    moves: bool


class _Unit(NamedTuple):
    """Kernels that are launched together: of a command buffer, or of a named op."""

    label: str
    kernels: tuple[str, ...]


def named_ops(
    events: list[Event], program: Program, module: pb.HloModuleProto, note: Callable[..., None]
) -> list[Event]:
    """Events whose op is a command buffer get the op that launched their kernel.

    Args:
        events: what ran of a program.
        program, module: the program.
        note: told how many kernels are of an op that was found, and of how many it is unknown.
    """
    if not any(event.hlo.startswith(BUFFER) for event in events):
        return events
    units: dict[int, list[tuple[_Unit, list[int]]]] = defaultdict(list)
    order = sorted(range(len(events)), key=lambda i: (events[i].device, events[i].start))
    last: tuple[int, str, int] | None = None
    for place in order:
        event = events[place]
        key = event.device, event.hlo, event.launch
        if key != last:
            units[event.device].append((_Unit(event.hlo, ()), []))
        unit, places = units[event.device][-1]
        units[event.device][-1] = _Unit(unit.label, (*unit.kernels, event.kernel)), [*places, place]
        last = key
    finder = _Finder(program, module)
    first = next(iter(units.values()))
    finder.learn([unit for unit, _ in first])
    found = list(events)
    known = unknown = 0
    for unit, places in (pair for pairs in units.values() for pair in pairs):
        if not unit.label.startswith(BUFFER):
            continue
        ops = finder.ops.get(unit)
        known, unknown = known + len(places) * bool(ops), unknown + len(places) * (not ops)
        for place, op in zip(places, ops or (), strict=False):
            found[place] = events[place]._replace(hlo=op)
    if known:
        note(
            "kernels of command buffers (CUDA graphs), whose ops follow from names and order", known
        )
    if unknown:
        note("kernels of command buffers (CUDA graphs), whose ops are unknown", unknown)
    return found


class _Finder:
    """Finds the ops of command buffers.

    Attributes:
        ops: the op of each kernel of a unit; only of units that were found.
    """

    def __init__(self, program: Program, module: pb.HloModuleProto) -> None:
        self.ops: dict[_Unit, list[str]] = {}
        self._program = program
        self._schedule = {
            number: list(sequence.instruction_ids)
            for number, sequence in module.schedule.sequences.items()
        }
        self._contents: dict[int, bytes] = {}
        self._by_kernel: dict[str, bytes] = {}
        self._costs: dict[tuple[int, str], NDArray[np.float64]] = {}
        self._computations = {
            number: ops
            for number in self._scheduled(module.entry_computation_id, 0)
            if (ops := list(self._launching(number, 0)))
        }
        for ops in self._computations.values():
            for op in ops:
                if op.content:
                    self._by_kernel[op.name.replace(".", "_").replace("-", "_")] = op.content

    def learn(self, ran: Sequence[_Unit]) -> None:
        """Align one execution of each computation with its ops.

        Args:
            ran: what ran on a device, in order of time.
        """
        home = {op.name: number for number, ops in self._computations.items() for op in ops}
        ran_in = self._computations
        of: dict[int, list[_Unit]] = defaultdict(list)
        homes: dict[_Unit, int] = {}
        for unit in ran:
            number = homes.get(unit, home.get(unit.label))
            if number is None and unit.label.startswith(BUFFER):
                several = len(self._computations) > 1
                costs = {n: self._aligned([unit], n)[0] if several else 0 for n in ran_in}
                number = homes[unit] = min(costs, key=costs.__getitem__)
            if number is not None:
                of[number].append(unit)
        for number, units in of.items():
            again = [place for place, unit in enumerate(units) if unit.label == units[0].label]
            once = units[: again[1]] if len(again) > 1 else units
            cost, ops = self._aligned(once, number)
            if cost > _MOST * len(ops):
                continue
            names = iter(ops)
            for unit in once:
                self.ops[unit] = [next(names) for _ in unit.kernels]

    def _aligned(self, units: Sequence[_Unit], computation: int) -> tuple[float, list[str]]:
        """The cost of the best alignment with a computation's ops, and the op of each kernel."""
        ops = self._computations[computation]
        kernels = [(unit.label, kernel) for unit in units for kernel in unit.kernels]
        number = np.arange(len(ops))
        total = np.zeros(0)
        before: list[NDArray[np.int64]] = []
        for place, (label, kernel) in enumerate(kernels):
            own = self._cost(label, kernel, computation)
            if not place:
                total = own
                continue
            # Another op: the cheapest one before, with those in between skipped.
            reached = np.minimum.accumulate(total - _SKIPPED * number)
            at = np.maximum.accumulate(np.where(total - _SKIPPED * number == reached, number, 0))
            other = np.full(len(ops), np.inf)
            other[1:] = reached[:-1] + _SKIPPED * (number[1:] - 1)
            same = total + _again(kernels[place - 1], (label, kernel))
            before.append(np.where(same <= other, number, np.concatenate([[0], at[:-1]])))
            total = own + np.minimum(same, other)
        best = int(np.argmin(total))
        cost, chosen = float(total[best]), [best]
        for choice in reversed(before):
            chosen.append(int(choice[chosen[-1]]))
        return cost, [ops[place].name for place in reversed(chosen)]

    def _cost(self, label: str, kernel: str, computation: int) -> NDArray[np.float64]:
        """What it costs to give a kernel to each of a computation's ops."""
        in_buffer = label.startswith(BUFFER)
        key = computation, kernel if in_buffer else f"of {label}"
        if key not in self._costs:
            ops, content = self._computations[computation], self._by_kernel.get(kernel)
            self._costs[key] = np.array([
                _fit(kernel, content, op) if in_buffer else _OTHER * (op.name != label)
                for op in ops
            ])  # fmt: skip
        return self._costs[key]

    def _scheduled(self, number: int, depth: int) -> Iterator[int]:
        """A computation, and those that loops and branches in it run."""
        computation = self._program.computations.get(number)
        if computation is None or depth > _MAX_DEPTH:
            return
        yield number
        for item in computation.instructions:
            if item.opcode in ("while", "conditional", "call", "async-start"):
                for called in item.called_computation_ids:
                    yield from self._scheduled(called, depth + 1)

    def _launching(self, number: int, depth: int) -> Iterator[_Op]:
        """The ops of a computation that launch kernels, in the order of its schedule."""
        computation = self._program.computations.get(number)
        if computation is None or depth > _MAX_DEPTH:
            return
        by_id = {item.id: item for item in computation.instructions}
        order = self._schedule.get(number, [item.id for item in computation.instructions])
        for item in (by_id[n] for n in order if n in by_id):
            if item.opcode in ("call", "async-start"):
                for called in item.called_computation_ids:
                    yield from self._launching(called, depth + 1)
            elif item.opcode not in _SILENT:
                inside: set[str] = set()
                content = b""
                if item.opcode == "fusion":
                    content = b"".join(map(self._content, item.called_computation_ids))
                    inside = {one.opcode for one in self._program.inside(item)}
                own = item.fusion_kind == "kCustom" and _TRITON not in item.backend_config
                library = item.opcode == "custom-call" or own
                moves = item.opcode == "copy" or bool(inside & _SLICES and inside <= _MOVING)
                yield _Op(item.name, content, library, moves)

    def _content(self, number: int, depth: int = 0) -> bytes:
        """What is equal for computations that compute the same, whatever their names."""
        found = self._contents.get(number)
        computation = self._program.computations.get(number)
        if found is not None or computation is None or depth > _MAX_DEPTH:
            return found or b""
        digest = hashlib.sha256()
        place = {item.id: n for n, item in enumerate(computation.instructions)}
        for item in computation.instructions:
            plain = type(item)()
            plain.CopyFrom(item)
            for field in ("name", "metadata", "id", "sharding", "frontend_attributes"):
                plain.ClearField(field)
            plain.operand_ids[:] = [place.get(n, -1) for n in item.operand_ids]
            plain.called_computation_ids[:] = []
            digest.update(plain.SerializeToString(deterministic=True))
            for called in item.called_computation_ids:
                digest.update(self._content(called, depth + 1))
        self._contents[number] = digest.digest()
        return self._contents[number]


def _fit(kernel: str, content: bytes | None, op: _Op) -> float:
    """What it costs to give a kernel of a command buffer to an op.

    Args:
        kernel: its name.
        content: that of the fusion with this name; None for kernels of libraries, copies and fills.
        op: the op.
    """
    name = kernel.lower()
    if content is not None:
        return _UNFIT * (op.content != content)
    if name.startswith("memcpy"):
        return _UNLIKELY * (not op.moves)
    if name.startswith("memset"):
        return _UNLIKELY * (not op.library)
    return _UNFIT * (not op.library)


def _again(previous: tuple[str, str], current: tuple[str, str]) -> float:
    """What it costs to give a kernel to the same op as the one before."""
    if previous[0] != current[0]:
        return _OTHER  # of another command buffer, or op
    if not current[0].startswith(BUFFER):
        return 0.0
    before, now = (name.lower() for _, name in (previous, current))
    if before.startswith("memset") or "splitk" in now:
        return 0.0
    return 0.5 if now.startswith("memset") else 0.3
