"""Several programs that run one after another, as one graph.

The idea: a step that calls two jitted functions runs two programs.  The second begins on a device
when the first has ended there, whatever it needs from it; values returned by the first stay in
memory until nothing refers to them. After the nodes of each program comes a node ``program_end``:
it waits for everything in the program and reads what is in memory when it ends.  The first nodes of
the next program wait for it.  If the host reads values before it starts the next program, there is
a node ``host_read`` for each in between.

    program 0 -> program_end -> host_read -> program 1 -> program_end

Both kinds of nodes compute nothing (role CONTROL) and have no results, so that no pass removes them
or makes them part of a kernel.

Programs of other ranks may take values, or make them.  Such a message goes its way while the device
runs the next program; the program that takes its value waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import (
    NODE_COLUMNS,
    WORK_COLUMNS,
    EdgeKind,
    Ints,
    NodeKind,
    Source,
    WorkloadGraph,
    with_tables,
)
from flint.graph.tensor_types import TensorType
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.shared_tables import in_tables

END = "program_end"
READ = "host_read"
UNKNOWN = Source()


class Origin(NamedTuple):
    """Where a value comes from.

    Attributes:
        program: number of the program that returns it, -1 for an input of the step.
        number: number among the program's outputs, or the step's inputs.
    """

    program: int
    number: int


@dataclass(frozen=True, slots=True)
class Read:
    """A value that the host waits for before it continues.

    Attributes:
        value: what it reads.
        source: the line that reads it.
        nanoseconds: from the program's end until the host starts the next one; 0 for none.
    """

    value: Origin
    source: Source = UNKNOWN
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """One of the programs.

    Attributes:
        graph: its graph, in issue order.
        operands: where its inputs come from, shape [inputs].
        held: values in addition to its outputs that are in memory until it ends.
        reads: what the host reads between it and the next program.
    """

    graph: WorkloadGraph
    operands: tuple[Origin, ...]
    held: tuple[Origin, ...] = ()
    reads: tuple[Read, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A value on its way from ranks of one program to those of another, between programs.

    Attributes:
        graph: its sends and receives; returns the value if it arrives here.
        operands: the value, if it is here; else none.
        awaited: whether the host waits for it: nothing begins here before it ends.
    """

    graph: WorkloadGraph
    operands: tuple[Origin, ...]
    awaited: bool = False


def in_sequence(
    links: Sequence[Link | Message], inputs: Sequence[TensorType], outputs: Sequence[Origin]
) -> WorkloadGraph:
    """One graph of programs in sequence; the order of nodes within each is kept.

    Args:
        links: the programs and messages, in order.
        inputs: types of the step's inputs.
        outputs: what the step returns.
    """
    tables = TableBuilder()
    joined = _Joined(tables, inputs)
    for link in links:
        if isinstance(link, Message):
            joined.message(link)
            continue
        joined.program(link)
        joined.end(link)
        for read in link.reads:
            joined.read(read)
    return joined.finish(outputs)


