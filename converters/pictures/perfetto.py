"""Timelines for Perfetto and Chrome: the modelled order of one rank.

The idea: open the loops, give every kernel its roofline time and every communication its bytes
over the bandwidth of the network tier it crosses, and start each as soon as what it waits for is
over, on one compute and one communication stream that each keep issue order.  That shows what
depends on what and what could overlap; it is no prediction of a network, which has no contention
here and in which nobody is late.

    write_perfetto(workload, Path("step.json.gz"), rank=0, system="dgx-h100")

The file opens in ui.perfetto.dev and chrome://tracing (Trace Event Format, "JSON Object Format":
one process, complete events ``X`` with ``ts`` and ``dur`` in microseconds).  Tracks: compute,
communication, and loops with their iterations from the first to the last kernel.  What takes no
time is left out and counted in ``otherData``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from flint.converters.graphs.networkx import node_attributes
from flint.converters.pictures.trace_events import slice_template
from flint.cost.roofline import node_seconds
from flint.cost.systems import System, load_system
from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.nesting import opened_blocks
from flint.graph.unrolling import ABSENT, CHAINED, UNCHAINED, Unrolled, instances_of, unroll
from flint.host.writing import replacing
from flint.mesh.mesh import Mesh
from flint.passes import apply
from flint.workload.programs import Level, Program
from flint.workload.workload import Workload

_COMPUTE: Final = 1
_COMMUNICATION: Final = 2
_LOOPS: Final = 3
_TRACKS: Final = {_COMPUTE: "compute", _COMMUNICATION: "communication", _LOOPS: "loops"}

#: Of the bytes of a collective among n ranks, what each rank sends with a bandwidth-optimal
#: algorithm: factor of (n - 1) / n, and whether of the operand or of the result.  These are the
#: "bus bandwidth" factors of NVIDIA's nccl-tests, doc/PERFORMANCE.md.
_SENT: Final[dict[str, tuple[int, str]]] = {
    "all_reduce": (2, "operand"),
    "reduce_scatter": (1, "operand"),
    "all_gather": (1, "result"),
    "all_to_all": (1, "operand"),
    "ragged_all_to_all": (1, "operand"),
}
_NOTE: Final = (
    "modelled order of one rank: roofline times for compute, bytes over bandwidth for "
    "communication, one compute and one communication stream in issue order; "
    "no contention, no rank is late"
)


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """When each instance runs.

    Attributes:
        unrolled: the instances.
        start, end: nanoseconds from the start of the step, shape [instances].
        drawn: instances that take a nanosecond or more, shape [instances].
    """

    unrolled: Unrolled
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    drawn: NDArray[np.bool_]

    def busy(self, kind: NodeKind) -> int:
        """Nanoseconds that instances of a kind take together."""
        chosen = self.unrolled.kind == kind
        return int((self.end - self.start)[chosen].sum())


def write_perfetto(
    workload: Workload,
    path: Path,
    program: str | None = None,
    granularity: str = "kernel",
    rank: int | None = None,
    system: str | System = "dgx-h100",
) -> Timeline:
    """Write the timeline of one rank; gzipped when the name ends with ``.gz``.

    Args:
        workload: what to look at.
        path: the file.
        program: its name; None for the program that ``rank`` runs.
        granularity: "op", "kernel" or "region" as in execution traces.
        rank: whose timeline; None for the first rank of the program (or of all).
        system: the cluster, by name, as a file or loaded.

    Raises:
        UsageError: an unknown granularity or system, a rank outside the mesh or the program, a
            program that is not partitioned.
        FlintError: no such program, too many instances, a file that cannot be written.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError(
            "the program is not partitioned: its shapes are those of all ranks, and no rank takes "
            "the time that a timeline would show"
        )
    described = system if isinstance(system, System) else load_system(system)
    chosen, who = _whose(workload, program, rank)
    graph = apply(chosen.graph, granularity)
    timeline = schedule(graph, who, described)
    notes = {
        "what": _NOTE,
        "program": chosen.name,
        "rank": who,
        "mesh": str(workload.mesh),
        "granularity": granularity,
        "system": described.name,
        "step_us": int(timeline.end.max(initial=0)) / 1000,
        "compute_us": timeline.busy(NodeKind.COMPUTE) / 1000,
        "communication_us": timeline.busy(NodeKind.COMMUNICATION) / 1000,
        "instances": len(timeline.unrolled),
        "without_duration": int(np.count_nonzero(~timeline.drawn)),
    }
    with replacing(path) as partial:
        if path.name.endswith(".gz"):
            packed = gzip.open(partial, "wt", encoding="utf-8", compresslevel=5)  # noqa: SIM115
            with packed:
                _write(timeline, graph, workload.mesh, notes, cast(TextIO, packed))
        else:
            with partial.open("w", encoding="utf-8") as out:
                _write(timeline, graph, workload.mesh, notes, out)
    return timeline


