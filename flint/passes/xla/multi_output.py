"""Kernels with several results, as XLA's GPU compiler joins them (``MultiOutputFusion``).

The idea: from the last kernel to the first, the readers of a value that run alike become one
kernel, which reads it once; then what makes the value becomes one with a reader of it, if that
saves time (``flint.passes.xla.times``): it is written for the others, and this one has it in
registers.

- Kernels run alike if they loop over as many elements, those that reduce over their operand's; if
  they reduce, over the same runs of dims; if they transpose in tiles, the same shape.
- A kernel that reduces, transposes or updates a buffer is no producer, nor is one with one reader.
- Shared memory and reductions are limited, so that one kernel has two sums of columns in f32, and
  five in bf16.
- Outside of loops, copies of a buffer that is filled with a constant are results of that kernel
  (``CopyFusion``); so are buffers of the same type.
- Readers of a value are joined with one that consists of several ops; two single ops are not.
- Kernels of whole rows and those that concatenate stay alone; movement alone is joined with a
  reader of its result only. Readers of a kernel of whole rows, or of a product, stay apart.

Source: ``multi_output_fusion.cc``, ``copy_fusion.cc``, ``gpu_fusible.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.work import Role
from flint.passes.multi_output import Joiner, joined_kernels
from flint.passes.xla.emitters import SHARED_BYTES, Emitter
from flint.passes.xla.priority import MAX_HEROES, MAX_VALUES, Queue, drop
from flint.passes.xla.several_results import times_of
from flint.passes.xla.times import Kernel
from flint.passes.xla.transposes import COPY


def join_kernels(
    graph: WorkloadGraph,
    queue: Queue,
    place: Ints,
    products: set[int],
    communicated: list[bool],
    entry: bool,
) -> WorkloadGraph:
    """A graph of kernels with some joined; bodies stay as they are.

    Args:
        graph: in issue order.
        queue: of the graph of ops that the kernels were made from.
        place: the kernel of each of its ops, shape [ops].
        products: ops that end the kernels of products.
        communicated: which inputs may depend on communications, shape [inputs].
        entry: whether it is no loop's body, whose results have the buffers of its inputs.
    """
    joiner = _Joiner(graph, queue, place, products, communicated, entry)
    return joined_kernels(graph, joiner.joined(), joiner.apart())


#: The op that fills a buffer with a constant.
FILL: Final = "broadcast_in_dim"
#: The most readers of a value that each of them is compared with.
_SIBLINGS: Final = 64
#: Values of which parts may be read by one kernel.
_SMALL: Final = 1024


class _Joiner(Joiner):
    def __init__(
        self,
        graph: WorkloadGraph,
        queue: Queue,
        place: Ints,
        products: set[int],
        communicated: list[bool],
        entry: bool,
    ) -> None:
        super().__init__(graph, communicated, False)
        self.elementwise = [True] * len(graph)  # a reader takes in what else a loop makes, too
        self.entry = entry
        self.times = times = queue.times
        self.queue, self.place = queue, place.tolist()
        self.products = products
        self.kernels = {
            self.place[root]: kernel
            for root, kernel in queue.kernels.items()
            if not kernel.row and times.role[root] != Role.UPDATE
            and kernel.emitter != Emitter.CONCATENATE
        }  # fmt: skip
        #: Movement alone: a reader may make it, too, but it takes nothing in.
        self.moves = {
            node
            for node, kernel in self.kernels.items()
            if len(kernel.members) == 1 and not (times.elementwise[kernel.root] or kernel.emitter)
        }
        #: Kernels that read each value, each by the first of those that it was joined from.
        readers = queue.readers.items()
        self.readers = {value: [self.place[root] for root in roots] for value, roots in readers}
        self.reads = {self.place[root]: list(values) for root, values in queue.reads.items()}
        self.runs = {node: self._run(kernel) for node, kernel in self.kernels.items()}
        self.shared = [self._sum(node, "shared") for node in range(len(graph))]
        self.heroes = [self._sum(node, "heroes") for node in range(len(graph))]

    def _sum(self, node: int, name: str) -> int:
        return int(getattr(self.kernels[node], name)) if node in self.kernels else 0

    def _run(self, kernel: Kernel) -> tuple[int, tuple[object, ...]]:
        """Elements that a kernel loops over, and what else must be alike."""
        times = self.times
        emitter, hero = times.hero(kernel.root, kernel.members)
        if emitter == Emitter.LOOP:
            return times.made(kernel.root), ()
        whole = times.kinds[times.operands(hero)[0]]
        made = times.kinds[times.first[hero]]
        return whole.elements, tuple(times.reduced.get(hero, ())) or (whole.shape, made.shape)

    def joined(self) -> Ints:
        """The first member of each kernel's new kernel, shape [nodes]."""
        queue, times = self.queue, self.times
        for value in self._last_first():
            maker = times.maker[value]
            if times.elements[value] > 1 and not self._custom(maker):
                self._siblings(self.readers.get(value, []))
            if maker in queue.kernels and self.place[maker] in self.kernels:
                self._with_reader(self.place[maker], value, maker in queue.kept)
        for copy, maker in self._copies() if self.entry else ():
            self.into[copy] = maker
        return np.array([self._home(node) for node in range(len(self.graph))], dtype=np.int64)

    def apart(self) -> NDArray[np.bool_]:
        """Reads of parts of values in kernels that cut some out at places that are known, and of
        all parts one by one, shape [operands]."""
        graph, times = self.graph, self.times
        found = np.zeros(len(graph.operand), dtype=bool)
        for node, kernel in self.kernels.items():
            if all(times.names[each] != "slice" for each in kernel.members):
                continue
            parts = {
                self.place[times.maker[value]] if times.maker[value] >= 0 else ~value
                for value, read in kernel.sources.items()
                if read.times < 1 or self._cuts(kernel, value)
            }
            for entry in range(*graph.operand_ptr[node : node + 2].tolist()):
                value = int(graph.operand[entry])
                maker = int(graph.producer[value])
                found[entry] = (maker if maker >= 0 else ~value) in parts
        return found

    def _copies(self) -> Iterator[tuple[int, int]]:
        """Kernels that write once more what another one fills with a constant, and that one."""
        graph = self.graph
        names = [graph.tables.ops[op] for op in graph.op.tolist()]
        alone = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
        filled: dict[int, int] = {}
        for node in np.flatnonzero(alone).tolist():
            operands = graph.operands_of(node).tolist()
            if self.into[node] != node or len(self.members[node]) > 1:
                continue
            if names[node] == FILL and not operands:
                maker = filled.setdefault(int(graph.result_type[graph.result_ptr[node]]), node)
                if maker != node:
                    yield node, maker
            elif names[node] == COPY and len(operands) == 1:
                maker = int(graph.producer[operands[0]])
                single = maker >= 0 and len(self.members.get(self._home(maker), ())) == 1
                if single and names[maker] == FILL:
                    yield node, self._home(maker)

    def _custom(self, maker: int) -> bool:
        """Whether a value comes out of a kernel that was made before: its readers stay apart."""
        kernel = self.queue.kernels.get(maker)
        return maker in self.products or (kernel is not None and kernel.row > 0)

    def _last_first(self) -> list[int]:
        """Values that kernels read, from the last to the first, as one comes to them from the
        outputs: the first operands first.
        """
        queue, times = self.queue, self.times
        order: list[int] = []
        seen: set[int] = set()
        ahead = [(value, False) for value in times.graph.outputs.tolist()[::-1]]
        while ahead:
            value, done = ahead.pop()
            if done:
                order.append(value)
            elif value not in seen:
                seen.add(value)
                ahead.append((value, True))
                maker = times.maker[value]
                reads = queue.reads.get(maker)
                if reads is None:
                    reads = times.operands(maker) if maker >= 0 else []
                ahead += [(each, False) for each in reads[::-1]]
        return order[::-1]

    def _siblings(self, readers: list[int]) -> None:
        """Join readers of one value that run alike; those with several results come first, then
        those of several ops, then those that reduce or transpose.
        """
        nodes = [node for node in readers if node in self.kernels and node not in self.moves]
        nodes.sort(key=lambda node: (*self._single(node), not self.runs[node][1]))
        while nodes:
            node = nodes.pop(0)
            if all(self._single(node)):
                return
            for other in nodes[:_SIBLINGS]:
                if self._alike(node, other) and not (
                    self._parts(node, other)
                    or self._between(node, other, False)
                    or self._between(other, node, False)
                ):
                    nodes.remove(other)
                    node = self._merge(node, other)

    def _single(self, node: int) -> tuple[bool, bool]:
        """Whether a kernel has one result, and consists of one op."""
        ops = [op for op in self.kernels[node].members if not self.times.alias[op]]
        return len(self.members[node]) == 1, len(ops) == 1

    def _parts(self, node: int, other: int) -> bool:
        """Whether two kernels only cut known parts out of the same value."""
        one, two = self.kernels[node], self.kernels[other]
        return any(
            self.times.sizes[value] >= _SMALL and self._cuts(one, value) and self._cuts(two, value)
            for value in one.sources.keys() & two.sources.keys()
            if one.sources[value].times < 1 and two.sources[value].times < 1
        )

    def _cuts(self, kernel: Kernel, value: int) -> bool:
        times = self.times
        readers = (node for node in kernel.members if value in times.operands(node))
        return all(times.names[node] == "slice" for node in readers)

    def _with_reader(self, made: int, value: int, kept: bool) -> None:
        """Join what makes a value with one of its readers.

        Args:
            made: the kernel.
            value: its result.
            kept: whether something else reads it.
        """
        producer, readers = self.kernels[made], self.readers.get(value, [])
        if producer.emitter != Emitter.LOOP or producer.turns or self.into[made] != made:
            return
        several = any(len(self.members[reader]) > 1 for reader in readers)
        if len(self.members[made]) > 1 or not (kept or len(readers) > 1 or several):
            return
        found = [
            reader
            for reader in readers
            if reader in self.kernels
            and reader not in self.moves
            and self._alike(made, reader)
            and self._saves(producer, reader)
            and not self._between(made, reader, True)
        ]
        if found:
            self._merge(max(found, key=lambda reader: len(self.members[reader]) > 1), made)

    def _saves(self, producer: Kernel, reader: int) -> bool:
        """Whether it saves time that a reader writes the value, too."""
        consumers = [self.kernels[node] for node in self.members[reader]]
        alone, together = times_of(self.times, producer, consumers)
        return together <= alone

    def _alike(self, node: int, other: int) -> bool:
        """Whether two kernels run alike and fit into one."""
        (size, hero), (theirs, other_hero) = self.runs[node], self.runs[other]
        if size != theirs or (hero and other_hero and hero != other_hero):
            return False
        one, two = node, other
        return (
            self.waits_for[one] == self.waits_for[two]
            and self.values[one] + self.values[two] <= MAX_VALUES
            and self.heroes[one] + self.heroes[two] <= MAX_HEROES
            and self.shared[one] + self.shared[two] <= SHARED_BYTES
        )

    def _merge(self, node: int, other: int) -> int:
        """Join two kernels, the second into the first; the number of the new one."""
        one, two = sorted((node, other))
        for value in self.reads.pop(other):
            if value not in self.reads[node]:
                self.reads[node].append(value)
                self.readers[value].append(node)
            drop(self.readers[value], other)
        if one != node:
            self.reads[one] = self.reads.pop(node)
            for value in self.reads[one]:
                self.readers[value][self.readers[value].index(node)] = one
        # What reduces or transposes decides how the kernel runs.
        self.runs[one] = max(self.runs[node], self.runs[other], key=lambda run: bool(run[1]))
        self.into[two] = one
        self.members[one] += self.members.pop(two)
        self._around(one)
        for column in (self.values, self.heroes, self.shared):
            column[one] += column[two]
        return one
