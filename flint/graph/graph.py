"""The workload graph: what one program computes and communicates, as columns.

The idea: values, nodes and edges are numbers; everything per node is a numpy column, everything
that repeats (types, GEMM sizes, source lines, communications) is interned once per program in
``Tables``. Nodes are in issue order, so that every edge points forward.  A loop is one node with a
body graph; unrolling it is arithmetic over (node, iteration) and copies nothing.

Numbering: values 0 .. inputs-1 are the graph's inputs; node ``i`` produces the values
``inputs + result_ptr[i] .. inputs + result_ptr[i+1] - 1``.

    for node in graph:
        print(node.op, node.flops, [str(t) for t in node.result_types])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.communication import Communication
from flint.graph.kinds import EdgeKind, NodeKind, Phase, Source
from flint.graph.nodes import Node
from flint.graph.scalars import Scalar
from flint.graph.tensor_types import TensorType
from flint.graph.work import Unit
from flint.mesh.ragged import Ints, row_of_entry

#: Exported together: code that imports a graph needs the kinds.
__all__ = [
    "NODE_COLUMNS", "WORK_COLUMNS", "Conditional", "EdgeKind", "Form", "Ints", "Loop", "NodeKind",
    "Phase", "Source", "Tables", "WorkloadGraph",
]  # fmt: skip
#: Columns of shape [nodes].
NODE_COLUMNS: Final = (
    "kind", "role", "op", "detail", "source", "ops_merged", "bytes_read", "bytes_written",
    "bytes_aliased",
)  # fmt: skip
#: Columns of shape [work items], in the rows of ``work_ptr``.
WORK_COLUMNS: Final = ("work_unit", "work_dtype", "work_flops", "work_gemm")


#: Parameters of an op: numbers whose meaning depends on the op.
Form = tuple[int, ...]
#: Stands in a form before a shape.
SHAPE: Final = -1
#: The last number of the form of a scatter that adds, and of one that replaces.
ADDS: Final = 1
REPLACES: Final = 2


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the columns of a program's graphs index; shared by a graph and its bodies.

    Attributes:
        types: tensor types.
        ops: op names.
        gemms: (batch, m, n, k) of contractions.
        sources: origins; entry 0 is "unknown".
        communications: one entry per communication node.
        heroes: per op name, what a compiled fusion of that name does ("reduction", "transpose", see
            ``flint.stablehlo.rules.heroes``), "" for other ops; it may be shorter than ``ops``.
        forms: per op name, the parameters that decide which elements meet (dims that are
            contracted, reduced or transposed, padding; see ``flint.stablehlo.rules.forms``), () if
            there are none or they are not known; it may be shorter than ``ops``.
    """

    types: tuple[TensorType, ...]
    ops: tuple[str, ...]
    gemms: tuple[tuple[int, int, int, int], ...]
    sources: tuple[Source, ...]
    communications: tuple[Communication, ...]
    heroes: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()

    def named_heroes(self) -> Iterator[tuple[str, str]]:
        """Op names, each with what a compiled fusion of that name does."""
        return zip_longest(self.ops, self.heroes, fillvalue="")

    def plain(self, name: str) -> int:
        """The entry of an op without parameters."""
        return list(self.entries()).index((name, "", ()))

    def entries(self) -> Iterator[tuple[str, str, Form]]:
        """The entries of the table of ops: name, what a compiled fusion does, parameters."""
        forms = (*self.forms, *[()] * (len(self.ops) - len(self.forms)))
        return ((*named, form) for named, form in zip(self.named_heroes(), forms, strict=True))


