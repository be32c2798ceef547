"""Which ops XLA's GPU compiler computes in their readers' kernels (``PriorityFusion``).

The idea: a kernel is computed in all of its readers, and then not written, if every reader can do
that and if it saves time (``flint.passes.xla.times``). What saves most is done first; what read it
and what it reads is then estimated again, until nothing saves time.

A kernel cannot be computed in

- products, library calls, communications, loops; or what it is written for is an output;
- a kernel that reduces, if it reduces itself;
- other kernels, if it ends in a reduction, except for conversions and the like of its result;
- kernels that would need more shared memory, operands or code than there is.

    queue = Queue(Times(graph), apart);  queue.run();  queue.gone, queue.kernels

Source: ``priority_fusion.cc``, ``gpu_fusible.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import accessed_bytes, can_make_itself, transparent_nodes
from flint.passes.xla.emitters import SHARED_BYTES, Emitter
from flint.passes.xla.softmax import diamonds
from flint.passes.xla.times import LAUNCH, Kernel, Times

#: The most operands and results of a kernel, ops that are emitted for it, reductions in it.
MAX_VALUES: Final = 96
_SIZE: Final = 10_000
MAX_HEROES: Final = 8

_FUSIBLE: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.UPDATE)


class Queue:
    """The kernels of one block, fused one after the other.

    Attributes:
        times: of the block's ops.
        gone: ops that all of their readers compute, shape [nodes].
        kernels: the others by their roots.
        reads: the values that each kernel reads, in the order in which it began to.
        readers: the same by value.
    """

    def __init__(self, times: Times, apart: NDArray[np.bool_]) -> None:
        """Args:
        times: of the ops of one block in issue order.
        apart: ops of the kernels of products and of others that fuse with nothing, [nodes].
        """
        graph, self.times = times.graph, times
        self.trace: list[tuple[int, float]] = []
        self.reads: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        self.gone = np.zeros(len(graph), dtype=bool)
        self.able = [
            (times.free[node] or times.variadic[node])
            and times.role[node] in _FUSIBLE
            and not apart[node]
            for node in range(len(graph))
        ]
        self.looks = can_make_itself(graph)
        self.kernels: dict[int, Kernel] = {}
        #: Kernels whose results something reads that is no fusible kernel.
        self.kept = {times.maker[value] for value in graph.outputs.tolist()}
        self.kept |= {node for node in range(len(graph)) if times.variadic[node]}
        rows = diamonds(times)
        for members in rows.values():
            self.gone[list(members)] = True
        self.gone[list(rows)] = False
        held = [
            not (times.constant[node] or self.gone[node] or (always and not apart[node]))
            for node, always in enumerate(times.always)
        ]
        for node in range(len(graph)):
            if held[node] and not self.able[node]:
                self._keep(node)
        stored = self._stored(graph)
        for node in range(len(graph)):
            if self.able[node] and not self.gone[node] and (held[node] or stored[node]):
                self.kernels[node] = times.alone(node, rows.get(node))
                self._reads(node)
        self.priority: dict[int, float] = {}
        self.pairs: dict[tuple[int, int], float | None] = {}
        self.heap: list[tuple[float, int, int]] = []
        #: Of two that save as much, the younger kernel is fused first.  What is read in another
        #: shape is fused before anything else, so that its readers begin as new kernels.
        self.age = {node: node for node in self.kernels}
        self.youngest = len(graph)
        for node in sorted(self.kernels, reverse=True):
            if times.reshapes(node):
                self.age[node], self.youngest = self.youngest, self.youngest + 1
        for node in self.kernels:
            self._estimate(node)

    def _reads(self, node: int) -> None:
        self.reads[node] = self._ordered(node)
        for value in self.reads[node]:
            self.readers.setdefault(value, []).append(node)

    def _ordered(self, node: int) -> list[int]:
        """A kernel's sources in the order of its operands."""
        sources, ahead = self.kernels[node].sources, [node]
        found: dict[int, None] = {}
        while ahead:
            at = ahead.pop(0)
            for value in self.times.operands(at):
                if value in sources:
                    found[value] = None
                elif self.times.maker[value] in self.kernels[node].members:
                    ahead.append(self.times.maker[value])
        return list(found)

    def _merge_reads(self, node: int, user: int) -> None:
        """A kernel that has become part of a reader is replaced by what it reads."""
        self.reads[user].remove(self.times.first[node])
        for each in self.reads[node]:
            if each not in self.reads[user]:
                self.reads[user].append(each)
                self.readers[each].append(user)

    def _keep(self, node: int) -> None:
        """What a node reads that is not fused with anything, through what it computes again."""
        times = self.times
        ahead = [*range(times.ptr[node], times.ptr[node + 1])]
        while ahead:
            entry = ahead.pop()
            maker = times.maker[times.operand[entry]]
            if maker >= 0:
                self.kept.add(maker)
                if times.alias[maker] or (times.always[maker] and self.looks[entry]):
                    ahead += range(times.ptr[maker], times.ptr[maker + 1])

    def _stored(self, graph: WorkloadGraph) -> NDArray[np.bool_]:
        """Broadcasts that something needs in memory: kernels, though others compute them again."""
        read = np.concatenate([graph.operand[~self.looks], graph.outputs])
        found = np.zeros(len(graph) + 1, dtype=bool)  # one more, for graph inputs
        found[graph.producer[read]] = True
        stored: NDArray[np.bool_] = found[:-1] & (graph.role == Role.MOVEMENT)
        return stored

    def run(self) -> None:
        """Fuse what saves most until nothing saves time."""
        while self.heap:
            negative, age, node = heapq.heappop(self.heap)
            if self.priority.get(node) != -negative or self.age[node] != -age:
                continue
            self._fuse(node)

    def _fuse(self, node: int) -> None:
        times, producer = self.times, self.kernels.pop(node)
        self.trace.append((node, self.priority.pop(node)))
        self.gone[node] = True
        users = self.readers[times.first[node]]
        changed: set[int] = set()
        for user in users:
            consumer = self.kernels[user]
            if self.age[user] == user:
                self.age[user], self.youngest = self.youngest, self.youngest + 1
            self._merge_reads(node, user)
            kernel = times.kernel(
                user,
                producer.members | consumer.members,
                times.cycles_of(producer, consumer),
                producer.row or consumer.row,
            )
            self.kernels[user] = kernel
            changed.add(user)
            for source in kernel.sources:
                maker = times.maker[source]
                if maker in self.kernels:
                    changed.add(maker)
        changed.update(
            maker for source in producer.sources if (maker := times.maker[source]) in self.kernels
        )
        for source in self.reads.pop(node):
            drop(self.readers[source], node)
        for user in users:
            self._forget(user)
        for each in changed:
            self._estimate(each)

    def _forget(self, node: int) -> None:
        for source in self.kernels[node].sources:
            self.pairs.pop((self.times.maker[source], node), None)
        for user in self.readers.get(self.times.first[node], ()):
            self.pairs.pop((node, user), None)

    def _estimate(self, node: int) -> None:
        """Note what computing a kernel in its readers would save."""
        self.priority.pop(node, None)
        users = self.readers.get(self.times.first[node])
        if not users or node in self.kept:
            return
        saved = self.kernels[node].exec + LAUNCH
        for user in users:
            fused = self._pair(node, user)
            if fused is None:
                return
            saved += self.kernels[user].exec - fused
        saved = round(saved * 4) / 4  # XLA's times have this resolution: many are equal
        if saved >= 0:
            self.priority[node] = saved
            heapq.heappush(self.heap, (-saved, -self.age[node], node))

    def _pair(self, node: int, user: int) -> float | None:
        """Nanoseconds of a reader that computes a kernel, None if it cannot."""
        key = (node, user)
        if key not in self.pairs:
            self.pairs[key] = self._fused(self.kernels[node], self.kernels[user])
        return self.pairs[key]

    def _same_rows(self, producer: Kernel, consumer: Kernel) -> bool:
        """Whether all of two kernels' ops work on the same rows, and do nothing but arithmetic or
        cut rows out of a value."""
        times = self.times
        sizes: set[tuple[int, int]] = set()
        for node in producer.members | consumer.members:
            if times.role[node] == Role.REDUCTION:
                row = times.row_of(node)
                if not row:
                    return False
                sizes.add((times.made(node), row))
            elif not times.plain[node] and not times.cuts_rows(node):
                return False
        if len(sizes) != 1:
            return False
        [(rows, length)] = sizes
        return times.made(consumer.root) in (rows, rows * length)

    def _fused(self, producer: Kernel, consumer: Kernel) -> float | None:
        times = self.times
        value = times.first[producer.root]
        role = times.role[consumer.root]
        if role == Role.UPDATE:  # what it overwrites is read by nothing that it computes
            overwritten = times.operands(consumer.root)[0]
            if value == overwritten or overwritten in producer.sources:
                return None
        if times.role[producer.root] == Role.UPDATE:
            return None
        if producer.row or consumer.row:
            if not self._same_rows(producer, consumer):
                return None
            return times.fused(producer, consumer)
        if producer.reductions and consumer.reductions:
            return None
        if producer.shared + consumer.shared > SHARED_BYTES:
            return None
        if producer.heroes + consumer.heroes > MAX_HEROES:
            return None
        if producer.emitter in (Emitter.ROWS, Emitter.COLUMNS):
            emitter, _ = times.hero(consumer.root, producer.members | consumer.members)
            if emitter not in (Emitter.ROWS, Emitter.COLUMNS):
                return None
        sources = len(producer.sources.keys() | consumer.sources.keys()) - 1
        if sources + 2 > MAX_VALUES and sources > len(consumer.sources):
            return None
        if producer.size * consumer.emitted.get(~value, 1) + consumer.size > _SIZE:
            return None
        return times.fused(producer, consumer)


def drop(readers: list[int], node: int) -> None:
    """Remove a reader of a value; the last one takes its place, as in XLA's lists."""
    last = readers.pop()
    if last != node:
        readers[readers.index(node)] = last


def needed(graph: WorkloadGraph, found: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Inlined nodes without those that only one kernel absorbs as a whole, which need not be
    computed twice, shape [nodes].
    """
    part = accessed_bytes(graph) < graph.value_bytes[graph.operand]
    part &= (graph.role == Role.MOVEMENT)[graph.consumer] & (graph.producer[graph.operand] >= 0)
    parts = set(graph.producer[graph.operand[part]].tolist())
    users: dict[int, set[int]] = {}
    for maker, user in zip(
        graph.producer[graph.operand].tolist(), graph.consumer.tolist(), strict=True
    ):
        users.setdefault(maker, set()).add(user)
    chosen, passes = found.tolist(), transparent_nodes(graph).tolist()
    for node in range(len(graph) - 1, -1, -1):
        if chosen[node] and graph.role[node] != Role.REDUCTION:
            mine = users[node]
            again = any(chosen[user] or passes[user] for user in mine)
            chosen[node] = len(mine) > 1 or again or node in parts
    return np.array(chosen, dtype=bool)
