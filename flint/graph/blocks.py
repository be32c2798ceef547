"""Blocks: the slots of a graph and the edges into them, which unrolling puts together.

The idea: seen from inside a block, a value is a number: one of the block's slots, or ``-1 - i`` for
input ``i``.  A block inside another one is shifted to its place and its inputs are replaced by the
values that the surrounding graph passes in, however often a loop runs.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind, Ints, NodeKind, WorkloadGraph
from flint.mesh.ragged import row_of_entry

#: More edges than this are refused: each takes some hundred bytes during sorting.
MAX_EDGES: Final = 1 << 25


def shown(count: int) -> str:
    """A count in full, or its power of ten if it is too long to read."""
    return f"{count:,}" if count < 10**21 else f"more than 10^{len(str(count)) - 1}"


class UnrolledBlock(NamedTuple):
    """The slots of a graph and the edges into them.

    An edge's producer is a slot, or ``-1 - i`` for input ``i`` of the graph.  ``period`` is how
    often a slot's graph repeats within the block.
    """

    template: Ints
    iteration: Ints
    period: Ints
    consumer: Ints
    producer: Ints
    edge: NDArray[np.int8]
    outputs: Ints

    def sources(self) -> Ints:
        """Slots that wait for no other slot."""
        waits = np.zeros(len(self.template), np.bool_)
        waits[self.consumer[self.producer >= 0]] = True
        return np.flatnonzero(~waits)

    def sinks(self) -> Ints:
        """Slots that no other slot waits for."""
        awaited = np.zeros(len(self.template), np.bool_)
        awaited[self.producer[self.producer >= 0]] = True
        return np.flatnonzero(~awaited)


class Region(NamedTuple):
    """A loop node within its graph's slots: its first slot and its whole block."""

    offset: int
    block: UnrolledBlock


class Edges:
    """Edges, as pieces of columns."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Ints, Ints, NDArray[np.int8]]] = []
        self.count = 0

    def expect(self, count: int) -> None:
        """Refuse too many further edges before they are made.

        Raises:
            FlintError: too many.
        """
        if self.count + count > MAX_EDGES:
            raise FlintError(
                f"with loops unrolled, the program has {shown(self.count + count)} dependencies; "
                f"the limit is {MAX_EDGES:,}: use a coarser granularity or a smaller trip count"
            )

    def add(self, consumer: Ints, producer: Ints, kind: NDArray[np.int8] | int) -> None:
        """Add edges; the three broadcast against each other.

        Raises:
            FlintError: too many.
        """
        shape = np.broadcast_shapes(consumer.shape, producer.shape)
        self.expect(math.prod(shape))
        self.count += math.prod(shape)
        consumer, producer = np.broadcast_arrays(consumer, producer)
        kinds = np.broadcast_to(np.asarray(kind, np.int8), consumer.shape)
        self.pieces.append((consumer.reshape(-1), producer.reshape(-1), kinds.reshape(-1)))

    def joined(self) -> tuple[Ints, Ints, NDArray[np.int8]]:
        """Consumer, producer and kind columns."""
        empty = np.zeros(0, np.int64)
        pieces = self.pieces or [(empty, empty, empty.astype(np.int8))]
        consumers, producers, kinds = zip(*pieces, strict=True)
        return np.concatenate(consumers), np.concatenate(producers), np.concatenate(kinds)

    def unique(self, inputs: int) -> tuple[Ints, Ints, NDArray[np.int8]]:
        """The columns sorted, without repetition."""
        consumer, producer, kind = self.joined()
        kinds = len(EdgeKind)
        span = int(producer.max(initial=0)) + inputs + 1
        key = (consumer * span + producer + inputs) * kinds + kind
        key.sort()
        if len(key):
            key = key[np.concatenate([[True], key[1:] != key[:-1]])]
        pair, kind = np.divmod(key, kinds)
        consumer, producer = np.divmod(pair, span)
        return consumer, producer - inputs, kind.astype(np.int8)


def is_plain(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Which nodes are one slot: compute and communication, shape [nodes]."""
    return np.isin(graph.kind, (NodeKind.COMPUTE, NodeKind.COMMUNICATION))


