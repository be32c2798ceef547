"""Data between units: who wrote what somebody reads, by storage and byte.

The idea: an execution trace says of each op which parts of which storages its tensors are.  Going
through the units in order of issue, every read finds the last writers of its bytes; what is read
before anything has written it comes from outside of the step.  A tensor whose strides the trace
does not have is taken as its whole storage, and those whose storages it does not have as one: an
edge too many, never one too few.

    flows = flows_of(units, accesses, op_of_unit)
    flows.operand[flows.operand_ptr[7] : flows.operand_ptr[8]]   # 3, -1: of unit 3, and input 0
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.post_execution.edges import CONTRADICTED, JITTER
from flint.post_execution.graphs import Flows
from flint.post_execution.memory import Memory
from flint.post_execution.units import Units
from flint.tensor_types import TensorType

Ints = NDArray[np.int64]

#: Past the last byte of a tensor whose strides are not known.
EVERYTHING = 1 << 62
#: Storage of all tensors whose storages the trace does not tell (sparse ones).
HIDDEN = -1
_HIDDEN = (
    "ops on tensors without a storage in the trace (sparse ones): each is taken to need the one "
    "before it, and their bytes are not known"
)


class Access(NamedTuple):
    """One tensor of an op.

    Attributes:
        storage: number of its storage.
        low, high: first byte and past the last one; of everything where strides are not known.
        read: whether the op comes after those that wrote it.
        written: whether it writes it.
        kind: its type.
        taken: bytes that it reads of it.
    """

    storage: int
    low: int
    high: int
    read: bool
    written: bool
    kind: TensorType
    taken: int


@dataclass(frozen=True, eq=False)
class Accesses:
    """What the ops of an execution trace do with memory.

    Attributes:
        record: the profiler's number of each op, which Kineto has too; shape [rows].
        names: of each op; shape [rows].
        tensors: per row its tensors.
        groups: process group's name -> ranks.
    """

    record: Ints
    names: list[str]
    tensors: list[tuple[Access, ...]]
    groups: dict[str, tuple[int, ...]]


def flows_of(units: Units, tensors: list[tuple[Access, ...]], notes: dict[str, int]) -> Flows:
    """The data between units.

    Args:
        units: in order of issue.
        tensors: per unit what its op does with memory; of an op with several units the first one
            reads and the last one writes.
        notes: is told of what the times contradict.
    """
    memory = Memory()
    inputs: list[TensorType] = []
    types: dict[TensorType, int] = {}
    operand, operand_ptr, result = array("q"), array("q", [0]), array("q")
    columns = [array("q"), array("q"), array("q")]
    contradicted = 0
    timed = units.timed
    start, end = (units.start + JITTER).tolist(), units.end.tolist()
    for unit, (accesses, first, last) in enumerate(zip(tensors, *_ends(units), strict=True)):
        sources: dict[int, None] = {}
        written: list[Access] = []
        touched: set[int] = set()
        read = 0
        for access in accesses:
            storage, low, high, reads, writes, kind, taken = access
            if writes and last:
                written.append(access)
            if not (reads and first):
                continue
            read += taken
            touched.add(storage)
            writers = memory.writers(storage, low, high)
            if not writers:
                inputs.append(kind)
                writers = [-len(inputs)]
                memory.write(storage, low, high, -len(inputs), True)
            for writer in writers:
                if timed and writer >= 0 and end[writer] > start[unit]:
                    contradicted += 1
                    continue
                sources[writer] = None
        if len(written) > 1:  # what is changed in place is an argument and a result
            written = list({access[:3]: access for access in reversed(written)}.values())[::-1]
        for access in written:
            storage, low, high, reads, _, kind, _ = access
            whole = reads or high - low <= kind.bytes or high == EVERYTHING
            memory.write(storage, low, high, unit, whole)
        again = [access for access in written if access.storage in touched]
        operand.extend(sources)
        operand_ptr.append(len(operand))
        result.append(types.setdefault(_together(written), len(types)) if written else -1)
        columns[0].append(read)
        columns[1].append(sum([access.kind.bytes for access in written]))
        columns[2].append(_in_place(again, accesses) if again else 0)
    if HIDDEN in memory:
        touching = sum(any(item.storage == HIDDEN for item in accesses) for accesses in tensors)
        notes[_HIDDEN] = notes.get(_HIDDEN, 0) + touching
    if contradicted:
        notes[CONTRADICTED] = notes.get(CONTRADICTED, 0) + contradicted
    found = (np.array(column, np.int64) for column in (operand_ptr, operand, result, *columns))
    return Flows(tuple(inputs), tuple(types), *found)


def _ends(units: Units) -> tuple[list[bool], list[bool]]:
    """Which units are the first, and which the last, of their op."""
    _, first = np.unique(units.row, return_index=True)
    _, behind = np.unique(units.row[::-1], return_index=True)
    marks = np.zeros((2, len(units)), bool)
    marks[0, first] = True
    marks[1, len(units) - 1 - behind] = True
    starts: list[bool] = marks[0].tolist()
    stops: list[bool] = marks[1].tolist()
    return starts, stops


def _in_place(written: list[Access], accesses: tuple[Access, ...]) -> int:
    """Bytes that are written where the same bytes are read."""
    read = {access[:3] for access in accesses if access.read}
    return sum(access.kind.bytes for access in written if access[:3] in read)


def _together(written: list[Access]) -> TensorType:
    """One type for what a unit writes; of several tensors as many bytes."""
    if len(written) == 1:
        return written[0].kind
    size = sum(access.kind.bytes for access in written)
    return TensorType((size,), "ui8", size)


def reach_of(shape: tuple[int, ...] | None, strides: object) -> int | None:
    """From a tensor's first element in its storage to its last one, in elements.

    None where it is not known, or not said by strides as PyTorch has them.

    Args:
        shape: None where the trace does not have it.
        strides: as the trace has them.
    """
    if shape is None or not isinstance(strides, list) or len(shape) != len(strides):
        return None
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return None
    steps: list[int] = strides
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
