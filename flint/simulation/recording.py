"""Recordings: when every node of one rank per program ran in a simulated step.

The idea: a simulation's result has only totals; a picture needs the start and end of each node.
The same actors run once more, with every loop in full, and the nodes of the first rank of each
program are kept.

    recording = record(workload, "dgx-h100")
    recording.ranks[0].end.max()                    # ticks; the step's end for one program
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import System
from flint.execution.node_types import NodeType
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.instance_count import first_instances
from flint.graph.unrolling import Unrolled
from flint.mesh.mesh import Mesh
from flint.passes.host_lane import on_host
from flint.simulation.actor_columns import Actor
from flint.simulation.actors import ActorInfo
from flint.simulation.machine import Run
from flint.simulation.memory import memory_by_node
from flint.simulation.playing import play
from flint.simulation.spans import lanes
from flint.workload.workload import Workload

#: The slot of the host's nodes.
HOST_LANE: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class RankRecord:
    """The nodes that one rank ran.

    Attributes:
        program: name of its program.
        rank: one of the program's ranks, by default the first.
        graph: the program at the recording's granularity.
        unrolled: its instances.
        instance: the instance that each node comes from, shape [nodes].
        type: ``NodeType``, shape [nodes].
        ptr, deps: CSR over the positions of the nodes to wait for.
        channel: for a SEND or RECV, the number of its message, shape [nodes].
        slot: the communication stream of a COLL or SEND, or the compute stream of a COMP, from 0;
            ``HOST_LANE`` for the host's nodes, shape [nodes].
        start, end: ticks from the start of the step (``flint.simulation.durations`` defines a
            tick); a COLL starts when its last member has arrived, a RECV when it is issued, shape
            [nodes].
        first: the first instance of each of the program's own nodes, with loops as a whole,
            followed by the number of instances, shape [own nodes + 1].
        memory: bytes alive while each of the program's own nodes runs (see
            ``flint.simulation.memory.memory_by_node``), shape [own nodes]; None if not at kernel
            granularity, because values live between kernels.
    """

    program: str
    rank: int
    graph: WorkloadGraph
    unrolled: Unrolled
    instance: Ints
    type: NDArray[np.int8]
    ptr: Ints
    deps: Ints
    channel: Ints
    slot: Ints
    start: Ints
    end: Ints
    first: Ints
    memory: Ints | None

    def memory_over_time(self) -> tuple[Ints, Ints] | None:
        """Ticks and the bytes alive from then on, in issue order; None if unknown.

        A loop has its highest number of bytes throughout.  A node counts from when all kernels
        issued before it have ended: otherwise a node that runs ahead would end a loop's time at
        once.
        """
        if self.memory is None or not len(self.instance):
            return None
        bounds = np.searchsorted(self.instance, self.first)
        runs = np.flatnonzero(bounds[1:] > bounds[:-1])
        ends = np.maximum.reduceat(np.where(self.computes, self.end, 0), bounds[runs])
        # Instances without nodes count with the previous node.
        alive = np.maximum.reduceat(self.memory, np.append(0, runs[1:]))
        return np.append(0, np.maximum.accumulate(ends)[:-1]), alive

    @property
    def computes(self) -> NDArray[np.bool_]:
        """Nodes of the compute stream, shape [nodes]."""
        chosen: NDArray[np.bool_] = self.type == NodeType.COMP
        return chosen

    @property
    def communicates(self) -> NDArray[np.bool_]:
        """Nodes of the communication streams, shape [nodes]."""
        chosen: NDArray[np.bool_] = (self.type == NodeType.COLL) | (self.type == NodeType.SEND)
        return chosen


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A recorded step.

    Attributes:
        mesh: the workload's mesh.
        system: the system that it ran on, fitted to the mesh.
        granularity: granularity of the nodes.
        step: end of the last rank, in ticks.
        ranks: one per program, in the workload's order; or the requested one.
    """

    mesh: Mesh
    system: System
    granularity: str
    step: int
    ranks: tuple[RankRecord, ...]


def record(
    workload: Workload,
    system: str | System = "dgx-h100",
    *,
    granularity: str = "kernel",
    rank: int | None = None,
    **options: Any,
) -> Recording:
    """Run a step and keep when everything happened; other arguments and errors as of ``play``.

    Args:
        rank: the only rank whose nodes are kept; None: the first rank of each program.
    """
    played = play(workload, system, granularity=granularity, **options)
    everyone, happened = played.everyone, played.happened
    ranks = []
    for number, (graph, members) in enumerate(played.programs):
        if rank is not None and rank not in members:
            continue
        shown = int(members.min()) if rank is None else rank
        actor = int(everyone.behaviours.colour[shown])
        info, nodes = everyone.info[actor], everyone.columns[actor]
        assert info.program == number
        program = workload.programs[number]
        ranks.append(
            RankRecord(
                program=program.name,
                rank=shown,
                graph=graph,
                unrolled=info.unrolled,
                instance=info.emission.instance,
                type=nodes.types,
                ptr=nodes.ptr,
                deps=nodes.deps,
                channel=nodes.channel,
                slot=_lanes(info, nodes, happened, actor),
                start=happened.start[actor],
                end=happened.end[actor],
                first=first_instances(graph),
                memory=memory_by_node(graph, program.inputs, program.calls)
                if granularity == "kernel"
                else None,
            )
        )
    return Recording(workload.mesh, played.system, granularity, happened.ticks, tuple(ranks))


def _lanes(info: ActorInfo, nodes: Actor, happened: Run, actor: int) -> Ints:
    """The stream of its kind that each node is on."""
    slot = np.zeros(len(nodes), np.int64) if nodes.slot is None else nodes.slot
    if nodes.free is None:
        return slot
    start, end = happened.start[actor], happened.end[actor]
    template = info.unrolled.template[info.emission.instance]
    host = np.concatenate([on_host(graph) for graph in info.unrolled.graphs])[template]
    computes = (nodes.types == NodeType.COMP) & ~host
    talks = (nodes.types == NodeType.COLL) | (nodes.types == NodeType.SEND)
    slot = np.where(host, HOST_LANE, slot)
    for some in (computes & nodes.free, talks & nodes.free):
        slot[some] = lanes(start[some], end[some])
    return slot
