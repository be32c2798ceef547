"""How long XLA's GPU compiler thinks that a kernel takes when it decides what to fuse.

The idea: a kernel is a root and the ops that are computed for it. Its time is that of memory
traffic and arithmetic, the shorter of which is nearly hidden:

    time = max(arithmetic, memory) + 0.05 * min(arithmetic, memory)

Bytes of a source count as often as they are read: once for all elementwise readers, and again for
each op in between that is not elementwise; what is read again comes from a cache if it fits.  Few
blocks use a part of the bandwidth and of the processors. A transpose of the last dim that is not
done in tiles wastes most of each transaction.

    kernel = block.alone(node);  pair = block.merged(producer, consumer)

Sources: ``gpu_performance_model_base.cc``, ``gpu_hlo_cost_analysis.cc``, ``hlo_fusion_analysis.cc``
of openxla/xla (2026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from flint.passes.xla.emitters import LANES, PROCESSORS, Emitter
from flint.passes.xla.instructions import Instructions

#: Bytes per nanosecond of memory and one block; sizes of caches, and how much faster they are.
_MEMORY: Final = 3352.32
_BLOCK: Final = 1.98 * 32
_L2: Final = (52_428_800, 2.5)
_L1: Final = (132 * (2 << 10), 8.0)
#: Bytes of a transaction between memory and cache.
_TRANSACTION: Final = 64
#: Operations per nanosecond of one lane.
_LANE: Final = 2 * 1.98
#: Emitters that read in tiles, so that a transpose wastes nothing.
TILED: Final = (Emitter.TRANSPOSE, Emitter.WHOLE_ROWS)
#: Nanoseconds of a launch.
LAUNCH: Final = 1000.0
_HIDDEN: Final = 0.95


@dataclass(frozen=True, slots=True)
class Read:
    """How a kernel reads a source, or computes one of its ops.

    Attributes:
        times: how often each element is read, on average.
        within: the places that read it element by element: op -> how often it is computed.
    """

    times: float
    within: dict[int, float]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Ops that are computed together.

    Attributes:
        root: the op whose result is written.
        members: all ops, the root among them.
        sources: value -> how it is read.
        flops: cycles of arithmetic.
        size: ops that are emitted, one that is computed in several places several times.
        shared: bytes of shared memory.
        reductions: ops that reduce 16 elements or more.
        heroes: reductions that have an emitter of their own.
        turns: whether a transpose moves the last dim.
        row: elements of a row if it holds whole rows, else 0.
        exec, write: nanoseconds in total and for the result.
    """

    root: int
    members: frozenset[int]
    sources: dict[int, Read]
    emitted: dict[int, int]
    flops: float
    size: int
    shared: int
    reductions: int
    heroes: int
    turns: bool
    row: int
    emitter: Emitter
    exec: float
    write: float


