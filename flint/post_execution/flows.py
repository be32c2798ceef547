"""Data between units, for a whole step at once: which unit wrote what another one reads.

The idea: a *use* is one tensor of one unit.  Most storages are only used as one range of bytes: for
these, the last write before each read is found by sorting, for all together.  The others go unit by
unit through ``Memory``, which cuts them into pieces.

    flows = flows_of(units, accesses, notes)
    flows.operand[flows.operand_ptr[7] : flows.operand_ptr[8]]   # 3, -1: of unit 3, and input 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.distinct import distinct
from flint.graph.tensor_types import TensorType
from flint.mesh.ragged import Ints, pointer, total_by_row
from flint.passes import columns
from flint.post_execution.edges import CONTRADICTED, JITTER
from flint.post_execution.graphs import Flows
from flint.post_execution.memory import Memory
from flint.post_execution.storages import EVERYTHING, HIDDEN, Access
from flint.post_execution.units import Units

Mask = NDArray[np.bool_]

_HIDDEN = (
    "ops on tensors without a storage in the trace (sparse ones): each waits for the previous "
    "one, and their bytes are unknown"
)
#: The most bytes of all tensors of a unit, so that sums stay within 64 bits.
_LARGEST = 1 << 62


@dataclass(frozen=True, eq=False)
class _Uses:
    """Uses of tensors, in the order of units and of their tensors.

    Attributes:
        accesses: memory accesses of ops; equal ones mostly only once.
        access: the access of each use, shape [uses].
        unit: the unit that uses the tensor, ascending; shape [uses].
        storage: number of the storage, from 0; shape [uses].
        place: number of unit and range of bytes, shape [uses].
        reads, writes: whether the unit does, shape [uses].
        alone: whether its storage is only used as this range, and written as a whole; shape [uses].
        bytes: bytes of the tensor, shape [uses].
    """

    accesses: list[Access]
    access: Ints
    unit: Ints
    storage: Ints
    place: Ints
    reads: Mask
    writes: Mask
    alone: Mask
    bytes: Ints

    def kind(self, use: int) -> TensorType:
        """The type of the tensor."""
        return self.accesses[int(self.access[use])].kind


def flows_of(units: Units, tensors: list[tuple[Access, ...]], notes: dict[str, int]) -> Flows:
    """The data between units.

    Args:
        units: in order of issue.
        tensors: for each unit, the memory accesses of its op; for an op with several units, the
            first one reads and the last one writes.
        notes: edges that the times contradict are counted here.

    Raises:
        FlintError: the tensors of a unit have an impossible number of bytes.
    """
    uses = _uses(units, tensors)
    reads, writes = np.flatnonzero(uses.reads), _written(uses)
    one = _of_ranges(uses, reads[uses.alone[reads]], writes[uses.alone[writes]])
    more = _of_pieces(uses, reads[~uses.alone[reads]], writes[~uses.alone[writes]])
    use, source = np.concatenate([one, more], axis=1)
    order = np.argsort(use, kind="stable")
    use, source = use[order], source[order]
    if units.timed:
        over = units.end[np.maximum(source, 0)]
        late = (source >= 0) & (over > units.start[uses.unit[use]] + JITTER)
        use, source = use[~late], source[~late]
        if late.any():
            notes[CONTRADICTED] = notes.get(CONTRADICTED, 0) + int(late.sum())
    hidden = np.array([access.storage == HIDDEN for access in uses.accesses], bool)[uses.access]
    if (hidden & (uses.reads | uses.writes)).any():
        notes[_HIDDEN] = notes.get(_HIDDEN, 0) + len(distinct(uses.unit[hidden]))
    inputs, operand_ptr, operand = _operands(uses, use, source, len(units))
    types, result = _results(uses, writes, len(units))
    taken = np.array([access.taken for access in uses.accesses], np.int64)[uses.access]
    looked_at = np.append(-1, distinct(uses.place[reads]))
    before = np.searchsorted(looked_at, uses.place[writes], side="right") - 1
    in_place = writes[looked_at[before] == uses.place[writes]]
    read = _totals(uses, taken, reads, len(units))
    written, aliased = (_totals(uses, uses.bytes, w, len(units)) for w in (writes, in_place))
    return Flows(inputs, types, operand_ptr, operand, result, read, written, aliased)


def _uses(units: Units, tensors: list[tuple[Access, ...]]) -> _Uses:
    flat = [access for accesses in tensors for access in accesses]
    known = dict(zip(map(id, flat), flat, strict=True))
    number = dict(zip(known, range(len(known)), strict=True))
    access = np.fromiter(map(number.__getitem__, map(id, flat)), np.int64, len(flat))
    accesses = list(known.values())
    unit = np.repeat(np.arange(len(tensors)), [len(accesses) for accesses in tensors])
    bounds = np.array([item[:3] for item in accesses], np.int64).reshape(-1, 3).T
    _, low, high = bounds
    read, written = np.array([item[3:5] for item in accesses], bool).reshape(-1, 2).T
    size = np.array([item.kind.bytes for item in accesses], np.int64)
    _, storage = columns.distinct(bounds[0])
    first_of_range, range_ = columns.distinct(*bounds)
    alone = np.bincount(storage[first_of_range], minlength=len(accesses)) == 1
    whole = read | (high - low <= size) | (high == EVERYTHING)
    alone[storage[(low >= high) | (written & ~whole)]] = False
    first, last = _ends(units)
    return _Uses(
        accesses=accesses,
        access=access,
        unit=unit,
        storage=storage[access],
        place=unit * max(1, len(first_of_range)) + range_[access],
        reads=read[access] & first[unit],
        writes=written[access] & last[unit],
        alone=alone[storage[access]],
        bytes=size[access],
    )


def _ends(units: Units) -> tuple[Mask, Mask]:
    """Which units are the first, and which the last, of their op."""
    _, first = np.unique(units.row, return_index=True)
    _, behind = np.unique(units.row[::-1], return_index=True)
    starts, stops = np.zeros((2, len(units)), bool)
    starts[first] = True
    stops[len(units) - 1 - behind] = True
    return starts, stops


def _written(uses: _Uses) -> Ints:
    """Uses that write, each range once per unit, because an in-place argument is also a result.

    In the order of their last uses in the unit; they are the first ones.
    """
    writes = np.flatnonzero(uses.writes)
    writes = writes[np.argsort(uses.place[writes], kind="stable")]
    new = np.diff(uses.place[writes], prepend=-1) > 0
    last = writes[np.append(new[1:], True)[: len(writes)]]
    return writes[new][np.argsort(last)]


def _of_ranges(uses: _Uses, reads: Ints, writes: Ints) -> tuple[Ints, Ints]:
    """Uses that read, with their source, for storages that are only used as one range.

    The source is a unit, or ``-1 - use`` for the first use that reads data that no unit has
    written.
    """
    span = int(uses.unit.max(initial=0)) + 1
    made = np.sort(uses.storage[writes] * span + uses.unit[writes])
    made = np.insert(made, 0, -1)  # of no storage
    storage = uses.storage[reads]
    latest = made[np.searchsorted(made, storage * span + uses.unit[reads]) - 1]
    source = latest % span
    given = latest // span != storage
    first = np.zeros(int(storage.max(initial=0)) + 1, np.int64)
    first[storage[given][::-1]] = reads[given][::-1]
    source[given] = -1 - first[storage[given]]
    return reads, source


def _of_pieces(uses: _Uses, reads: Ints, writes: Ints) -> tuple[Ints, Ints]:
    """The same for other storages; a use may read data from several units."""
    memory = Memory()
    found: list[tuple[int, int]] = []
    use = np.concatenate([reads, writes])
    writing = np.arange(len(use)) >= len(reads)
    order = np.lexsort((writing, uses.unit[use]))  # a unit reads before it writes
    use = use[order]
    listed = (column.tolist() for column in (use, uses.unit[use], uses.access[use], writing[order]))
    for at, unit, access, writes_it in zip(*listed, strict=True):
        storage, low, high, read, _, kind, _ = uses.accesses[access]
        if writes_it:
            whole = read or high - low <= kind.bytes or high == EVERYTHING
            memory.write(storage, low, high, unit, whole)
            continue
        writers = memory.writers(storage, low, high)
        if not writers:
            writers = (-1 - at,)
            memory.write(storage, low, high, -1 - at, True)
        found += [(at, writer) for writer in writers]
    at, source = np.array(found, np.int64).reshape(-1, 2).T
    return at, source


def _operands(
    uses: _Uses, use: Ints, source: Ints, units: int
) -> tuple[tuple[TensorType, ...], Ints, Ints]:
    """Inputs, and the operands of each unit, each once.

    Args:
        uses: uses of tensors.
        use, source: reading uses and their sources, as from ``_of_ranges``.
        units: number of units.
    """
    given = distinct(-1 - source[source < 0])
    inputs = tuple(uses.kind(first) for first in given.tolist())
    source = np.where(source < 0, -1 - np.searchsorted(given, -1 - source), source)
    pair = uses.unit[use] * (units + len(inputs)) + source + len(inputs)
    kept = np.sort(np.unique(pair, return_index=True)[1])
    ptr = pointer(np.bincount(uses.unit[use[kept]], minlength=units))
    return inputs, ptr, source[kept]


def _results(uses: _Uses, writes: Ints, units: int) -> tuple[tuple[TensorType, ...], Ints]:
    """Types of the results of units, in order of first use, and the type of each unit.

    A unit has one type for everything that it writes; for several tensors, one with as many bytes.
    """
    numbers: dict[TensorType, int] = {}
    kinds = {id(access.kind): access.kind for access in uses.accesses}  # few: equal ones are one
    place = {key: numbers.setdefault(kind, len(numbers)) for key, kind in kinds.items()}
    number = [place[id(access.kind)] for access in uses.accesses]
    result = np.full(units, -1, np.int64)
    result[uses.unit[writes]] = np.array(number, np.int64)[uses.access[writes]]
    total = _totals(uses, uses.bytes, writes, units)
    for unit in np.flatnonzero(np.bincount(uses.unit[writes], minlength=units) > 1).tolist():
        together = TensorType((int(total[unit]),), "ui8", int(total[unit]))
        result[unit] = numbers.setdefault(together, len(numbers))
    some = result >= 0
    used, first = np.unique(result[some], return_index=True)
    used = used[np.argsort(first)]
    rank = np.zeros(len(numbers), np.int64)
    rank[used] = np.arange(len(used))
    result[some] = rank[result[some]]
    types = list(numbers)
    return tuple(types[i] for i in used.tolist()), result


def _totals(uses: _Uses, values: Ints, some: Ints, units: int) -> Ints:
    """Sums by unit over some uses, shape [units]."""
    row = uses.unit[some]
    if np.bincount(row, weights=values[some]).max(initial=0) > _LARGEST:
        raise FlintError("the tensors of one op have more than 2^62 bytes: the trace is damaged")
    return total_by_row(values[some], row, units)
