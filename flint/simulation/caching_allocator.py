"""PyTorch's caching allocator, run on a program's allocations: how much memory it reserves.

The idea: ``torch.cuda.max_memory_reserved``, and whether a step fits, depend not on the bytes that
are alive but on the segments that the allocator has taken from CUDA.  It rounds sizes up, keeps a
pool for every stream (memory freed on one stream is not used on another), takes the smallest free
block that is large enough, splits it, and joins free neighbours; segments stay.  So the step is run
through it as in PyTorch: twice, because the optimizer creates its state at the end of the first
step, in memory that activations used before.

    usage(allocations).reserved

If the device is full, completely free segments are returned to CUDA before it gives up.

Constants and rules: c10/cuda/CUDACachingAllocator.cpp (torch 2.13).  Left out: blocks that
``record_stream`` keeps until another stream has finished.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.allocations import BEFORE, FIRST_STEP, HOST, NEVER, Allocations
from flint.mesh.ragged import Ints

_MIB: Final = 2**20
#: kMinBlockSize: sizes are multiples of it.
_BLOCK: Final = 512
#: kSmallSize: blocks up to this size have separate pools, with segments of kSmallBuffer.
_SMALL, _SMALL_SEGMENT = _MIB, 2 * _MIB
#: kMinLargeAlloc: smaller blocks come from segments of kLargeBuffer; larger ones have segments of
#: their own size, rounded up to kRoundLarge.
_LARGE, _LARGE_SEGMENT, _ROUND = 10 * _MIB, 20 * _MIB, 2 * _MIB


@dataclass(frozen=True, slots=True)
class Usage:
    """The memory that a step takes.

    Attributes:
        allocated: the most bytes alive at once, as requested.
        reserved: the most bytes of all segments.
        host: the most bytes alive at once in the host's memory.
        retries: how often per step the device was full, so that segments were returned to CUDA.
    """

    allocated: int
    reserved: int
    host: int
    retries: int = 0


@dataclass(slots=True)
class _Pool:
    """Blocks of one stream, small or large.

    Attributes:
        small: whether it holds blocks of up to ``_SMALL``.
        expandable: it is one segment that grows, instead of many.
        reserved: bytes of its segments.
        top: start of the next segment.
        free: (size, address) of free blocks, sorted: the best fit is the first that is large
            enough.
        sizes: address -> size of free blocks; ``ends``: end of one -> its address.
        segments: address -> size of each, if there are many.
        holes: (size, address) of what a growing segment has returned.
    """

    small: bool
    expandable: bool
    reserved: int = 0
    top: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    segments: dict[int, int] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)

    def allocate(self, size: int) -> tuple[int, int]:
        """A block of at least ``size`` bytes: address and size."""
        return self._split(*(self._best(size) or self._grown(size)), size)

    def needs(self, size: int) -> int:
        """Bytes that must be taken from CUDA for a block of at least ``size`` bytes."""
        last = self.sizes[self.ends[self.top]] if self.expandable and self.top in self.ends else 0
        at = bisect.bisect_left(self.free, (size, -1))
        if at < len(self.free):
            return 0
        return self._step(size - last) if self.expandable else _segment(size, self.small)

    def give_back(self) -> None:
        """Return completely free segments to CUDA."""
        for size, address in list(self.free):
            if self.segments.get(address) == size:
                self.reserved -= self._take(address)
                del self.segments[address]
            elif self.expandable:
                low = self._step(address)
                high = (address + size) - (address + size) % self._step(1)
                if low < high:
                    self._unmap(address, low, high)

    def _unmap(self, address: int, low: int, high: int) -> None:
        """Return whole pages, from ``low`` to ``high``, of the free block at an address."""
        end = address + self._take(address)
        self.reserved -= high - low
        if address < low:
            self._put(address, low - address)
        if high < end:
            self._put(high, end - high)
        if end == self.top:
            self.top = low
        else:
            bisect.insort(self.holes, (high - low, low))

    def _step(self, size: int) -> int:
        """Bytes in whole pages of a growing segment."""
        step = _SMALL_SEGMENT if self.small else _LARGE_SEGMENT
        return -(-size // step) * step

    def _split(self, address: int, whole: int, size: int) -> tuple[int, int]:
        """Take a block from a free one; the rest stays free."""
        rest = whole - size
        splits = rest >= _BLOCK if self.small or self.expandable else rest > _SMALL
        if splits:
            self._put(address + size, rest)
            return address, size
        return address, whole

    def release(self, address: int, size: int) -> None:
        """Free a block; free neighbours in its segment are joined with it."""
        following = self.sizes.get(address + size)
        if following is not None:
            self._take(address + size)
            size += following
        before = self.ends.get(address)
        if before is not None:
            size += self._take(before)
            address = before
        self._put(address, size)

    def _best(self, size: int) -> tuple[int, int] | None:
        """The smallest free block that is large enough; the end of a growing segment counts as
        larger than any.
        """
        for whole, address in self.free[bisect.bisect_left(self.free, (size, -1)) :]:
            last = self.expandable and address + whole == self.top
            if not last or self.free[-1] == (whole, address):
                return address, self._take(address)
        return None

    def _grown(self, size: int) -> tuple[int, int]:
        """A new block at the end of the existing memory."""
        if self.expandable:
            at = bisect.bisect_left(self.holes, (self._step(size), -1))
            if at < len(self.holes):
                return self._mapped(*self.holes.pop(at), size)
            address = self.ends.get(self.top, self.top)
            there = self._take(address) if address < self.top else 0
            more = self._step(size - there)
        else:
            there, more = 0, _segment(size, self.small)
            address = self.top = self.top + _BLOCK  # not a neighbour of the previous segment
            self.segments[address] = more
        self.top += more
        self.reserved += more
        return address, there + more

    def _mapped(self, hole: int, address: int, size: int) -> tuple[int, int]:
        """A new block in a hole."""
        more = self._step(size)
        self.reserved += more
        if more < hole:
            bisect.insort(self.holes, (hole - more, address + more))
        return address, more

    def _put(self, address: int, size: int) -> None:
        bisect.insort(self.free, (size, address))
        self.sizes[address], self.ends[address + size] = size, address

    def _take(self, address: int) -> int:
        size = self.sizes.pop(address)
        del self.ends[address + size]
        del self.free[bisect.bisect_left(self.free, (size, address))]
        return size


def _segment(size: int, small: bool) -> int:
    """Bytes to take from CUDA for a block."""
    if small:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if size < _LARGE else -(-size // _ROUND) * _ROUND


class _Allocator:
    """The pools of all streams, and the allocated blocks."""

    def __init__(self, expandable: bool, limit: int | None) -> None:
        self.pools: dict[tuple[int, bool], _Pool] = {}
        self.retries = 0
        self.most = 0
        self._expandable = expandable
        self._limit = limit
        self._out: dict[int, tuple[_Pool, int, int]] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._out

    def allocate(self, row: int, size: int, stream: int) -> None:
        """Allocate a row's memory."""
        size = max(_BLOCK, -(-size // _BLOCK) * _BLOCK)
        key = stream, size <= _SMALL
        if key not in self.pools:
            self.pools[key] = _Pool(key[1], self._expandable)
        pool = self.pools[key]
        more = pool.needs(size)
        if more and self._limit is not None and self._reserved() + more > self._limit:
            self.retries += 1
            for item in self.pools.values():
                item.give_back()
        self._out[row] = (pool, *pool.allocate(size))
        if more:
            self.most = max(self.most, self._reserved())

    def _reserved(self) -> int:
        return sum(item.reserved for item in self.pools.values())

    def release(self, row: int) -> None:
        """Free a row's memory."""
        pool, address, size = self._out.pop(row)
        pool.release(address, size)


def usage(allocations: Allocations, limit: int | None = None) -> Usage:
    """The memory of device and host that a program's steps take on one rank.

    Args:
        allocations: the allocations of a step.
        limit: bytes of the device that it may use; None for no limit.
    """
    on_host = allocations.pool == HOST
    size, pool = allocations.size.tolist(), allocations.pool.tolist()
    device = np.flatnonzero(~on_host)
    allocator = _Allocator(allocations.expandable, limit)
    before = allocations.born == BEFORE
    for row in device[before[device]].tolist():
        allocator.allocate(row, size[row], pool[row])
    events = _events(allocations, device)
    for step in range(2):
        for row, begins in events:
            if not begins:
                allocator.release(row)
            elif row not in allocator:  # what outlives the step is the same in the next one
                allocator.allocate(row, size[row], pool[row])
        if step == 0:
            allocator.retries = 0
            for row in device[(allocations.born == FIRST_STEP)[device]].tolist():
                allocator.allocate(row, size[row], pool[row])
    return Usage(
        allocated=_most(allocations, ~on_host),
        reserved=allocator.most,
        host=_most(allocations, on_host),
        retries=allocator.retries,
    )


def _events(allocations: Allocations, rows: Ints) -> list[tuple[int, bool]]:
    """(row, whether it begins) of a step, in order: what is freed before an op, then what the op
    allocates.
    """
    rows = rows[allocations.born[rows] >= 0]
    born, freed = allocations.born[rows], allocations.freed[rows]
    over = freed != NEVER
    # Memory that no op uses is freed right after it was allocated.
    moments = np.concatenate([born * 3 + 1, freed[over] * 3 + 2 * (freed == born)[over]])
    events = [(row, True) for row in rows.tolist()] + [(row, False) for row in rows[over].tolist()]
    return [events[at] for at in np.argsort(moments, kind="stable").tolist()]


def _most(allocations: Allocations, chosen: NDArray[np.bool_]) -> int:
    """The most bytes of some rows that are alive at once."""
    size, born = allocations.size[chosen], allocations.born[chosen]
    freed = allocations.freed[chosen]
    over = freed != NEVER
    moments = np.concatenate([freed[over] * 2, born * 2 + 1])
    change = np.concatenate([-size[over], size])
    order = np.argsort(moments, kind="stable")
    return int(np.cumsum(change[order]).max(initial=0))