@dataclass(frozen=True, eq=False)
class WorkloadGraph:
    """One block of a program.

    Attributes:
        tables: the tables that the indices below refer to.
        input_type: type of each input, shape [inputs].
        kind: ``NodeKind``, shape [nodes].
        role: ``flint.graph.work.Role`` of compute nodes, shape [nodes].
        op: index into ``tables.ops``, shape [nodes].
        detail: index into ``tables.communications``, ``loops`` or ``conditionals`` by kind; -1.
        source: index into ``tables.sources``, shape [nodes].
        ops_merged: StableHLO ops that a node stands for, shape [nodes].
        bytes_read, bytes_written, bytes_aliased: per node, shape [nodes].
        result_ptr: CSR pointer over result values, shape [nodes + 1].
        result_type: type of each result value, shape [results].
        operand_ptr, operand: CSR over operand values: the data edges, consumer by consumer.
        order_ptr, order_node, order_kind: CSR over nodes that must come first without data.
        work_ptr: CSR pointer over work items, shape [nodes + 1].
        work_unit, work_dtype, work_flops, work_gemm: the items; ``work_gemm`` is -1 or an index
            into ``tables.gemms``; ``work_dtype`` an index into ``tensor_types.DTYPES``.
        outputs: values that the block yields, shape [outputs].
        loops, conditionals: bodies of the nodes of these kinds.
    """

    tables: Tables
    input_type: Ints
    kind: NDArray[np.int8]
    role: NDArray[np.int8]
    op: Ints
    detail: Ints
    source: Ints
    ops_merged: Ints
    bytes_read: Ints
    bytes_written: Ints
    bytes_aliased: Ints
    result_ptr: Ints
    result_type: Ints
    operand_ptr: Ints
    operand: Ints
    order_ptr: Ints
    order_node: Ints
    order_kind: NDArray[np.int8]
    work_ptr: Ints
    work_unit: NDArray[np.int8]
    work_dtype: NDArray[np.int8]
    work_flops: Ints
    work_gemm: Ints
    outputs: Ints
    loops: tuple[Loop, ...] = ()
    conditionals: tuple[Conditional, ...] = ()

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.input_type)

    @property
    def values(self) -> int:
        """Number of values: inputs and results."""
        return len(self.input_type) + len(self.result_type)

    def __repr__(self) -> str:
        return f"WorkloadGraph({len(self)} nodes, {len(self.loops)} loops)"

    def __len__(self) -> int:
        return len(self.kind)

    def __iter__(self) -> Iterator[Node]:
        return (Node(self, index) for index in range(len(self)))

    def __getitem__(self, index: int) -> Node:
        if not -len(self) <= index < len(self):
            raise IndexError(f"node {index} of {len(self)}")
        return Node(self, index % len(self))

    @cached_property
    def producer(self) -> Ints:
        """Node that produces each value, -1 for inputs, shape [values]."""
        counts = np.diff(self.result_ptr)
        made = np.repeat(np.arange(len(self), dtype=np.int64), counts)
        return np.concatenate([np.full(self.inputs, -1, dtype=np.int64), made])

    @cached_property
    def value_type(self) -> Ints:
        """Type of each value, shape [values]."""
        return np.concatenate([self.input_type, self.result_type])

    @cached_property
    def value_bytes(self) -> Ints:
        """Bytes of each value, shape [values]."""
        sizes = np.array([t.bytes for t in self.tables.types] or [0], dtype=np.int64)
        return sizes[self.value_type]

    @cached_property
    def consumer(self) -> Ints:
        """Node that consumes each entry of ``operand``, shape [operands]."""
        return row_of_entry(self.operand_ptr)

    def type_of(self, value: int) -> TensorType:
        """Type of a value."""
        return self.tables.types[int(self.value_type[value])]

    def operands_of(self, node: int) -> Ints:
        """Values that a node takes, shape [operands]."""
        return self.operand[self.operand_ptr[node] : self.operand_ptr[node + 1]]

    def loop_of(self, node: int) -> Loop:
        """The loop that a node is."""
        return self.loops[int(self.detail[node])]

    def flops_by_node(self) -> Ints:
        """FLOPs per node without transcendentals; a loop node counts 0 here, shape [nodes]."""
        return self._work_by_node(self.work_unit < Unit.TRANSCENDENTAL)

    def transcendentals_by_node(self) -> Ints:
        """Transcendental evaluations per node, shape [nodes]."""
        return self._work_by_node(self.work_unit == Unit.TRANSCENDENTAL)

    def delay_by_node(self) -> Ints:
        """Nanoseconds from the end of all that a node waits for until it begins, shape [nodes].

        Negative if it begins earlier, because two clocks of a profiler differ.
        """
        late, early = self.work_unit == Unit.DELAY, self.work_unit == Unit.AHEAD
        return self._work_by_node(late) - self._work_by_node(early)

    def measured_by_node(self) -> Ints:
        """Nanoseconds that each node took in a measured run, -1 for none, shape [nodes]."""
        return self._nanoseconds(self.work_unit == Unit.MEASURED)

    def recorded_by_node(self) -> Ints:
        """Nanoseconds that each node took in the run, including outdated times, -1 for none;
        [nodes].
        """
        return self._nanoseconds(np.isin(self.work_unit, (Unit.MEASURED, Unit.OUTDATED)))

    def _nanoseconds(self, chosen: NDArray[np.bool_]) -> Ints:
        has = np.zeros(len(self), bool)
        has[row_of_entry(self.work_ptr)[chosen]] = True
        return np.where(has, self._work_by_node(chosen), -1)

    def _work_by_node(self, mask: NDArray[np.bool_]) -> Ints:
        running = np.concatenate([[0], np.cumsum(np.where(mask, self.work_flops, 0))])
        by_node: Ints = running[self.work_ptr[1:]] - running[self.work_ptr[:-1]]
        return by_node

    def predecessors(self, index: int) -> set[int]:
        """Nodes that node ``index`` waits for, over all kinds of edges."""
        found = {int(node) for node in self.producer[self.operands_of(index)]} - {-1}
        order = self.order_node[self.order_ptr[index] : self.order_ptr[index + 1]]
        return found | {int(node) for node in order}

    def walk(self, times: int = 1) -> Iterator[tuple[WorkloadGraph, int]]:
        """This graph and the bodies of all loops below it, each with how often it runs."""
        yield self, times
        for loop in self.loops:
            yield from loop.body.walk(times * loop.trip_count)


