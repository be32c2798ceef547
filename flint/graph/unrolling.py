"""Unrolling: a program's graph with its loops opened, as columns over node instances.

The idea: an instance is a template node at an iteration, and its number is arithmetic.  Every graph
is a block of slots, one per compute or communication node in issue order; a loop is its body's
block repeated ``trip_count`` times.  Seen from inside a block, a value is either one of its slots
or one of its inputs, whatever the trip counts are, so carried values, swaps and nested loops are
resolved on the template.  Blocks are put together from the inside out with numpy; Python runs per
loop, not per instance.

    unrolled = unroll(graph, lookahead="own")
    unrolled.deps[unrolled.ptr[i] : unrolled.ptr[i + 1]]    # what instance i waits for
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.blocks import (
    Edges,
    Region,
    UnrolledBlock,
    add_order,
    carried_values,
    is_plain,
    passed_on,
    shifted,
)
from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind, Ints, Loop, NodeKind, WorkloadGraph
from flint.graph.instance_count import check_size
from flint.mesh.ragged import pointer, row_of_entry

Lookahead = int | None | Literal["own"]
#: A communication's role in a loop's sequencing (see ``unroll``).
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
        deps: the instances to wait for, ascending per instance and kind.
        dep_kind: ``EdgeKind``; a loop's sequencing is STREAM: the earlier instance must have ended.
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
        return row_of_entry(self.ptr)

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
    chains: Ints | None = None,
) -> Unrolled:
    """Open all loops of a program.

    Iteration ``i`` of a loop with lookahead ``k`` starts communicating when all of iteration ``i -
    k - 1`` has ended: its first communication waits for that iteration's sinks.

    Args:
        graph: the program.
        lookahead: iterations that may overlap in every loop, None for no limit, ``"own"`` for each
            loop's own value.
        presence: per entry of ``tables.communications``: ABSENT ones do not exist for the ranks in
            question, UNCHAINED ones do not hold back the communications after them (a lone
            receive), CHAINED ones do (the default).  An iteration is held back at its first
            CHAINED communication and the UNCHAINED ones before it.
        chains: the chain that each of them is in, from 0 (see ``flint.execution.chains``); an
            iteration is held back in each of them.  None: there is one.

    Raises:
        FlintError: too many instances, or an edge that points backwards in issue order.
    """
    if presence is None:
        presence = np.full(len(graph.tables.communications), CHAINED, np.int8)
    if chains is None:
        chains = np.zeros(len(presence), np.int64)
    check_size(graph)
    builder = _Builder(lookahead, presence, chains)
    block = builder.block(graph)
    start = np.array([0, *np.cumsum([len(g) for g in builder.graphs])], np.int64)
    inside = block.producer >= 0
    consumer, producer, kind = block.consumer[inside], block.producer[inside], block.edge[inside]
    _check_forward(consumer, producer, builder, block, start)
    kinds = np.concatenate([g.kind for g in builder.graphs])[block.template]
    details = np.concatenate([g.detail for g in builder.graphs])[block.template]
    return Unrolled(
        graphs=tuple(builder.graphs),
        start=start,
        template=block.template,
        iteration=block.iteration,
        kind=kinds,
        detail=np.where(kinds == NodeKind.COMMUNICATION, details, -1),
        ptr=pointer(np.bincount(consumer, minlength=len(block.template))),
        deps=producer,
        dep_kind=kind,
    )


class _Builder:
    def __init__(self, lookahead: Lookahead, presence: NDArray[np.int8], chains: Ints) -> None:
        self.lookahead = lookahead
        self.presence = presence
        self.chains = chains
        self.graphs: list[WorkloadGraph] = []
        self.templates = 0

    def block(self, graph: WorkloadGraph) -> UnrolledBlock:
        """The block of one instantiation of ``graph``."""
        first = self.templates
        self.graphs.append(graph)
        self.templates += len(graph)
        plain = is_plain(graph)
        loops = {node: graph.loop_of(node) for node in np.flatnonzero(~plain).tolist()}
        bodies = {node: self.block(loop.body) for node, loop in loops.items()}
        sizes = plain.astype(np.int64)
        for node, body in bodies.items():
            sizes[node] = len(body.template) * loops[node].trip_count
        offset = np.cumsum(sizes) - sizes
        nodes = np.flatnonzero(plain)
        template = np.empty(int(sizes.sum()), np.int64)
        iteration = np.zeros_like(template)
        period = np.ones_like(template)
        template[offset[nodes]] = first + nodes
        made = graph.producer[graph.inputs :]
        value = np.concatenate([-1 - np.arange(graph.inputs), offset[made]])
        edges = Edges()
        regions: dict[int, Region] = {}
        for node, body in bodies.items():
            low, high = graph.operand_ptr[node : node + 2]
            operands = value[graph.operand[low:high]]
            at = int(offset[node])
            whole = self._repeat(body, loops[node])
            low, high = graph.result_ptr[node : node + 2]
            value[graph.inputs + low : graph.inputs + high] = shifted(whole.outputs, operands, at)
            place = slice(at, at + len(whole.template))
            template[place], iteration[place] = whole.template, whole.iteration
            period[place] = whole.period
            edges.add(whole.consumer + at, shifted(whole.producer, operands, at), whole.edge)
            regions[node] = Region(at, whole)
        taken = plain[graph.consumer]
        edges.add(offset[graph.consumer[taken]], value[graph.operand[taken]], EdgeKind.DATA)
        add_order(graph, offset, value, regions, edges)
        unique = edges.unique(graph.inputs)
        return UnrolledBlock(template, iteration, period, *unique, value[graph.outputs])

    def _repeat(self, body: UnrolledBlock, loop: Loop) -> UnrolledBlock:
        """All iterations of a loop as one block whose inputs are the node's operands."""
        times, size = loop.trip_count, len(body.template)
        if not size:
            return body._replace(outputs=passed_on(body.outputs, loop.carried, times))
        edges = Edges()
        edges.expect(times * (len(body.consumer) + loop.carried))
        steps = np.arange(times, dtype=np.int64)[:, None]
        carried = carried_values(body.outputs, loop.carried, times, size)
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
        self._add_sequence(body, loop, edges)
        return UnrolledBlock(
            np.tile(body.template, times),
            (body.iteration + steps * body.period).reshape(-1),
            np.tile(body.period * times, times),
            *edges.joined(),
            carried[:, times],
        )

    def _add_sequence(self, body: UnrolledBlock, loop: Loop, edges: Edges) -> None:
        times, size = loop.trip_count, len(body.template)
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

    def _openers(self, body: UnrolledBlock) -> Ints:
        """The first chained communication of each chain and the unchained ones before it."""
        kind = np.concatenate([graph.kind for graph in self.graphs])[body.template]
        slots = np.flatnonzero(kind == NodeKind.COMMUNICATION)
        detail = np.concatenate([graph.detail for graph in self.graphs])[body.template[slots]]
        presence, chain = self.presence[detail], self.chains[detail]
        opens = presence != ABSENT
        for number in distinct(chain).tolist():
            chained = np.flatnonzero((presence == CHAINED) & (chain == number))
            if len(chained):
                opens[chained[0] + 1 :] &= chain[chained[0] + 1 :] != number
        found: Ints = slots[opens]
        return found


def _check_forward(
    consumer: Ints, producer: Ints, builder: _Builder, block: UnrolledBlock, start: Ints
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
