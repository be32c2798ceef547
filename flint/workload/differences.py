"""Differences between two workloads: above all, what a backend has changed in a partitioned
program.

The idea: both sides are counted in the same way, with loops unrolled and all ranks added up, and
compared. A backend changes collectives in ways that preserve one number, the **payload**: the bytes
of the whole tensor that a group works on, as seen by one rank.

    all_gather   its result;  all others   their operands

Combining several into one, splitting one, and starting one early preserve the payload of a kind; an
all-reduce whose result is sliced becomes a reduce-scatter of the same payload, hence the sum over
both; only removing (a common subexpression) or adding (a recomputation) changes it.

    found = differences(load("partitioned"), load("optimized"))
    found.collectives[0].before.calls, found.collectives[0].after.calls
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.nesting import blocks
from flint.graph.stated import without_unknown
from flint.workload.inspection import at_granularity, summarise
from flint.workload.program_differences import ProgramDifference, moved, program_differences
from flint.workload.summary import Summary
from flint.workload.workload import Workload

#: Categories of nodes that are kernels.
_KERNELS = ("compute", "movement")

#: The op name of the second half of an asynchronous op; its operands are the first half's.
_DONE = "async_done"

#: Kinds that a backend turns into each other, under one name.
_FAMILIES = {"reductions": ("all_reduce", "reduce_scatter")}


@dataclass(frozen=True, slots=True)
class Calls:
    """Communications of one kind, over all ranks.

    Attributes:
        calls: number of calls.
        tensors: operands of all calls; more than calls if several are combined into one.
        asynchronous: calls that are started first and awaited later.
        payload: bytes of the tensors that groups work on (see the module's text).
        operand_bytes, result_bytes: bytes of all calls.
    """

    calls: int = 0
    tensors: int = 0
    asynchronous: int = 0
    payload: int = 0
    operand_bytes: int = 0
    result_bytes: int = 0

    def __add__(self, other: Calls) -> Calls:
        return Calls(*(getattr(self, k) + getattr(other, k) for k in self.__slots__))


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """One kind of communication (or a family of kinds) on both sides."""

    kind: str
    before: Calls
    after: Calls


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """Kernels of one name on both sides, over all ranks."""

    op: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Side:
    """One workload's totals, over all ranks.

    Attributes:
        level, order, target: of the workload; target "" if there is none.
        ranks: number of ranks of the mesh.
        traced: number of these whose kernels are known.
        kernels: compute and movement nodes at kernel granularity.
        flops, matmul_flops, transcendentals: work.
        bytes_read, bytes_written: memory traffic.
    """

    level: str
    order: str
    target: str
    ranks: int
    traced: int
    kernels: int
    flops: float
    matmul_flops: float
    transcendentals: float
    bytes_read: float
    bytes_written: float


@dataclass(frozen=True, slots=True)
class Differences:
    """Two workloads in comparison.

    Attributes:
        before, after: their totals.
        collectives: by kind, each kind that either side has.
        families: kinds that backends turn into each other, added up.
        kernels: by name, the largest change first.
        programs: programs that the sides run in sequence; empty if both are a single program.
    """

    before: Side
    after: Side
    collectives: tuple[CollectiveDifference, ...]
    families: tuple[CollectiveDifference, ...]
    kernels: tuple[KernelDifference, ...]
    programs: tuple[ProgramDifference, ...] = ()

    @property
    def moved(self) -> frozenset[str]:
        """Programs that both sides run, but in another order."""
        return moved(self.programs)

    def to_json(self) -> dict[str, Any]:
        """The record in JSON's types; integers are exact, unknown values are null."""
        return asdict(self, dict_factory=without_unknown)


def differences(before: Workload, after: Workload) -> Differences:
    """Compare two workloads.

    Args:
        before, after: of any mesh, partitioned or optimized; they need not come from one program.

    Raises:
        UsageError: a workload is at the logical level, which has no work per rank.
    """
    for item in (before, after):
        item.check_partitioned("a comparison needs")
    sides = [summarise(at_granularity(item, "kernel")) for item in (before, after)]
    calls = [_calls(item) for item in (before, after)]
    kinds = sorted({*calls[0], *calls[1]})
    return Differences(
        before=_side(before, sides[0]),
        after=_side(after, sides[1]),
        collectives=tuple(
            CollectiveDifference(kind, calls[0].get(kind, Calls()), calls[1].get(kind, Calls()))
            for kind in kinds
        ),
        families=tuple(
            CollectiveDifference(name, _sum(calls[0], members), _sum(calls[1], members))
            for name, members in _FAMILIES.items()
            if set(members) & set(kinds)
        ),
        kernels=_kernels(*sides),
        programs=program_differences(*sides),
    )


def _sum(calls: dict[str, Calls], kinds: tuple[str, ...]) -> Calls:
    return sum((calls[kind] for kind in kinds if kind in calls), Calls())


def _side(workload: Workload, summary: Summary) -> Side:
    programs = [(item, item.rank_count) for item in summary.programs]
    return Side(
        level=summary.level,
        order=summary.order,
        target=workload.compiled.target if workload.compiled else "",
        ranks=workload.mesh.size,
        traced=sum(ranks for item, ranks in programs if item.traced),
        kernels=sum(_kernels_of(summary).values()),
        flops=summary.cluster_flops,
        matmul_flops=sum(item.matmul_flops * ranks for item, ranks in programs),
        transcendentals=sum(item.transcendentals * ranks for item, ranks in programs),
        bytes_read=sum(item.bytes_read * ranks for item, ranks in programs),
        bytes_written=sum(item.bytes_written * ranks for item, ranks in programs),
    )


def _kernels_of(summary: Summary) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for program in summary.programs:
        for row in program.ops:
            if row.category in _KERNELS:
                found[row.op] += row.count * program.rank_count
    return found


def _kernels(before: Summary, after: Summary) -> tuple[KernelDifference, ...]:
    old, new = _kernels_of(before), _kernels_of(after)
    rows = [KernelDifference(op, old.get(op, 0), new.get(op, 0)) for op in {**old, **new}]
    return tuple(sorted(rows, key=lambda row: (-abs(row.after - row.before), row.op)))


def _calls(workload: Workload) -> dict[str, Calls]:
    """Communications by kind, over all ranks."""
    found: dict[str, Calls] = defaultdict(Calls)
    for program in workload.programs:
        table = program.graph.tables.communications
        for block in blocks(program.graph):
            times = block.times * program.ranks.size
            if not times:
                continue
            graph = block.graph
            nodes = np.flatnonzero(graph.kind == NodeKind.COMMUNICATION)
            awaited = np.isin(nodes, _awaited(graph))
            for detail, started in zip(graph.detail[nodes].tolist(), awaited.tolist(), strict=True):
                item = table[detail]
                found[item.kind] += Calls(
                    calls=times,
                    tensors=times * len(item.operand_bytes),
                    asynchronous=times * started,
                    payload=times * payload(item),
                    operand_bytes=times * item.bytes_in,
                    result_bytes=times * item.bytes_out,
                )
    return found


def payload(item: Communication) -> int:
    """Bytes of the whole tensor that a group works on, as seen by one rank."""
    return item.bytes_out if item.kind == "all_gather" else item.bytes_in


def _awaited(graph: WorkloadGraph) -> Ints:
    """Nodes whose end is another node."""
    names = np.array([name == _DONE for name in graph.tables.ops], dtype=bool)
    done = names[graph.op] & (graph.kind == NodeKind.COMPUTE)
    makers: Ints = graph.producer[graph.operand[done[graph.consumer]]]
    return makers
