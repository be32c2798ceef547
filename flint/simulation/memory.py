"""Memory: the most bytes that are alive at once on a rank, from the lifetimes of values.

The idea: walk the nodes in issue order.  A program's inputs are in memory throughout; a result
takes its bytes from its node to its last reader, a program's output to the end.  Some values reuse
a buffer: a view of any size, an update or an in-place PyTorch op (its operand's), an elementwise
kernel (that of an operand of the same size that is not read later), a carried value of a loop
(likewise, its first operand's, unless the loop also reads that), and an output whose donated input
is no longer read.  Values returned by one of several programs in sequence stay in memory until
nothing refers to them.  A kernel that reads its operands more than once (a product, a reduction, a
transpose) never writes over them, and nothing writes over a constant.  PyTorch's gradients stay
until the optimizer has finished, because parameters refer to them.  A loop's body adds what one
iteration needs in addition to its inputs.  What all readers compute again takes nothing
(``flint.simulation.remade``).

    peak_memory(program.graph, program.inputs).bytes

Values in the host's memory (``flint.passes.host_memory``) take no device memory.

Not modelled: fragmentation, the workspace of libraries, communication running ahead of its issue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, Phase, WorkloadGraph
from flint.passes.host_memory import Placed, placed
from flint.passes.in_sequence import Origin
from flint.passes.one_of_sequence import ends
from flint.simulation.buffers import buffers, constant_nodes
from flint.simulation.remade import remade
from flint.workload.programs import Call, ProgramInput


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at the peak.

    Attributes:
        inputs: the program's inputs, by role.
        peak: results, including outputs that are not donated.
        allocator: free blocks that the framework's allocator holds in addition.
        host: values that the program keeps in the host's memory.
        retries: how often per step PyTorch's allocator finds the device full, and first returns
            free segments.
    """

    inputs: dict[str, int]
    peak: int
    allocator: int = 0
    host: int = 0
    retries: int = 0

    @property
    def bytes(self) -> int:
        """Everything on the device."""
        return sum(self.inputs.values()) + self.peak + self.allocator

    def parts(self) -> dict[str, int]:
        """Bytes on the device by purpose."""
        held = {"free blocks of the allocator": self.allocator} if self.allocator else {}
        return {**self.inputs, "temporaries": self.peak, **held}


def peak_memory(
    graph: WorkloadGraph, inputs: Sequence[ProgramInput], calls: Sequence[Call] = ()
) -> Memory:
    """The peak of a program.

    Args:
        graph: in issue order, with updates resolved (any granularity of ``flint.passes``).
        inputs: one entry per graph input.
        calls: the programs in sequence that the graph joins, if it does.
    """
    by_role: dict[str, int] = {}
    at = placed(graph)
    for item, size in zip(inputs, _input_bytes(inputs, at), strict=True):
        by_role[item.role] = by_role.get(item.role, 0) + size
    given = _given(graph, inputs, calls)
    peak = max(_alive(graph, *given, at), default=0)
    if at is None:
        return Memory(by_role, peak)
    there = sum(item.type.bytes for item in inputs) - sum(by_role.values())
    return Memory(by_role, peak, host=there + max(_alive(graph, *given, at, True), default=0))


def memory_by_node(
    graph: WorkloadGraph, inputs: Sequence[ProgramInput], calls: Sequence[Call] = ()
) -> NDArray[np.int64]:
    """Bytes alive while each node of a program runs, its inputs included, shape [nodes].

    A loop has the bytes of its body's peak. The maximum is that of ``peak_memory``, which has the
    same arguments.
    """
    at = placed(graph)
    alive = _alive(graph, *_given(graph, inputs, calls), at)
    return sum(_input_bytes(inputs, at)) + np.array(alive, np.int64)


def _input_bytes(inputs: Sequence[ProgramInput], at: Placed | None) -> list[int]:
    """Bytes of the device's memory that each input takes."""
    there = [False] * len(inputs) if at is None else at.values[: len(inputs)].tolist()
    return [0 if on_host else item.type.bytes for item, on_host in zip(inputs, there, strict=True)]


def _given(
    graph: WorkloadGraph, inputs: Sequence[ProgramInput], calls: Sequence[Call]
) -> tuple[dict[int, int], set[int]]:
    """Which values reuse which values' buffers, and which inputs' buffers stay."""
    if calls:
        return _donated_between(graph, len(inputs), calls)
    donated = {item.donated: number for number, item in enumerate(inputs) if item.donated >= 0}
    reused = {}
    for output, number in donated.items():
        if output < len(graph.outputs):
            reused[int(graph.outputs[output])] = number
    return reused, {number for number, item in enumerate(inputs) if item.donated < 0}