class Times(Instructions):
    """Kernels of one block and their times."""

    def alone(self, node: int, rows: frozenset[int] | None = None) -> Kernel:
        """The kernel of an op and what is always computed where it is read.

        Args:
            node: the op.
            rows: the ops of a kernel of whole rows that it ends.
        """
        members = set(rows or (node,))
        ahead = list(members)
        while ahead:
            for value in self.operands(ahead.pop()):
                maker = self.maker[value]
                if maker >= 0 and self.always[maker] and maker not in members:
                    members.add(maker)
                    ahead.append(maker)
        row = max((self.row_of(each) for each in rows or () if each in self.reduced), default=0)
        return self.kernel(node, frozenset(members), row=row)

    def kernel(
        self, root: int, members: frozenset[int], flops: float | None = None, row: int = 0
    ) -> Kernel:
        """A kernel.

        Args:
            root: the op whose result is written.
            members: its ops.
            flops: cycles; None if no op is computed twice.
            row: elements of a row if it holds whole rows, else 0.
        """
        sources, emitted, cycles, size = self._reads(root, members, row)
        flops = cycles if flops is None else flops
        emitter, blocks, threads = self.runs(root, members, sources, row)
        turns = any(self.turns[each] for each in members)
        write = self.written[root] / _MEMORY
        arithmetic = arithmetic_of(flops, blocks, threads)
        reads = {value: read.times for value, read in sources.items()}
        wasted = turns and emitter not in TILED
        memory = write + self.reading(reads, blocks, wasted)
        if len(members) == 1:  # an op alone that takes a value twice counts it twice
            twice = {value for value in reads if self.operands(root).count(value) > 1}
            memory += self.reading({value: reads[value] for value in twice}, blocks, wasted)
        return Kernel(
            root,
            members,
            sources,
            emitted,
            flops,
            size,
            sum(self.shared[each] for each in members),
            sum(self.reduces[each] for each in members),
            sum(self.heroes[each] for each in members),
            turns,
            row,
            emitter,
            together(arithmetic, memory),
            write,
        )

    def fused(self, producer: Kernel, consumer: Kernel, side: bool = False) -> float:
        """Nanoseconds of a consumer that computes its producer's result itself.

        Args:
            producer, consumer: the kernels.
            side: whether the result is written, too.
        """
        value = self.first[producer.root]
        inner = consumer.sources[value]
        members = producer.members | consumer.members
        row = producer.row or consumer.row
        twice = row and len(consumer.members) == 1 and self.operands(consumer.root).count(value) > 1
        reads = {each: read.times for each, read in consumer.sources.items() if each != value}
        for each, read in producer.sources.items():
            if row:
                reads[each] = max(reads.get(each, 0.0), read.times)
                continue
            more = read.times * inner.times
            if each in reads:
                more -= self._common(producer, consumer, each, inner)
            reads[each] = reads.get(each, 0.0) + more
        if row:
            reads = {each: self._tiled(each, times, row) for each, times in reads.items()}
        both = producer.members & consumer.members
        emitter, blocks, threads = self.runs(consumer.root, members, reads, row, both)
        arithmetic = arithmetic_of(self.cycles_of(producer, consumer), blocks, threads)
        wasted = (producer.turns or consumer.turns) and emitter not in TILED
        memory = self.reading(reads, blocks, wasted) + consumer.write
        if twice:  # an op alone that takes a value twice computes it twice
            again = {each: reads[each] for each in producer.sources}
            memory += self.reading(again, blocks, wasted)
        return together(arithmetic, memory + side * producer.write)

    def cycles_of(self, producer: Kernel, consumer: Kernel) -> float:
        """Cycles of a consumer that computes its producer's result itself, what both do twice."""
        times = consumer.sources[self.first[producer.root]].times
        row = producer.row or consumer.row
        if not row:
            return producer.flops * times + consumer.flops
        made, used = (
            each.flops + sum(self.filling(node, row) for node in each.members if not each.row)
            for each in (producer, consumer)
        )
        return made * min(times, 1.0) + used

    def _tiled(self, value: int, times: float, row: int) -> float:
        """How often a kernel of whole rows reads a source: a number of each row once."""
        shape = self.kinds[value].shape
        return times if shape and shape[-1] == row else min(times, 1.0)

    def _common(self, producer: Kernel, consumer: Kernel, value: int, inner: Read) -> float:
        """How often elements that both read are read by the same thread."""
        if producer.sources[value].within.get(producer.root) != 1.0:
            return 0.0
        theirs = consumer.sources[value].within
        return sum(times for place, times in inner.within.items() if place in theirs)

    def _reads(
        self, root: int, members: frozenset[int], row: int
    ) -> tuple[dict[int, Read], dict[int, int], float, int]:
        """How the sources are read, how often ops are emitted, cycles and emitted ops.

        Ops are known by their numbers, sources by the complement of the value's number.
        """
        within: dict[int, set[int]] = {root: {root}}
        times: dict[int, float] = {root: 1.0}
        copies: dict[int, int] = {root: 1}
        emitted: dict[int, int] = {}
        flops, size = 0.0, 0
        for node in sorted(members, reverse=True):
            places = within.get(node)
            if places is None:
                continue
            mine = sum(times[place] for place in places)
            mine = min(mine, 1.0) if row else mine
            number = emitted[node] = sum(copies[place] for place in places)
            flops += mine * (self.cycles[node] + self.filling(node, row))
            size += number
            for entry in range(self.ptr[node], self.ptr[node + 1]):
                value = self.operand[entry]
                maker = self.maker[value]
                key = maker if maker in members else ~value
                if self.elementwise[node]:
                    within.setdefault(key, set()).update(places)
                    continue
                within.setdefault(key, set()).add(key)
                whole = max(self.elements[value], 1)
                more = math.ceil(mine * self.share[entry] * whole) / whole
                times[key] = times.get(key, 0.0) + more
                copies[key] = copies.get(key, 0) + number
        sources = {}
        for key, places in within.items():
            if key < 0:
                inside = {place: times[place] for place in places}
                often = sum(inside.values())
                if row:
                    often = self._tiled(~key, max(inside.values()), row)
                sources[~key] = Read(often, inside)
                emitted[key] = sum(copies[place] for place in places)
        return sources, emitted, flops, size

    def reading(self, reads: dict[int, float], blocks: int, wasted: bool) -> float:
        """Nanoseconds of reading sources, value -> how often."""
        total, ceiling = 0.0, blocks * _BLOCK
        for value, times in reads.items():
            size = self.sizes[value]
            whole = size * times
            net = min(size, whole)
            part = self.width[value] / _TRANSACTION if wasted else 1.0
            again = _MEMORY
            if net < _L2[0]:
                again *= _L2[1] * (_L1[1] if net < _L1[0] else 1.0)
            else:
                again *= part
            total += net / min(_MEMORY * part, ceiling) + (whole - net) / min(again, ceiling)
        return total


def arithmetic_of(flops: float, blocks: int, threads: int) -> float:
    """Nanoseconds of so many cycles."""
    return flops / (_LANE * min(blocks, PROCESSORS) * min(threads, LANES))


def together(arithmetic: float, memory: float) -> float:
    """Nanoseconds of arithmetic and memory traffic, the shorter nearly hidden."""
    return arithmetic + memory - _HIDDEN * min(arithmetic, memory)
