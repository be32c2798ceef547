"""Behaviours: groups of ranks that do the same at the same times, so that only one is simulated.

The idea: two ranks behave alike if they run the same nodes, for the same time, and the ranks that
they meet behave alike too.  This is the coarsest stable colouring of the ranks: start from program
and structure (and from properties that make the same communication slower on one rank than on
another), then distinguish ranks by the colours of their peers and groups until nothing changes.
SPMD programs without boundaries end with one colour, however many ranks there are; a chain of
pipeline stages has one colour per stage.

    behaviours(plans, world, costs=[]).count
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flint.execution.forms import GROUPED
from flint.execution.peers import Peer, combine
from flint.execution.structures import Structure, structures, used_communications
from flint.graph.communication import Communication
from flint.graph.distinct import distinct
from flint.graph.graph import Ints, WorkloadGraph
from flint.mesh.groups import Groups


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """One program as the machine runs it.

    Attributes:
        graph: the program's graph.
        ranks: the ranks that run it, ascending.
        communications: its table, with broadcasts as single collectives if so chosen.
        used: entries of the table that it issues.
        structures: its ranks by what they do.
    """

    graph: WorkloadGraph
    ranks: Ints
    communications: tuple[Communication, ...]
    used: list[int]
    structures: list[Structure]


@dataclass(frozen=True, eq=False, slots=True)
class Behaviours:
    """The colours of all ranks.

    Attributes:
        colour: colour of each rank, shape [world].
        first: the lowest rank of each colour.
        place: (plan, structure) of each colour.
        meeting: for each distinct groups, the number of the set of colours in each rank's group (-1
            for ranks in none), and the size of each set.
    """

    colour: Ints
    first: Ints
    place: list[tuple[int, int]]
    meeting: dict[Groups, tuple[Ints, Ints]]

    @property
    def count(self) -> int:
        """Number of colours."""
        return len(self.first)


def plan(graph: WorkloadGraph, ranks: Ints, *, broadcast_tree: bool = False) -> Plan:
    """A program and what its ranks do.

    Args:
        graph: the program.
        ranks: the ranks that run it.
        broadcast_tree: whether broadcasts run as messages of a tree, as in execution traces, or as
            one collective, as in libraries.
    """
    table = graph.tables.communications
    if not broadcast_tree:
        table = tuple(
            replace(item, kind="all_gather") if item.kind == "collective_broadcast" else item
            for item in table
        )
    used = used_communications(graph)
    ranks = np.sort(ranks)
    return Plan(graph, ranks, table, used, structures(table, used, ranks))


def behaviours(plans: Sequence[Plan], world: int, costs: Iterable[Ints] = ()) -> Behaviours:
    """Colour the ranks.

    Args:
        plans: all programs; together they cover every rank once.
        world: number of ranks.
        costs: columns over ranks of properties that make something take longer on some ranks.
    """
    place: list[tuple[int, int]] = []
    colour = np.zeros(world, np.int64)
    for number, item in enumerate(plans):
        for index, structure in enumerate(item.structures):
            colour[structure.ranks] = len(place)
            place.append((number, index))
    start = colour
    groups, peers = _partners(plans)
    # Which of its parent's messages a rank gets matters: they are sent one after another.
    turns = [_turn(peer, world) for peer in peers if peer.role == "child"]
    colour, first = combine([colour, *costs, *turns], world)
    ranks = np.arange(world, dtype=np.int64)
    numbers = {item: item.number(ranks) for item in groups}
    while True:
        columns = [_sets(numbers[item], colour)[0] for item in groups]
        columns += [_seen(peer, colour) for peer in peers]
        finer, first = combine([colour, *columns], world)
        if finer.max(initial=0) == colour.max(initial=0):
            break
        colour = finer
    meeting = {item: _sets(numbers[item], colour) for item in groups}
    return Behaviours(colour, first, [place[start[rank]] for rank in first.tolist()], meeting)


def _partners(plans: Sequence[Plan]) -> tuple[list[Groups], list[Peer]]:
    groups: dict[Groups, None] = {}
    peers: dict[Peer, None] = {}
    known: set[int] = set()
    for item in plans:
        for structure in item.structures:
            for index in item.used:
                part, communication = structure.parts[index], item.communications[index]
                if communication.kind in GROUPED and part.form.nodes:
                    assert communication.groups is not None
                    groups.setdefault(communication.groups)
                elif part.peers and id(part) not in known:
                    known.add(id(part))
                    peers.update(dict.fromkeys(part.peers))
    return list(groups), list(peers)


def _seen(peer: Peer, colour: Ints) -> Ints:
    """The colour of each rank's peer, -1 for none."""
    ranks = np.arange(len(colour), dtype=np.int64)
    found = peer.values(ranks)
    return np.where(found >= 0, colour[np.maximum(found, 0)], -1)


def _turn(child: Peer, world: int) -> Ints:
    """Whether each rank is the child of that number of another one, as 0 or 1."""
    found = child.values(np.arange(world, dtype=np.int64))
    turn = np.zeros(world, np.int64)
    turn[found[found >= 0]] = 1
    return turn


def _sets(number: Ints, colour: Ints) -> tuple[Ints, Ints]:
    """The set of colours in each rank's group as a number, and the size of each set.

    Args:
        number: number of each rank's group, -1 for ranks in none.
        colour: colour of each rank.
    """
    if not colour.any():
        return np.where(number >= 0, 0, -1), np.ones(1, np.int64)
    span = int(colour.max()) + 1
    member = number >= 0
    group, present = np.divmod(distinct(number[member] * span + colour[member]), span)
    numbers, start = np.unique(group, return_index=True)
    # Groups are distinguished by the bytes of their sorted colours.
    sets: dict[bytes, int] = {}
    sizes: list[int] = []
    of_group = np.full(int(number.max(initial=-1)) + 1, -1, np.int64)
    bounds = [*start.tolist(), len(group)]
    for index, which in enumerate(numbers.tolist()):
        key = present[bounds[index] : bounds[index + 1]].tobytes()
        if key not in sets:
            sets[key] = len(sets)
            sizes.append(bounds[index + 1] - bounds[index])
        of_group[which] = sets[key]
    found = np.where(member, of_group[np.maximum(number, 0)] if len(of_group) else -1, -1)
    return found, np.array(sizes, np.int64)