def _donated_between(
    graph: WorkloadGraph, inputs: int, calls: Sequence[Call]
) -> tuple[dict[int, int], set[int]]:
    """The same for programs in sequence; at the end of each, its outputs are read in their
    order.
    """
    value = {Origin(-1, number): number for number in range(inputs)}
    reused: dict[int, int] = {}
    kept = set(range(inputs))
    for number, (end, call) in enumerate(zip(ends(graph).tolist(), calls, strict=True)):
        first = int(graph.operand_ptr[end])
        returned = graph.operand[first : first + call.outputs].tolist()
        value |= {Origin(number, output): int(item) for output, item in enumerate(returned)}
        for item, origin in zip(call.inputs, call.operands, strict=True):
            if item.donated >= 0:
                reused[returned[item.donated]] = value[origin]
                kept.discard(value[origin])
    return reused, kept


def _alive(
    graph: WorkloadGraph,
    reused: dict[int, int],
    kept: set[int],
    at: Placed | None,
    on_host: bool = False,
) -> list[int]:
    """Bytes of results alive while each node runs.

    Args:
        graph: a block.
        reused: value -> input or earlier value whose buffer it may take if that is not read later.
        kept: inputs that are needed after the block, whose buffers stay.
        at: where its values are, if any are on the host.
        on_host: count values on the host instead of those on the device.
    """
    last = _last_readers(graph)
    there = np.zeros(graph.values, np.bool_) if at is None else at.values
    size = (graph.value_bytes * (there == on_host)).tolist()
    for value in remade(graph, last):
        size[value] = 0
    buffer = buffers(graph, last, reused, kept, size)
    dies: dict[int, int] = {}
    for value, owner in enumerate(buffer):
        dies[owner] = max(dies.get(owner, -1), last[value])
    ends: list[list[int]] = [[] for _ in range(len(graph) + 1)]
    for owner, node in dies.items():
        if owner >= graph.inputs and node < len(graph):
            ends[max(node, int(graph.producer[owner]))].append(owner)
    alive, found = 0, []
    pointer = graph.result_ptr.tolist()
    kinds = graph.kind.tolist()
    free = constant_nodes(graph)
    for node in range(len(graph)):
        if not free[node]:
            for value in range(graph.inputs + pointer[node], graph.inputs + pointer[node + 1]):
                if buffer[value] == value:
                    alive += size[value]
        inside = _inside(graph, node, at, on_host) if kinds[node] >= NodeKind.LOOP else 0
        found.append(alive + inside)
        for owner in ends[node]:
            if not free[int(graph.producer[owner])]:
                alive -= size[owner]
    return found


def _last_readers(graph: WorkloadGraph) -> list[int]:
    """The last node that reads each value, ``len(graph)`` for outputs, -1 for none."""
    last = np.full(graph.values, -1, np.int64)
    np.maximum.at(last, graph.operand, graph.consumer)
    steps = _of_optimizer(graph)
    made = np.concatenate([np.ones(graph.inputs, bool), steps[graph.producer[graph.inputs :]]])
    held = graph.operand[steps[graph.consumer] & ~made[graph.operand]]
    last[held] = np.max(np.flatnonzero(steps), initial=-1)
    last[graph.outputs] = len(graph)
    found: list[int] = last.tolist()
    return found


def _of_optimizer(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """PyTorch's kernels of the optimizer, shape [nodes]."""
    phases = np.array([int(item.phase) for item in graph.tables.sources] + [0], np.int64)
    native = np.array([*(name.startswith("aten.") for name in graph.tables.ops), False])
    found: NDArray[np.bool_] = native[graph.op] & (phases[graph.source] == Phase.OPTIMIZER)
    return found


def _inside(graph: WorkloadGraph, node: int, at: Placed | None, on_host: bool) -> int:
    """What a loop needs in addition to its operands and results."""
    loop = graph.loops[int(graph.detail[node])]
    if not loop.trip_count:
        return 0
    body = loop.body
    reused = {int(value): number for number, value in enumerate(body.outputs[: loop.carried])}
    inside = None if at is None else at.bodies[int(graph.detail[node])]
    kept = set(range(loop.carried, body.inputs))
    return max(_alive(body, reused, kept, inside, on_host), default=0)
