"""Unrolling: a program's graph with its loops opened, as columns over node instances.

The idea: an instance is a template node at an iteration, and its number is arithmetic.  Every graph
is a block of slots, one per compute or communication node in issue order; a loop is its body's
block repeated ``trip_count`` times, a conditional the block of the branch taken.  Seen from inside
a block, a value is either one of its slots or one of its inputs, whatever the trip counts are, so
carried values, swaps and nested loops are resolved on the template.  Blocks are put together from
the inside out with numpy; Python runs per loop, not per instance.

    unrolled = unroll(graph, lookahead="own")
    unrolled.deps[unrolled.ptr[i] : unrolled.ptr[i + 1]]    # whom instance i waits for
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph import EdgeKind, Loop, NodeKind, WorkloadGraph

Ints = NDArray[np.int64]
Lookahead = int | None | Literal["own"]

#: Beyond this many instances the columns no longer fit a laptop's memory.
MAX_INSTANCES: Final = 1 << 27

#: What a communication is to a loop's sequencing (see ``unroll``).
ABSENT: Final = 0
UNCHAINED: Final = 1
CHAINED: Final = 2


@dataclass(frozen=True, eq=False, slots=True)
class Unrolled:
    """Node instances in issue order; an instance's number is its position.

    Attributes:
        graphs: the graphs that occur, the program's own first.
        start: first template number of each graph: template ``start[g] + node`` is node ``node`` of
            ``graphs[g]``, shape [graphs + 1].
        template: shape [instances].
        iteration: which repetition of its graph an instance belongs to (row-major over the
            enclosing loops, outermost first), shape [instances].
        kind: ``NodeKind`` (compute or communication), shape [instances].
        detail: index into ``tables.communications``, -1 for compute, shape [instances].
        ptr: CSR pointer over ``deps``, shape [instances + 1].
        deps: instances that come first, ascending per instance and kind.
        dep_kind: ``EdgeKind``; a loop's sequencing is STREAM: the earlier instance must be over.
    """

    graphs: tuple[WorkloadGraph, ...]
    start: Ints
    template: Ints
    iteration: Ints
    kind: NDArray[np.int8]
    detail: Ints
    ptr: Ints
    deps: Ints
    dep_kind: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.template)

    @property
    def consumer(self) -> Ints:
        """The instance that waits, for each entry of ``deps``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.ptr))

    def locate(self, instance: int) -> tuple[WorkloadGraph, int, int]:
        """Graph, node index and iteration of an instance."""
        template = int(self.template[instance])
        graph = int(np.searchsorted(self.start, template, side="right")) - 1
        return self.graphs[graph], template - int(self.start[graph]), int(self.iteration[instance])

    def column(self, name: str) -> Ints:
        """A node column of all graphs (such as ``"op"``) by template, shape [templates]."""
        return np.concatenate([getattr(graph, name) for graph in self.graphs])


def unroll(
    graph: WorkloadGraph,
    lookahead: Lookahead = "own",
    *,
    presence: NDArray[np.int8] | None = None,
) -> Unrolled:
    """Open all loops and the taken branches of all conditionals of a program.

    Iteration ``i`` of a loop with lookahead ``k`` starts communicating when everything of iteration
    ``i - k - 1`` is over: its first communication waits for that iteration's sinks.

    Args:
        graph: the program.
        lookahead: iterations that may overlap in every loop, None for no limit, ``"own"`` for what
            each loop says.
        presence: per entry of ``tables.communications``: ABSENT ones do not exist for the ranks in
            question, UNCHAINED ones do not hold back the communications after them (a lone
            receive), CHAINED ones do (the default).  An iteration is held back at its first
            CHAINED communication and the UNCHAINED ones before it.

    Raises:
        FlintError: too many instances, or an edge that points backwards in issue order.
    """
    if presence is None:
        presence = np.full(len(graph.tables.communications), CHAINED, np.int8)
    builder = _Builder(lookahead, presence)
    block = builder.block(graph)
    start = np.array([0, *np.cumsum([len(g) for g in builder.graphs])], np.int64)
    inside = block.producer >= 0
    consumer, producer, kind = block.consumer[inside], block.producer[inside], block.edge[inside]
    _check_forward(consumer, producer, builder, block, start)
    size = len(block.template)
    ptr = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(consumer, minlength=size), out=ptr[1:])
    kinds = np.concatenate([g.kind for g in builder.graphs])[block.template]
    details = np.concatenate([g.detail for g in builder.graphs])[block.template]
    return Unrolled(
        graphs=tuple(builder.graphs),
        start=start,
        template=block.template,
        iteration=block.iteration,
        kind=kinds,
        detail=np.where(kinds == NodeKind.COMMUNICATION, details, -1),
        ptr=ptr,
        deps=producer,
        dep_kind=kind,
    )