class _Joined:
    """Blocks joined end to end, with values and nodes renumbered."""

    def __init__(self, tables: TableBuilder, inputs: Sequence[TensorType]) -> None:
        self._tables = tables
        self._inputs = [tables.type(item) for item in inputs]
        self._blocks: list[WorkloadGraph] = []
        self._operands: list[Ints] = []
        self._edges: list[tuple[Ints, Ints, NDArray[np.int8]]] = []
        self._value = {Origin(-1, number): number for number in range(len(inputs))}
        self._nodes = 0
        self._values = len(inputs)
        self._gates: list[int] = []  # what the next program waits for
        self._ends: list[int] = []
        self._arrived: dict[int, int] = {}  # number of a message -> its end
        self._first = 0  # the first node of the block that was added last

    def program(self, link: Link) -> None:
        """Add a program's nodes; its first nodes wait for the gate, and for values on their way."""
        graph = self._block(link)
        arrived = [self._arrived.get(origin.program, -1) for origin in link.operands]
        waits_for = [*self._gates, *sorted({end for end in arrived if end >= 0})]
        self._wait(_beginning(graph) + self._first, waits_for)

    def end(self, link: Link) -> None:
        """Add the node that waits for everything in the last program."""
        self._gates = [self._end(link.held, self._gates)]

    def message(self, link: Message) -> None:
        """Add a message: it waits for the program that makes the value, and no program for it."""
        graph = self._block(link)
        made_by = {self._ends[origin.program] for origin in link.operands if origin.program >= 0}
        waits_for = [*sorted(made_by), *self._gates[1:]]
        self._wait(np.arange(len(graph)) + self._first, waits_for)
        end = self._end((), waits_for)
        self._arrived[len(self._ends) - 1] = end
        self._gates += [end] if link.awaited else []

    def read(self, read: Read) -> None:
        """Add a node for what the host reads, one value after the other."""
        items = (WorkItem(Unit.MEASURED, "i8", read.nanoseconds),) if read.nanoseconds else ()
        work = Work(items, 0, 0)
        waits_for = [self._ends[read.value.program], *self._gates[1:]]
        node = self._control(READ, [self._value[read.value]], work, read.source, waits_for)
        self._gates = [self._gates[0], node]

    def finish(self, outputs: Sequence[Origin]) -> WorkloadGraph:
        """The joined graph."""
        blocks, tables = self._blocks, self._tables.finish()
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(block, name) for block in blocks])
            for name in (*NODE_COLUMNS, *WORK_COLUMNS, "result_type")
        }
        columns |= {
            name: pointer(np.concatenate([np.diff(getattr(block, name)) for block in blocks]))
            for name in ("result_ptr", "operand_ptr", "work_ptr")
        }
        after, before, kind = (np.concatenate(part) for part in zip(*self._edges, strict=True))
        order = np.argsort(after, kind="stable")
        graph = replace(
            blocks[0],
            input_type=np.array(self._inputs, np.int64),
            **columns,
            operand=np.concatenate(self._operands),
            order_ptr=pointer(np.bincount(after, minlength=self._nodes)),
            order_node=before[order],
            order_kind=kind[order],
            outputs=np.array([self._value[origin] for origin in outputs], np.int64),
            loops=tuple(loop for block in blocks for loop in block.loops),
            conditionals=tuple(item for block in blocks for item in block.conditionals),
        )
        return with_tables(graph, tables)

    def _block(self, link: Link | Message) -> WorkloadGraph:
        """Add the nodes of a program or message, and number what it returns."""
        graph = in_tables(link.graph, self._tables)
        values = self._add(graph, [self._value[origin] for origin in link.operands])
        for number, value in enumerate(values[graph.outputs].tolist()):
            self._value[Origin(len(self._ends), number)] = value
        return graph

    def _end(self, held: Sequence[Origin], otherwise: Sequence[int]) -> int:
        """Add the node that waits for everything in the last block, or else for ``otherwise``."""
        graph = self._blocks[-1]
        returned = [Origin(len(self._ends), output) for output in range(len(graph.outputs))]
        read = [self._value[origin] for origin in (*returned, *held)]
        used = np.zeros(len(graph) + 1, bool)  # producer -1, an input, marks the last
        used[graph.producer[graph.operand]] = used[graph.producer[graph.outputs]] = True
        used[graph.order_node] = True
        last = (np.flatnonzero(~used[:-1]) + self._first).tolist()
        end = self._control(END, read, NO_WORK, UNKNOWN, last or otherwise)
        self._ends.append(end)
        return end

    def _add(self, graph: WorkloadGraph, operands: Sequence[int]) -> Ints:
        """Add a block whose inputs are these values; the numbers of its values here."""
        self._first = self._nodes
        made = np.arange(len(graph.result_type), dtype=np.int64) + self._values
        values = np.concatenate([np.array(operands, np.int64), made])
        loops = sum(len(block.loops) for block in self._blocks)
        conditionals = sum(len(block.conditionals) for block in self._blocks)
        shift = np.zeros(len(NodeKind), np.int64)
        shift[NodeKind.LOOP], shift[NodeKind.CONDITIONAL] = loops, conditionals
        self._blocks.append(replace(graph, detail=graph.detail + shift[graph.kind]))
        self._operands.append(values[graph.operand])
        after = row_of_entry(graph.order_ptr) + self._nodes
        self._edges.append((after, graph.order_node + self._nodes, graph.order_kind))
        self._nodes += len(graph)
        self._values += len(made)
        return values

    def _control(
        self,
        op: str,
        operands: Sequence[int],
        work: Work,
        source: Source,
        waits_for: Sequence[int],
    ) -> int:
        """Add a single node; returns its number."""
        types = np.concatenate([self._inputs, *(block.result_type for block in self._blocks)])
        builder = GraphBuilder(self._tables)
        given = [builder.input(int(types[value])) for value in operands]
        builder.node(
            NodeKind.COMPUTE,
            self._tables.op(op),
            given,
            (),
            role=Role.CONTROL,
            work=work,
            source=self._tables.source(source),
            ops_merged=0,
        )
        self._add(builder.finish(()), operands)
        self._wait(np.array([self._first]), waits_for)
        return self._first

    def _wait(self, after: Ints, before: Sequence[int]) -> None:
        """Add order edges, from each to each."""
        waits = np.repeat(after, len(before))
        for_ = np.tile(np.array(before, np.int64), len(after))
        self._edges.append((waits, for_, np.full(len(waits), EdgeKind.ORDER, np.int8)))


def _beginning(graph: WorkloadGraph) -> Ints:
    """The nodes of a program that wait for nothing in it, except for values that kernels make
    themselves.

    Nodes that take no time, or that every reader recomputes (constants, broadcasts), do not count
    and need not wait, unless something other than a kernel reads them.
    """
    plain = graph.kind == NodeKind.COMPUTE
    light = plain & np.isin(graph.role, (Role.ALIAS, Role.GENERATE))
    one = np.diff(graph.operand_ptr) <= 1
    light |= plain & (graph.role == Role.MOVEMENT) & (np.diff(graph.work_ptr) == 0) & one
    read_by = ~plain[graph.consumer]
    needed = np.concatenate([graph.operand[read_by], graph.outputs])
    makers = graph.producer[needed]
    light[makers[(makers >= 0)]] &= graph.role[makers[makers >= 0]] == Role.ALIAS
    # Whether something that counts comes before; in issue order, so makers are known.
    behind = np.zeros(len(graph) + 1, bool)
    counts = ~light
    for node in range(len(graph)):
        low, high = graph.operand_ptr[node : node + 2]
        before = [*graph.producer[graph.operand[low:high]].tolist()]
        low, high = graph.order_ptr[node : node + 2]
        before += graph.order_node[low:high].tolist()
        behind[node] = any(other >= 0 and (counts[other] or behind[other]) for other in before)
    found: Ints = np.flatnonzero(counts & ~behind[:-1])
    return found