@dataclass(frozen=True, eq=False)
class Loop:
    """A counted loop.

    Attributes:
        body: one iteration. Its first ``carried`` inputs are the carried values, the rest are
            invariant; ``body.outputs[i]`` is carried value ``i`` of the next iteration. The loop
            node's operands are the initial values of all inputs, its results the carried values.
        carried: number of carried values.
        trip_count: iterations.
        lookahead: iterations that may overlap; 0 is sequential, None is no limit.
        known_by: how the trip count is known: "proved", "stated" in the input, "given" by the user,
            or by known "values" of the step's inputs.
    """

    body: WorkloadGraph
    carried: int
    trip_count: int
    lookahead: int | None = 0
    known_by: str = "proved"


@dataclass(frozen=True, eq=False)
class Conditional:
    """A conditional whose branches all take the node's operands and yield the node's results.

    Programs of a workload have none: ``flint.passes.branches`` resolves them for every rank.

    Attributes:
        branches: bodies; every branch has the same inputs.
        predicate: branch index as a function of rank and loop counters.
    """

    branches: tuple[WorkloadGraph, ...]
    predicate: Scalar


def with_tables(graph: WorkloadGraph, tables: Tables) -> WorkloadGraph:
    """The same graph and bodies with other ``tables``, in which indices must mean the same."""
    loops = tuple(replace(loop, body=with_tables(loop.body, tables)) for loop in graph.loops)
    conditionals = tuple(
        replace(c, branches=tuple(with_tables(b, tables) for b in c.branches))
        for c in graph.conditionals
    )
    return replace(graph, tables=tables, loops=loops, conditionals=conditionals)
