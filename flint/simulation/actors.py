"""Actors of a workload: each behaviour's nodes, how long they take and which other actors they
meet.

The idea: unroll a program once per structure, emit the nodes that execution traces would have, and
give collectives and messages numbers that are the same for all partners.

    everyone = build_actors(programs, mesh.size, durations)
    run(everyone.columns, everyone.members)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.execution.chains import CommunicationOrder, chains
from flint.execution.emission import Emission, emit, presence_of
from flint.execution.forms import bytes_of
from flint.execution.node_types import NodeType
from flint.execution.structures import Structure
from flint.execution.tags import Tags, side_of
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.unrolling import Unrolled, unroll
from flint.mesh.groups import Groups
from flint.simulation.actor_columns import Actor, Beside
from flint.simulation.behaviours import Behaviours, Plan, behaviours, plan
from flint.simulation.replay import NO_REPLAY, Replay, replayed

#: The most nodes of all actors together; each takes some hundred bytes while the machine runs.
MAX_NODES: Final = 10_000_000

#: The chain number of communications that are in no chain.
UNCHAINED: Final = -1

#: Ticks of each node of an emission: (plan, unrolled, emission, rank that stands for the others).
Durations = Callable[[Plan, Unrolled, Emission, int], Ints]
#: Speed of kernels while each of those nodes communicates.
Besides = Callable[[Plan, Unrolled, Emission, int], Beside]


@dataclass(frozen=True, eq=False, slots=True)
class ActorInfo:
    """The ranks that an actor stands for.

    Attributes:
        program: number of its program.
        structure: its ranks' structure.
        rank: the rank that stands for the others.
        ranks: number of ranks.
        unrolled: its program's instances.
        emission: its nodes.
    """

    program: int
    structure: Structure
    rank: int
    ranks: int
    unrolled: Unrolled
    emission: Emission


@dataclass(frozen=True, eq=False, slots=True)
class Actors:
    """All actors.

    Attributes:
        columns: what the machine runs.
        info: the ranks and nodes of each actor.
        members: number of actors per meeting.
        behaviours: which actor stands for each rank.
    """

    columns: list[Actor]
    info: list[ActorInfo]
    members: list[int]
    behaviours: Behaviours


def build_actors(
    programs: Sequence[tuple[WorkloadGraph, Ints]],
    world: int,
    durations: Durations,
    *,
    costs: Callable[[Sequence[Plan]], list[Ints]] | None = None,
    broadcast_tree: bool = False,
    order: CommunicationOrder = CommunicationOrder.RANK,
    replay: Replay = NO_REPLAY,
    beside: Besides | None = None,
) -> Actors:
    """The actors of a workload.

    Args:
        programs: graphs and the ranks that run them; together all ranks, each once.
        world: number of ranks.
        durations: ticks of an actor's nodes.
        costs: properties that make ranks of one structure differ in time, as columns over ranks.
        broadcast_tree: see ``flint.simulation.behaviours.plan``.
        order: whether a rank issues all its communications in one order, or those of each
            communicator, which then has its own slot.
        replay: which parts of recorded programs keep their measured time; measured communications
            keep only the order of their streams.
        beside: what an actor's communications leave to what runs at the same time; by default
            kernels run at full speed, and communications share the same links.

    Raises:
        FlintError: messages do not match, or programs are too large to unroll or to run.
    """
    plans = [plan(graph, ranks, broadcast_tree=broadcast_tree) for graph, ranks in programs]
    found = behaviours(plans, world, costs(plans) if costs is not None else ())
    counts = np.bincount(found.colour, minlength=found.count)
    opened: dict[tuple[int, int], tuple[Unrolled, Emission]] = {}
    slots = [chains(item.communications, order) for item in plans]
    if replay.measured_communication:
        slots = [np.full(len(item.communications), UNCHAINED, np.int64) for item in plans]
    for place in found.place:
        if place not in opened:
            opened[place] = _open(plans[place[0]], place[1], opened, place[0], slots[place[0]])
    nodes = sum(len(opened[place][1]) for place in found.place)
    if nodes > MAX_NODES:
        raise FlintError(
            f"ranks behave in {found.count:,} different ways, with {nodes:,} nodes in total; the "
            f"limit is {MAX_NODES:,}: choose a coarser granularity (region)"
        )
    some = {place[0]: opened[place][0] for place in found.place}
    sides = [side_of(some[number], item.ranks) for number, item in enumerate(plans)]
    tags = Tags(sides)
    tag_of = [tags.of(side, number) for number, side in enumerate(sides)]
    numbers = _Numbers(found)
    columns, info = [], []
    for colour, (place, rank) in enumerate(zip(found.place, found.first.tolist(), strict=True)):
        number, index = place
        unrolled, emission = opened[place]
        item = plans[number]
        structure = item.structures[index]
        ticks = np.where(
            emission.type == NodeType.RECV, 0, durations(item, unrolled, emission, rank)
        )
        answered = _answered(item, structure, unrolled, emission, rank, found, replay)
        real = replayed(replay, number, unrolled, emission, ticks, answered)
        channel = numbers.channels(
            item, structure, unrolled, emission, tag_of[number], rank, colour
        )
        columns.append(
            Actor(
                emission.type, emission.ptr, emission.deps, real.ticks, channel,
                _slots_of(unrolled, emission, slots[number]), real.delay, real.free,
                None if beside is None else beside(item, unrolled, emission, rank),
            )
        )  # fmt: skip
        info.append(ActorInfo(number, structure, rank, int(counts[colour]), unrolled, emission))
    return Actors(columns, info, numbers.members, found)


def _answered(
    item: Plan,
    structure: Structure,
    unrolled: Unrolled,
    emission: Emission,
    rank: int,
    found: Behaviours,
    replay: Replay,
) -> NDArray[np.bool_]:
    """RECVs whose sender is not a recorded rank: the sender sends at once, however long they
    took.
    """
    answered = np.zeros(len(item.communications) + 1, np.bool_)
    for index in item.used:
        for peer in structure.parts[index].peers if replay.measured_communication else ():
            other = int(peer.values(np.array([rank], np.int64))[0])
            program = found.place[int(found.colour[other])][0] if other >= 0 else -1
            answered[index] |= program >= 0 and not replay.recorded[program]
    receives: NDArray[np.bool_] = emission.type == NodeType.RECV
    receives &= answered[unrolled.detail[emission.instance]]
    return receives


def _slots_of(unrolled: Unrolled, emission: Emission, slots: Ints | None) -> Ints | None:
    """The slot of every node, 0 if it takes none; copies in each direction have their own."""
    loads, stores = (emission.type == kind for kind in (NodeType.MEM_LOAD, NodeType.MEM_STORE))
    copies = loads | stores
    found = None
    if slots is not None:
        found = np.append(slots, 0)[unrolled.detail[emission.instance]]
    if not copies.any():
        return found
    last = 0 if slots is None else int(slots.max(initial=0))
    others = np.zeros(len(emission), np.int64) if found is None else found
    return np.where(loads, last + 1, np.where(stores, last + 2, others))


def _open(
    item: Plan,
    index: int,
    opened: dict[tuple[int, int], tuple[Unrolled, Emission]],
    number: int,
    slots: Ints | None,
) -> tuple[Unrolled, Emission]:
    """Instances and nodes of one structure; structures with the same chains share the instances."""
    structure = item.structures[index]
    presence = presence_of(structure.parts)
    alike = (
        instances
        for (other, known), (instances, _) in opened.items()
        if other == number and np.array_equal(presence_of(item.structures[known].parts), presence)
    )
    unrolled = next(alike, None) or unroll(item.graph, presence=presence, chains=slots)
    return unrolled, emit(unrolled, item.communications, structure.parts, slots)


class _Numbers:
    """Numbers of meetings and messages that are the same for all partners."""

    def __init__(self, found: Behaviours) -> None:
        self.found = found
        self.members: list[int] = []
        self._meetings: dict[tuple[int, int, str, int, int], int] = {}
        self._groups: dict[Groups, int] = {}

    def channels(
        self,
        item: Plan,
        structure: Structure,
        unrolled: Unrolled,
        emission: Emission,
        tags: Ints,
        rank: int,
        colour: int,
    ) -> Ints:
        """The channel of every node of an actor (see ``Actor``)."""
        detail = unrolled.detail[emission.instance]
        meeting = np.full(len(item.communications) + 1, -1, np.int64)
        longest = max((len(part.peers) for part in structure.parts), default=0)
        peers = np.full((len(item.communications) + 1, max(longest, 1)), -1, np.int64)
        here = np.array([rank], np.int64)
        for index in item.used:
            part = structure.parts[index]
            if NodeType.COLL in part.form.nodes:
                meeting[index] = self._meeting(item, index, rank)
            for at, peer in enumerate(part.peers):
                peers[index, at] = self.found.colour[int(peer.values(here)[0])]
        count = self.found.count
        tag = tags[emission.instance]
        other = peers[detail, np.minimum(emission.part, peers.shape[1] - 1)]
        sent = (tag * count + colour) * count + other
        received = (tag * count + other) * count + colour
        kinds = emission.type
        return np.select(
            [kinds == NodeType.COLL, kinds == NodeType.SEND, kinds == NodeType.RECV],
            [meeting[detail], sent, received],
            -1,
        )

    def _meeting(self, item: Plan, index: int, rank: int) -> int:
        communication = item.communications[index]
        groups = communication.groups
        assert groups is not None
        of_rank, sizes = self.found.meeting[groups]
        number = self._groups.setdefault(groups, len(self._groups))
        key = (
            number, int(of_rank[rank]), communication.kind, bytes_of(communication),
            communication.communicator,
        )  # fmt: skip
        if key not in self._meetings:
            self._meetings[key] = len(self.members)
            self.members.append(int(sizes[key[1]]))
        return self._meetings[key]
