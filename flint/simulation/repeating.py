"""Finding the parts of a workload's programs that repeat, and which of them repeat together.

The idea: a program repeats in its outermost loops and in the periods of unrolled parts.  If it
exchanges nothing with other programs, each of these parts is independent.  Parts of several
programs that communicate repeat together: if one has fewer periods, the others have fewer too, so
that every message still has its receiver and every group all of its members. This is the repetition
vector of a synchronous dataflow graph (Lee and Messerschmitt, 1987): rates r with ``r[a] *
messages[a] = r[b] * messages[b]`` for all parts a and b that exchange.

    [pipeline] = repeating(programs, world)     # 1F1B: every stage's steady part, all rates are 1
    [(part, rate) for part, rate in pipeline]
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph
from flint.graph.instance_count import instances_of
from flint.graph.periods import Periods, periods
from flint.mesh.groups import Groups

#: Programs with fewer nodes are not searched for periods: running all of them is as fast.
SEARCHED: Final = 20_000
#: Parts with fewer periods are run in full.
FEW: Final = 10


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A repeating part of a program.

    Attributes:
        program: the program's number.
        place: its nodes; a loop is a part of one node, with as many periods as iterations.
        loop: whether it is a loop.
        instances: number of instances of one period.
        lookahead: iterations of a loop that may overlap.
        exchanges: groups, or ranks sent to and received from -> how often per period.
    """

    program: int
    place: Periods
    loop: bool
    instances: int
    lookahead: int
    exchanges: Mapping[Hashable, int]


#: Parts that repeat together, each with its rate.
Together = tuple[tuple[Part, int], ...]


def repeating(
    programs: Sequence[tuple[WorkloadGraph, Ints]], world: int, searched: int = SEARCHED
) -> list[Together]:
    """The parts that repeat, in sets that repeat together.

    Args:
        programs: graphs and the ranks that run them.
        world: number of ranks.
        searched: programs are searched for periods if they have at least this many nodes in total.
    """
    search = sum(len(graph) for graph, _ in programs) >= searched
    parts: list[Part] = []
    for number, (graph, _) in enumerate(programs):
        names = _Names(graph)
        parts += _loops(number, graph, names)
        if search:
            parts += _unrolled(number, graph, names)
    return _joined(parts, _shared(parts, programs, world)) if parts else []


class _Names:
    """The keys of a program's communications in ``Part.exchanges``."""

    def __init__(self, graph: WorkloadGraph) -> None:
        self.table = graph.tables.communications
        self._known: dict[int, tuple[Hashable, ...]] = {}

    def count(self, graph: WorkloadGraph, nodes: slice, times: int = 1) -> Counter[Hashable]:
        """How often the nodes take part in each exchange, with all iterations of their loops."""
        found: Counter[Hashable] = Counter()
        for node in (np.flatnonzero(graph.kind[nodes] != NodeKind.COMPUTE) + nodes.start).tolist():
            detail = int(graph.detail[node])
            if graph.kind[node] == NodeKind.LOOP:
                loop = graph.loops[detail]
                inner = slice(0, len(loop.body))
                found.update(self.count(loop.body, inner, times * loop.trip_count))
            else:
                found.update(dict.fromkeys(self._of(detail), times))
        return found

    def _of(self, detail: int) -> tuple[Hashable, ...]:
        if detail not in self._known:
            self._known[detail] = tuple(_exchanges(self.table[detail]))
        return self._known[detail]


def _exchanges(item: Communication) -> Iterator[Hashable]:
    """The groups, or the directions along a permutation."""
    if item.groups is not None:
        yield "on", item.groups, item.communicator
    elif item.permutation is not None:
        if item.kind != "recv":
            yield "to", item.permutation
        if item.kind != "send":
            yield "from", item.permutation


def _loops(number: int, graph: WorkloadGraph, names: _Names) -> Iterator[Part]:
    """The outermost long loops."""
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = graph.loops[int(graph.detail[node])]
        size = instances_of(loop.body)
        if size and loop.trip_count > FEW and _own_iterations(loop):
            exchanges = names.count(loop.body, slice(0, len(loop.body)))
            ahead = 0 if loop.lookahead is None else loop.lookahead + 1
            yield Part(number, Periods(node, 1, loop.trip_count), True, size, ahead, exchanges)


def _own_iterations(loop: Loop) -> bool:
    """Whether every carried value has the same origin in every iteration, relative to that
    iteration.

    It is computed in the body, passed on unchanged or an invariant.  A value that is another
    carried value (a swap, a shift register) comes from further back the longer the loop runs.
    """
    return all(_made(loop.body, index, loop.carried) for index in range(loop.carried))


def _made(body: WorkloadGraph, index: int, carried: int) -> bool:
    value = int(body.outputs[index])
    if value < body.inputs:
        return value == index or value >= carried
    return _by_a_node(body, value)