def instances_of(graph: WorkloadGraph) -> int:
    """How many instances ``unroll`` would make."""
    count = int(np.count_nonzero(_is_plain(graph)))
    count += sum(loop.trip_count * instances_of(loop.body) for loop in graph.loops)
    return count + sum(instances_of(c.branches[c.taken]) for c in graph.conditionals)


class _Block(NamedTuple):
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


class _Region(NamedTuple):
    """A loop or conditional node within its graph's slots: where it starts, its whole block."""

    offset: int
    block: _Block


class _Edges:
    """Edges as pieces of columns."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Ints, Ints, NDArray[np.int8]]] = []

    def add(self, consumer: Ints, producer: Ints, kind: NDArray[np.int8] | int) -> None:
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


class _Builder:
    def __init__(self, lookahead: Lookahead, presence: NDArray[np.int8]) -> None:
        self.lookahead = lookahead
        self.presence = presence
        self.graphs: list[WorkloadGraph] = []
        self.templates = 0

    def block(self, graph: WorkloadGraph) -> _Block:
        """The block of one instantiation of ``graph``."""
        first = self.templates
        self.graphs.append(graph)
        self.templates += len(graph)
        plain = _is_plain(graph)
        bodies = {int(node): self._body(graph, int(node)) for node in np.flatnonzero(~plain)}
        sizes = plain.astype(np.int64)
        for node, (body, times) in bodies.items():
            sizes[node] = len(body.template) * times
            if max(1, len(body.template)) * times > MAX_INSTANCES or sizes.sum() > MAX_INSTANCES:
                raise FlintError(
                    f"unrolled, the program has more than {MAX_INSTANCES} nodes (a loop runs "
                    f"{times} times over {len(body.template)} nodes): convert at a coarser "
                    "granularity or with a smaller trip count"
                )
        offset = np.cumsum(sizes) - sizes
        nodes = np.flatnonzero(plain)
        template = np.empty(int(sizes.sum()), np.int64)
        iteration = np.zeros_like(template)
        period = np.ones_like(template)
        template[offset[nodes]] = first + nodes
        made = graph.producer[graph.inputs :]
        value = np.concatenate([-1 - np.arange(graph.inputs), offset[made]])
        edges = _Edges()
        regions: dict[int, _Region] = {}
        for node, (body, times) in bodies.items():
            low, high = graph.operand_ptr[node : node + 2]
            operands = value[graph.operand[low:high]]
            is_loop = graph.kind[node] == NodeKind.LOOP
            loop = graph.loops[int(graph.detail[node])] if is_loop else None
            at = int(offset[node])
            whole = self._repeat(body, times, operands, loop)
            low, high = graph.result_ptr[node : node + 2]
            value[graph.inputs + low : graph.inputs + high] = _shifted(whole.outputs, operands, at)
            place = slice(at, at + len(whole.template))
            template[place], iteration[place] = whole.template, whole.iteration
            period[place] = whole.period
            edges.add(whole.consumer + at, _shifted(whole.producer, operands, at), whole.edge)
            regions[node] = _Region(at, whole)
        taken = plain[graph.consumer]
        edges.add(offset[graph.consumer[taken]], value[graph.operand[taken]], EdgeKind.DATA)
        _add_order(graph, offset, value, regions, edges)
        unique = edges.unique(graph.inputs)
        return _Block(template, iteration, period, *unique, value[graph.outputs])

    def _body(self, graph: WorkloadGraph, node: int) -> tuple[_Block, int]:
        detail = int(graph.detail[node])
        if graph.kind[node] == NodeKind.LOOP:
            loop = graph.loops[detail]
            return self.block(loop.body), loop.trip_count
        conditional = graph.conditionals[detail]
        return self.block(conditional.branches[conditional.taken]), 1

    def _repeat(self, body: _Block, times: int, operands: Ints, loop: Loop | None) -> _Block:
        """``body`` run ``times`` times as one block whose inputs are the node's operands."""
        if loop is None:
            return body
        size = len(body.template)
        steps = np.arange(times, dtype=np.int64)[:, None]
        carried = _carried(body.outputs, loop.carried, times, size)
        edges = _Edges()
        inner = body.producer >= 0
        edges.add(
            body.consumer[inner] + steps * size,
            body.producer[inner] + steps * size,
            body.edge[inner],
        )
        entering = -1 - body.producer[~inner]
        is_carried = entering < loop.carried
        consumer, kind = body.consumer[~inner], body.edge[~inner]
        edges.add(
            consumer[is_carried] + steps * size,
            carried[entering[is_carried], :times].T,
            kind[is_carried],
        )
        edges.add(
            consumer[~is_carried] + steps * size, -1 - entering[~is_carried], kind[~is_carried]
        )
        self._add_sequence(body, times, size, loop, edges)
        return _Block(
            np.tile(body.template, times),
            (body.iteration + steps * body.period).reshape(-1),
            np.tile(body.period * times, times),
            *edges.joined(),
            carried[:, times],
        )

    def _add_sequence(self, body: _Block, times: int, size: int, loop: Loop, edges: _Edges) -> None:
        lookahead = loop.lookahead if self.lookahead == "own" else self.lookahead
        if lookahead is None or lookahead + 1 >= times:
            return
        openers = self._openers(body)
        if not len(openers):
            return
        later = np.arange(lookahead + 1, times, dtype=np.int64)[:, None, None] * size
        earlier = later - (lookahead + 1) * size
        sinks = body.sinks()
        edges.add(later + openers[None, :, None], earlier + sinks[None, None, :], EdgeKind.STREAM)

    def _openers(self, body: _Block) -> Ints:
        """The first chained communication of an iteration and the unchained ones before it."""
        kind = np.concatenate([graph.kind for graph in self.graphs])[body.template]
        slots = np.flatnonzero(kind == NodeKind.COMMUNICATION)
        detail = np.concatenate([graph.detail for graph in self.graphs])[body.template[slots]]
        presence = self.presence[detail]
        chained = np.flatnonzero(presence == CHAINED)
        if len(chained):
            slots, presence = slots[: chained[0] + 1], presence[: chained[0] + 1]
        found: Ints = slots[presence != ABSENT]
        return found