def shifted(code: Ints, operands: Ints, offset: int) -> Ints:
    """A region's slots and inputs in the terms of the graph around it."""
    outside = operands[np.where(code < 0, -1 - code, 0)] if len(operands) else code
    return np.where(code < 0, outside, code + offset)


def carried_values(outputs: Ints, carried: int, times: int, size: int) -> Ints:
    """Each carried value before every iteration and after the last, shape [carried, times + 1].

    A carried value that the body computes is a slot of the previous iteration.  One that the body
    only passes on is another value of the previous iteration: a chain of these is a shift register,
    a cycle of them a swap.
    """
    steps = np.arange(times, dtype=np.int64)
    result = np.empty((carried, times + 1), np.int64)
    result[:, 0] = -1 - np.arange(carried)
    made = np.flatnonzero(outputs >= 0)
    result[made, 1:] = outputs[made, None] + steps * size
    passed = -1 - outputs
    unchanged = (passed == np.arange(carried)) | (passed >= carried)
    constant = np.flatnonzero((outputs < 0) & unchanged)
    result[constant, 1:] = -1 - passed[constant, None]
    open_values = set(range(carried)) - set(made.tolist()) - set(constant.tolist())
    while open_values:
        path = [next(iter(open_values))]
        while int(passed[path[-1]]) in open_values and int(passed[path[-1]]) not in path:
            path.append(int(passed[path[-1]]))
        following = int(passed[path[-1]])
        if following in path:
            circle = np.array(path[path.index(following) :], np.int64)
            turns = (np.arange(len(circle))[:, None] + np.arange(times + 1)) % len(circle)
            result[circle] = -1 - circle[turns]
            open_values -= set(circle.tolist())
        for index in reversed(path):
            if index in open_values:
                result[index, 1:] = result[int(passed[index]), :-1]
                open_values.discard(index)
    return result


def passed_on(outputs: Ints, carried: int, times: int) -> Ints:
    """Each carried value after the last iteration of a body without slots, shape [carried]."""
    passed = -1 - outputs[:carried]
    step = np.arange(max(int(passed.max(initial=-1)) + 1, carried), dtype=np.int64)
    step[:carried] = passed
    found = np.arange(carried, dtype=np.int64)
    while times:  # by doubling: ``step`` covers that many iterations at once
        found = step[found] if times & 1 else found
        step, times = step[step], times >> 1
    return -1 - found


def add_order(
    graph: WorkloadGraph, offset: Ints, value: Ints, regions: dict[int, Region], edges: Edges
) -> None:
    """Order edges; one into a loop holds back its sources, one out of a loop waits for its
    sinks.
    """
    consumer = row_of_entry(graph.order_ptr)
    producer, kind = graph.order_node, graph.order_kind
    is_region = ~is_plain(graph)
    simple = ~(is_region[consumer] | is_region[producer]) if len(consumer) else np.zeros(0, bool)
    edges.add(offset[consumer[simple]], offset[producer[simple]], kind[simple])
    if bool(simple.all()):
        return
    ends: dict[int, Ints] = {}
    for node, region in regions.items():
        if len(region.block.template):
            ends[node] = region.block.sinks() + region.offset
        else:
            ends[node] = _through_empty(graph, node, offset, value, ends)
    for i in np.flatnonzero(~simple).tolist():
        after, before = int(consumer[i]), int(producer[i])
        sources = ends[before] if before in regions else offset[[before]]
        if after not in regions:
            targets = offset[[after]]
        else:
            targets = regions[after].block.sources() + regions[after].offset
        edges.add(targets[:, None], sources[None, :], kind[i])


def _through_empty(
    graph: WorkloadGraph, node: int, offset: Ints, value: Ints, ends: dict[int, Ints]
) -> Ints:
    """What a loop that never runs waits for: nodes after it wait for that."""
    low, high = graph.operand_ptr[node : node + 2]
    found = [value[graph.operand[low:high]]]
    for before in graph.order_node[graph.order_ptr[node] : graph.order_ptr[node + 1]].tolist():
        found.append(ends[before] if before in ends else offset[[before]])
    return distinct(np.concatenate(found))
