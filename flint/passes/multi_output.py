"""Kernels with several results, as PyTorch's compiler joins them.

The idea: a value that two kernels read is read only once if they become one.  Among finished
kernels,

1. **siblings**, which read the same value and run over the same number of elements, become one
  kernel;
2. **a kernel and a reader of its result** become one if the reader runs over the elements of that
   result: it is written for its other readers, and this one has it in registers.

Elementwise kernels and reductions may be joined; a reduction runs over its operand, and two joined
ones have results of the same size.  The first of a pair that is joined with its reader is
elementwise.  Kernels are not joined

- with a path through a third kernel between the two, which would be a cycle; siblings must have no
  path at all;
- if they wait for different communications, so that none becomes newly dependent on another;
- into one with more than ``MAX_VALUES`` operands and results, or more than two reductions.

A loop counts as a communication here.  Kernels that share only values of one element are not
siblings.

    kernels = join_outputs(kernels)
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry, total_by_row
from flint.passes.coarsen import sources_of
from flint.passes.columns import distinct
from flint.passes.contract import Columns, contract, surviving
from flint.passes.rematerialize import accessed_bytes

#: The most operands and results of one kernel.
MAX_VALUES: Final = 64
#: The most reductions of one kernel.
MAX_REDUCTIONS: Final = 2
#: The most kernels that are searched for a path between two; beyond it they are not joined.
_SEARCHED: Final = 256

#: Number of neighbouring readers of a value that each reader is compared with.
_SIBLINGS: Final = 32

_JOINED: Final = (Role.ELEMENTWISE, Role.REDUCTION)


def join_outputs(
    graph: WorkloadGraph, communicated: list[bool], phases: bool = False
) -> WorkloadGraph:
    """A graph of kernels with siblings and pairs joined; bodies stay as they are.

    Args:
        graph: in issue order.
        communicated: which inputs may depend on communications, shape [inputs].
        phases: whether kernels of different phases are compiled apart, forward and backward.
    """
    return joined_kernels(graph, Joiner(graph, communicated, phases).joined())


def joined_kernels(
    graph: WorkloadGraph, joined: Ints, apart: NDArray[np.bool_] | None = None
) -> WorkloadGraph:
    """A graph of kernels with some of them joined.

    Args:
        graph: in issue order.
        joined: the first member of each kernel's new kernel, shape [nodes].
        apart: reads of other parts of values than those that kernels joined with theirs read,
            shape [operands].
    """
    roots, cluster = np.unique(joined, return_inverse=True)
    if len(roots) == len(graph):
        return graph
    cluster = cluster.reshape(-1).astype(np.int64)
    apart = np.zeros(len(graph.operand), dtype=bool) if apart is None else apart
    return contract(graph, cluster, _columns(graph, cluster, len(roots), apart))


def _columns(
    graph: WorkloadGraph, cluster: Ints, clusters: int, apart: NDArray[np.bool_]
) -> Columns:
    """Properties of joined kernels: each outside value is read once, as far as any member reads
    it; where all members read other parts of some, these add up.
    """
    size = np.bincount(cluster, minlength=clusters)
    reader = cluster[graph.consumer]
    maker = graph.producer[graph.operand]
    outside = np.flatnonzero((maker < 0) | (cluster[maker] != reader))
    first, number = distinct(reader[outside], graph.operand[outside])
    most = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(most, number, accessed_bytes(graph)[outside])
    read = total_by_row(most, reader[outside][first], clusters)
    alone = total_by_row(graph.bytes_read, cluster, clusters)
    cut = np.zeros(len(graph), dtype=bool)
    cut[graph.consumer[apart]] = True
    parts = np.bincount(cluster[cut], minlength=clusters) == size
    read = np.where(parts, _in_parts(graph, cluster, clusters, outside, apart), read)
    owner = row_of_entry(graph.result_ptr)
    gone = np.where(surviving(graph, cluster), 0, graph.value_bytes[graph.inputs :])
    written = graph.bytes_written - np.minimum(
        total_by_row(gone, owner, len(graph)), graph.bytes_written
    )
    moved = graph.bytes_read + graph.bytes_written
    order = np.lexsort((np.arange(len(graph)), -moved, cluster))
    return Columns(
        order[pointer(size)[:-1]],
        np.where(size > 1, np.minimum(read, alone), alone),
        total_by_row(written, cluster, clusters),
        total_by_row(graph.bytes_aliased, cluster, clusters),
    )


def _in_parts(
    graph: WorkloadGraph, cluster: Ints, clusters: int, outside: Ints, apart: NDArray[np.bool_]
) -> Ints:
    """Bytes that joined kernels read: what is not in ``apart`` once, and all the rest."""
    size = graph.value_bytes[graph.operand]
    mine, _ = distinct(graph.consumer, graph.operand, apart.astype(np.int64))
    mine = mine[~apart[mine]]
    rest = graph.bytes_read - total_by_row(size[mine], graph.consumer[mine], len(graph))
    whole = outside[~apart[outside]]
    first, _ = distinct(cluster[graph.consumer[whole]], graph.operand[whole])
    once = total_by_row(size[whole[first]], cluster[graph.consumer[whole[first]]], clusters)
    return once + total_by_row(np.maximum(rest, 0), cluster, clusters)


class Joiner:
    """Kernels of one block, joined pair by pair."""

    def __init__(self, graph: WorkloadGraph, communicated: list[bool], phases: bool) -> None:
        self.graph = graph
        phase = [source.phase if phases else None for source in graph.tables.sources]
        self.phase = [phase[source] for source in graph.source.tolist()]
        self.into = list(range(len(graph)))
        #: The last member of the kernels that lie around a place, or the place, shape [nodes].
        self.far = np.arange(len(graph))
        self.members: dict[int, list[int]] = {node: [node] for node in range(len(graph))}
        self.waits_for = sources_of(graph, communicated).tolist()
        self.size = self._sizes().tolist()
        self.values = (np.diff(graph.operand_ptr) + np.diff(graph.result_ptr)).tolist()
        self.elementwise = (graph.role == Role.ELEMENTWISE).tolist()
        self.reductions = (graph.role == Role.REDUCTION).astype(int).tolist()
        #: Result size of a kernel's reductions, 0 without one.
        self.sums = (self._largest(graph.role == Role.REDUCTION)).tolist()
        maker = graph.producer[graph.operand]
        before = np.concatenate([maker, graph.order_node])
        after = np.concatenate([graph.consumer, row_of_entry(graph.order_ptr)])
        self.after: dict[int, list[int]] = {}
        for node, user in zip(before.tolist(), after.tolist(), strict=True):
            self.after.setdefault(node, []).append(user)

    def joined(self) -> Ints:
        """The first member of each kernel's new kernel, shape [nodes]."""
        graph = self.graph
        of_types = np.array([t.elements for t in graph.tables.types] or [0], dtype=np.int64)
        worth = of_types[graph.value_type[graph.operand]] > 1
        readers: dict[int, list[int]] = {}
        for value, node in zip(
            graph.operand[worth].tolist(), graph.consumer[worth].tolist(), strict=True
        ):
            readers.setdefault(value, []).append(node)
        maker = graph.producer.tolist()
        for value in sorted(readers):
            nodes = list(dict.fromkeys(node for node in readers[value] if self.size[node]))
            for i, node in enumerate(nodes):
                for other in nodes[i + 1 : i + 1 + _SIBLINGS]:
                    self._join(node, other)
            made = maker[value]
            if made >= 0 and self.elementwise[made]:
                for node in nodes:
                    self._join(made, node, reads=True)
        return np.array([self._home(node) for node in range(len(graph))], dtype=np.int64)

    def _sizes(self) -> Ints:
        """Elements that each kernel runs over, 0 for those that are not joined, shape [nodes]."""
        graph = self.graph
        of_types = np.array([t.elements for t in graph.tables.types] or [0], dtype=np.int64)
        sizes = self._largest(np.ones(len(graph), dtype=bool))
        reduces = graph.role == Role.REDUCTION
        summed = np.zeros(len(graph), dtype=np.int64)
        np.maximum.at(summed, graph.consumer, of_types[graph.value_type[graph.operand]])
        sizes = np.where(reduces, summed, sizes)
        works: NDArray[np.bool_] = (graph.kind == NodeKind.COMPUTE) & np.isin(graph.role, _JOINED)
        return np.where(works & (graph.bytes_aliased == 0), sizes, 0)

    def _largest(self, of: NDArray[np.bool_]) -> Ints:
        """Elements of the largest result of some kernels, 0 of the others, shape [nodes]."""
        graph = self.graph
        of_types = np.array([t.elements for t in graph.tables.types] or [0], dtype=np.int64)
        sizes = np.zeros(len(graph), dtype=np.int64)
        np.maximum.at(sizes, row_of_entry(graph.result_ptr), of_types[graph.result_type])
        return np.where(of, sizes, 0)

    def _home(self, node: int) -> int:
        while self.into[node] != node:
            node = self.into[node]
        return node

    def _join(self, one: int, other: int, reads: bool = False) -> None:
        """Join two kernels if that is allowed; ``reads``: the second reads the first."""
        first, second = sorted((self._home(one), self._home(other)))
        if first == second or not self.size[first] or self.size[first] != self.size[second]:
            return
        if self.waits_for[first] != self.waits_for[second]:
            return
        if self.phase[first] != self.phase[second]:
            return
        if self.values[first] + self.values[second] > MAX_VALUES:
            return
        if self.reductions[first] + self.reductions[second] > MAX_REDUCTIONS:
            return
        if self.sums[first] and self.sums[second] not in (0, self.sums[first]):
            return
        if self._between(first, second, reads) or self._between(second, first, reads):
            return
        self.into[second] = first
        self.members[first] += self.members.pop(second)
        self._around(first)
        self.values[first] += self.values[second]
        self.reductions[first] += self.reductions[second]
        self.sums[first] = self.sums[first] or self.sums[second]

    def _around(self, kernel: int) -> None:
        """Note where the members of a joined kernel lie."""
        first, last = min(self.members[kernel]), max(self.members[kernel])
        np.maximum(self.far[first:last], last, out=self.far[first:last])

    def _between(self, start: int, end: int, reads: bool) -> bool:
        """Whether a path leads from one kernel to another, except that the other ``reads`` what the
        first computes element by element.
        """
        last = max(self.members[end])
        while self.far[last] > last:  # a path may lead beyond it and back
            last = int(self.far[last])
        seen = {start, end}
        ahead = [start]
        while ahead:
            kernel = ahead.pop()
            for node in self.members[kernel]:
                for user in self.after.get(node, ()):
                    home = self._home(user)
                    if home == end and not (reads and kernel == start and self.elementwise[node]):
                        return True
                    if home not in seen and self.members[home][0] <= last:
                        seen.add(home)
                        ahead.append(home)
            if len(seen) > _SEARCHED:
                return True
        return False