def _by_a_node(graph: WorkloadGraph, value: int) -> bool:
    """Whether a compute or communication node, perhaps inside a loop, makes a value."""
    node = int(graph.producer[value])
    if node < 0:
        return False
    detail = int(graph.detail[node])
    result = value - graph.inputs - int(graph.result_ptr[node])
    if graph.kind[node] == NodeKind.LOOP:
        loop = graph.loops[detail]
        return loop.trip_count > 0 and _by_a_node(loop.body, int(loop.body.outputs[result]))
    return True


def _unrolled(number: int, graph: WorkloadGraph, names: _Names) -> Iterator[Part]:
    """The parts whose periods are unrolled."""
    for place in periods(graph):
        if place.count > FEW:
            exchanges = names.count(graph, slice(place.start, place.start + place.nodes))
            yield Part(number, place, False, place.nodes, 0, exchanges)


#: A program and its exchange, and the same for its partner.
_Link = tuple[int, Hashable, int, Hashable]


def _shared(
    parts: Iterable[Part], programs: Sequence[tuple[WorkloadGraph, Ints]], world: int
) -> list[_Link]:
    """The exchanges between two programs, with the key of each side."""
    if len(programs) == 1:
        return []
    owner = np.zeros(world, np.int64)
    for number, (_, ranks) in enumerate(programs):
        owner[ranks] = number
    links: dict[_Link, None] = {}
    for name in dict.fromkeys(name for part in parts for name in part.exchanges):
        assert isinstance(name, tuple)
        way, among = name[:2]
        if way == "on":
            for one, other in _members(among, owner):
                links[one, name, other, name] = None
        else:
            source = np.flatnonzero(among.target >= 0)
            pairs = np.stack([owner[source], owner[among.target[source]]])
            for one, other in np.unique(pairs, axis=1).T.tolist():
                if one != other:
                    links[one, ("to", among), other, ("from", among)] = None
    return list(links)


def _members(groups: Groups, owner: Ints) -> Iterator[tuple[int, int]]:
    """Pairs of programs that meet in a group."""
    group = groups.number(np.arange(len(owner), dtype=np.int64))
    of_group, program = np.unique(np.stack([group, owner])[:, group >= 0], axis=1)
    same = of_group[1:] == of_group[:-1]
    yield from dict.fromkeys(
        zip(program[:-1][same].tolist(), program[1:][same].tolist(), strict=True)
    )


def _weight(part: Part) -> tuple[int, int]:
    """The part to keep of two parts with the same exchanges: the one that exchanges more (the
    steady part of 1F1B, not the forward passes before it), then the longer one.
    """
    return len(part.exchanges), part.place.count * part.place.nodes


def _joined(parts: list[Part], links: list[_Link]) -> list[Together]:
    """Parts that exchange, with their rates; parts without partners are left out."""
    having: dict[tuple[int, Hashable], list[Part]] = defaultdict(list)
    for part in parts:
        for name in part.exchanges:
            having[part.program, name].append(part)
    alive = dict.fromkeys(parts)
    while True:
        before = len(alive)
        for one, name, other, back in links:
            sides = [
                [part for part in having[side] if part in alive]
                for side in ((one, name), (other, back))
            ]
            if not all(sides):
                chosen: list[Part] = []  # its exchanges are outside the other's parts
            else:
                chosen = [max(side, key=_weight) for side in sides]
            for part in (part for side in sides for part in side if part not in chosen):
                del alive[part]
        if len(alive) == before:
            break
    ratios: dict[Part, list[tuple[Part, Fraction]]] = {part: [] for part in alive}
    for one, name, other, back in links:
        for a in having[one, name]:
            for b in having[other, back]:
                if a in alive and b in alive:
                    ratio = Fraction(a.exchanges[name], b.exchanges[back])
                    ratios[a].append((b, ratio))
                    ratios[b].append((a, 1 / ratio))
    found = []
    seen: set[Part] = set()
    for part in alive:
        if part not in seen:
            rates = _rates(part, ratios)
            seen.update(rates)
            if _balanced(rates, ratios) and len({item.program for item in rates}) == len(rates):
                least = math.lcm(*(rate.denominator for rate in rates.values()))
                whole = {item: int(rate * least) for item, rate in rates.items()}
                common = math.gcd(*whole.values())
                found.append(tuple((item, rate // common) for item, rate in whole.items()))
    return found


def _rates(first: Part, ratios: Mapping[Part, list[tuple[Part, Fraction]]]) -> dict[Part, Fraction]:
    """Rates of all parts that are tied to one part, which has rate 1."""
    rates = {first: Fraction(1)}
    todo = [first]
    while todo:
        part = todo.pop()
        for other, ratio in ratios[part]:
            if other not in rates:
                rates[other] = rates[part] * ratio
                todo.append(other)
    return rates


def _balanced(
    rates: Mapping[Part, Fraction], ratios: Mapping[Part, list[tuple[Part, Fraction]]]
) -> bool:
    return all(
        rates[other] == rate * ratio
        for part, rate in rates.items()
        for other, ratio in ratios[part]
    )