def _is_plain(graph: WorkloadGraph) -> NDArray[np.bool_]:
    return np.isin(graph.kind, (NodeKind.COMPUTE, NodeKind.COMMUNICATION))


def _shifted(code: Ints, operands: Ints, offset: int) -> Ints:
    """A region's slots and inputs in the terms of the graph around it."""
    outside = operands[np.where(code < 0, -1 - code, 0)] if len(operands) else code
    return np.where(code < 0, outside, code + offset)


def _carried(outputs: Ints, carried: int, times: int, size: int) -> Ints:
    """Each carried value before every iteration and after the last, shape [carried, times + 1].

    A carried value that the body makes is last iteration's slot.  One that the body only passes on
    is last iteration's other value: a chain of these is a shift register, a circle of them a swap.
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


def _add_order(
    graph: WorkloadGraph, offset: Ints, value: Ints, regions: dict[int, _Region], edges: _Edges
) -> None:
    """Order edges; one onto a loop holds back its sources, one from a loop waits for its sinks."""
    consumer = np.repeat(np.arange(len(graph), dtype=np.int64), np.diff(graph.order_ptr))
    producer, kind = graph.order_node, graph.order_kind
    is_region = ~_is_plain(graph)
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
    """What a loop that never runs waits for: whoever comes after it waits for that."""
    low, high = graph.operand_ptr[node : node + 2]
    found = [value[graph.operand[low:high]]]
    for before in graph.order_node[graph.order_ptr[node] : graph.order_ptr[node + 1]].tolist():
        found.append(ends[before] if before in ends else offset[[before]])
    return np.unique(np.concatenate(found))


def _check_forward(
    consumer: Ints, producer: Ints, builder: _Builder, block: _Block, start: Ints
) -> None:
    wrong = np.flatnonzero(producer >= consumer)
    if not len(wrong):
        return

    def name(slot: int) -> str:
        template = int(block.template[slot])
        graph = int(np.searchsorted(start, template, side="right")) - 1
        node = builder.graphs[graph][template - int(start[graph])]
        where = f" at {node.source.file}:{node.source.line}" if node.source.file else ""
        return f"{node.op} (node {node.index}{where})"

    first = int(wrong[0])
    raise FlintError(
        f"{name(int(consumer[first]))} waits for {name(int(producer[first]))}, which is issued "
        f"after it; {len(wrong)} such edges: the graph is not in issue order"
    )