def schedule(graph: WorkloadGraph, rank: int, system: System) -> Timeline:
    """Start and end of everything that ``rank`` does, in the model described above."""
    tables = graph.tables
    unrolled = unroll(
        graph, presence=np.array([_presence(c, rank) for c in tables.communications], np.int8)
    )
    by_node = np.concatenate([node_seconds(part, system) for part in unrolled.graphs])
    seconds = by_node[unrolled.template]
    exchanging = unrolled.kind == NodeKind.COMMUNICATION
    if exchanging.any():
        by_item = np.array([communication_seconds(c, rank, system) for c in tables.communications])
        seconds[exchanging] = by_item[unrolled.detail[exchanging]]
    duration = np.rint(seconds * 1e9).astype(np.int64)
    start, end = _list_schedule(unrolled, duration.tolist())
    return Timeline(unrolled, start, end, duration > 0)


def communication_seconds(item: Communication, rank: int, system: System) -> float:
    """Bytes that a rank sends over the bandwidth of the tier that its partners share, plus latency.

    0 for a rank without partners.  Of a permutation, the larger of what is sent and received.
    """
    if item.permutation is not None:
        peers = np.array([item.permutation.target[rank], item.permutation.source[rank]])
        members = np.append(peers[peers >= 0], rank)
    elif item.groups is not None:
        members = item.groups.members(rank)
    else:
        return 0.0
    if not (members != rank).any():
        return 0.0
    factor, of = _SENT.get(item.kind, (0, ""))
    size = item.bytes_out if of == "result" else item.bytes_in
    sent = factor * size * (len(members) - 1) / len(members) if factor else float(size)
    tier = next(
        tier
        for tier in system.network
        if tier.size == 0 or (members // tier.size == rank // tier.size).all()
    )
    return sent / tier.bandwidth + tier.latency


def _presence(item: Communication, rank: int) -> int:
    if item.permutation is None:
        return CHAINED
    if item.permutation.target[rank] >= 0:
        return CHAINED
    return UNCHAINED if item.permutation.source[rank] >= 0 else ABSENT


def _list_schedule(
    unrolled: Unrolled, duration: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end: after all dependencies, and after what the same stream did before."""
    ends: list[int] = []
    starts: list[int] = []
    free = [0, 0]
    pointer, deps, kinds = unrolled.ptr.tolist(), unrolled.deps.tolist(), unrolled.kind.tolist()
    low = 0
    for instance, kind in enumerate(kinds):
        high = pointer[instance + 1]
        begin = free[kind]
        for dep in deps[low:high]:
            if ends[dep] > begin:
                begin = ends[dep]
        low = high
        finish = begin + duration[instance]
        # What takes no time occupies no stream: it must not hold back what comes after it.
        if finish > begin:
            free[kind] = finish
        starts.append(begin)
        ends.append(finish)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _whose(workload: Workload, program: str | None, rank: int | None) -> tuple[Program, int]:
    if rank is not None and not 0 <= rank < workload.mesh.size:
        raise UsageError(f"rank {rank}: ranks go from 0 to {workload.mesh.size - 1}")
    if program is None:
        who = np.array([rank or 0])
        return next(p for p in workload.programs if p.ranks.contains(who)[0]), int(who[0])
    chosen = workload.program(program)
    if rank is None:
        return chosen, int(chosen.ranks.array()[0])
    if not chosen.ranks.contains(np.array([rank]))[0]:
        raise UsageError(f"rank {rank} does not run program {program} (its ranks: {chosen.ranks})")
    return chosen, rank


def _write(
    timeline: Timeline, graph: WorkloadGraph, mesh: Mesh, notes: dict[str, Any], out: TextIO
) -> None:
    rank = notes["rank"]
    out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
    first = {"ph": "M", "pid": rank, "name": "process_name"}
    out.write(json.dumps(first | {"args": {"name": f"rank {rank} ({notes['program']})"}}))
    for track, name in _TRACKS.items():
        head = {"ph": "M", "pid": rank, "tid": track}
        out.write(",\n" + json.dumps(head | {"name": "thread_name", "args": {"name": name}}))
        order = head | {"name": "thread_sort_index", "args": {"sort_index": track}}
        out.write(",\n" + json.dumps(order))
    out.writelines(_instance_events(timeline, graph, mesh, rank))
    out.writelines(_loop_events(timeline, graph, rank))
    out.write('\n], "otherData": ' + json.dumps(notes) + "}\n")


def _instance_events(
    timeline: Timeline, graph: WorkloadGraph, mesh: Mesh, rank: int
) -> Iterator[str]:
    templates: list[str] = []
    for block in opened_blocks(graph):
        for node, fields in enumerate(node_attributes(block.graph, mesh)):
            templates.append(slice_template(block.path(node), fields))
    unrolled = timeline.unrolled
    for kind, track in ((NodeKind.COMPUTE, _COMPUTE), (NodeKind.COMMUNICATION, _COMMUNICATION)):
        shown = np.flatnonzero(timeline.drawn & (unrolled.kind == kind))
        columns = (unrolled.template, unrolled.iteration, timeline.start, timeline.end)
        for template, iteration, start, end in zip(
            *(c[shown].tolist() for c in columns), strict=True
        ):
            yield _event(rank, track, start, end, templates[template].replace("@", str(iteration)))


def _loop_events(timeline: Timeline, graph: WorkloadGraph, rank: int) -> Iterator[str]:
    """Loops and their iterations, each from its first to its last kernel."""
    kernels = np.flatnonzero(timeline.drawn & (timeline.unrolled.kind == NodeKind.COMPUTE))

    def span(first: int, stop: int) -> tuple[int, int] | None:
        low, high = np.searchsorted(kernels, (first, stop)).tolist()
        if low == high:
            return None
        return int(timeline.start[kernels[low]]), int(timeline.end[kernels[high - 1]])

    def inside(part: WorkloadGraph, at: int, prefix: str) -> Iterator[str]:
        for node, kind in enumerate(part.kind.tolist()):
            detail = int(part.detail[node])
            if kind < NodeKind.LOOP:
                at += 1
            elif kind == NodeKind.CONDITIONAL:
                choice = part.conditionals[detail]
                branch = choice.branches[choice.taken]
                yield from inside(branch, at, f"{prefix}{node}.{choice.taken}/")
                at += instances_of(branch)
            else:
                loop = part.loops[detail]
                size = instances_of(loop.body)
                whole = span(at, at + size * loop.trip_count)
                if whole is not None:
                    title = f"loop {prefix}{node} ({loop.trip_count} times)"
                    yield _event(rank, _LOOPS, *whole, f'"name": "{title}", "cat": "loop"')
                    for step in range(loop.trip_count):
                        place = span(at + step * size, at + (step + 1) * size)
                        if place is None:
                            continue
                        title = f'"name": "iteration {step}", "cat": "loop"'
                        yield _event(rank, _LOOPS, *place, title)
                        yield from inside(loop.body, at + step * size, f"{prefix}{node}/")
                at += size * loop.trip_count

    yield from inside(graph, 0, "")


def _event(rank: int, track: int, start: int, end: int, rest: str) -> str:
    return (
        f',\n{{"ph": "X", "pid": {rank}, "tid": {track}, "ts": {start / 1000:.3f}, '
        f'"dur": {(end - start) / 1000:.3f}, {rest}}}'
    )
