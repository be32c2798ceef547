"""What ranks exchange, with whom, and which collectives of several traces are the same one.

The idea: the k-th collective that a rank runs in a group is the k-th one of every other member, and
the k-th message from one rank to another is the k-th one that the other receives.  Ranks that were
traced must agree on each; of ranks without a trace that is all that is known.

    meetings = meet({0: [Exchange("all_reduce", (0, 1), (4096,), "f32")], 1: [...]})
    meetings.number[0][0] == meetings.number[1][0]
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.mesh.groups import Groups, StridedGroups, TableGroups, canonical, everybody
from flint.mesh.permutation import Permutation, permutation
from flint.observed.classes import COMMUNICATIONS, OpClass
from flint.observed.columns import UNTOLD_RANK, Observed
from flint.post_execution.units import Units, around

_KIND = {found: kind for kind, found in COMMUNICATIONS.items() if not kind.startswith("ragged")}
#: More bytes than a collective moves.
_LARGEST = 1 << 50
_REDUCES = ("all_reduce", "reduce_scatter")

BY_SIZE = (
    "collectives whose group the trace does not name: inferred from the sizes of their tensors"
)
#: A reduce to one rank, as c10d names it.
_TO_ONE = re.compile(r"(c10d::)?reduce_?")
REDUCES = "reduces to one rank: converted to all-reduces, because execution traces have no reduce"
ONLY_GROUP = "collectives whose group the trace does not name: its only group is assumed"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One communication as one rank sees it.

    Attributes:
        kind: StableHLO op name; "send" and "recv" for messages.
        group: its ranks, ascending; of a message (source, target).
        parts: bytes of each buffer that the rank puts in (of a ``recv``: gets).
        dtype: element type ("" unknown).
    """

    kind: str
    group: tuple[int, ...]
    parts: tuple[int, ...]
    dtype: str

    @property
    def message(self) -> bool:
        """Whether it is between two ranks."""
        return self.kind in ("send", "recv")


def exchanges_of(
    units: Units, trace: Observed, groups: Mapping[str, tuple[int, ...]], hint: str = ""
) -> list[Exchange | None]:
    """The exchange of each unit, None of those that compute.

    Args:
        units: one rank's.
        trace: the rows that they come from.
        groups: the process groups that the trace lists.
        hint: what may help where something is missing.

    Raises:
        FlintError: the trace does not tell a collective's size, group or peer.
    """
    known = np.array([fact.group is not None for fact in trace.facts], bool)
    holder = around(trace.parent, known[trace.op])
    found: list[Exchange | None] = []
    untold: dict[str, int] = defaultdict(int)
    for talks, fact_number, row in zip(
        units.collective.tolist(), units.fact.tolist(), units.row.tolist(), strict=True
    ):
        if not talks:
            found.append(None)
            continue
        fact = units.facts[fact_number]
        kind = _KIND[fact.kind]
        if fact.parts is None or not 0 <= sum(fact.parts) < _LARGEST:
            untold[f"bytes of {fact.name} (profile with record_shapes=True)"] += 1
            found.append(None)
            continue
        if fact.kind in (OpClass.SEND, OpClass.RECV):
            if fact.peer < 0:
                untold[f"other rank of a {fact.name}"] += 1
                found.append(None)
                continue
            pair = (units.rank, fact.peer) if kind == "send" else (fact.peer, units.rank)
            found.append(Exchange(kind, pair, fact.parts, fact.dtype))
            continue
        group = fact.group
        if group is None and holder[row] >= 0:
            group = trace.facts[int(trace.op[holder[row]])].group
        if group is None:
            group = _only(groups, units.notes)
        if group is None:
            untold[f"process group of {fact.name} (gloo's own ops do not name it)"] += 1
            found.append(None)
            continue
        if units.rank not in group:
            whose = f"by its distributedInfo or its file's name, of rank {units.rank}"
            if UNTOLD_RANK in trace.notes:
                whose = f"taken as rank {units.rank}, since nothing says it: name it rank<N>.json"
            raise FlintError(
                f"{trace.path}: {fact.name} among the ranks {_shown(group)} in a trace that is "
                f"{whose}"
            )
        if _TO_ONE.fullmatch(fact.name):
            units.notes[REDUCES] = units.notes.get(REDUCES, 0) + 1
        found.append(Exchange(kind, group, fact.parts, fact.dtype))
    if untold:
        text, count = max(untold.items(), key=lambda item: item[1])
        raise FlintError(
            f"{trace.path}: {sum(untold.values())} communications cannot be converted: the trace "
            f"does not record the {text}, {count} times" + hint
        )
    return found


def _only(groups: Mapping[str, tuple[int, ...]], notes: dict[str, int]) -> tuple[int, ...] | None:
    distinct = set(groups.values())
    if len(distinct) != 1:
        return None
    notes[ONLY_GROUP] = notes.get(ONLY_GROUP, 0) + 1
    return distinct.pop()


@dataclass(frozen=True, eq=False)
class Meetings:
    """The distinct communications of a run.

    Attributes:
        number: rank -> the meeting of each of its exchanges, in its order.
        exchange: of each meeting, as its first traced member sees it.
        order: all meetings in an order that every rank's own agrees with.
    """

    number: Mapping[int, list[int]]
    exchange: list[Exchange]
    order: list[int]


def meet(exchanges: Mapping[int, Sequence[Exchange]]) -> Meetings:
    """Match the exchanges of the traced ranks.

    Raises:
        FlintError: two ranks run different collectives on a group, or in contradicting orders.
    """
    meetings: dict[tuple[object, ...], int] = {}
    found: list[Exchange] = []
    first: list[int] = []
    number: dict[int, list[int]] = {}
    counts: dict[int, dict[tuple[object, ...], int]] = {}
    for rank, sequence in exchanges.items():
        seen: dict[tuple[object, ...], int] = defaultdict(int)
        counts[rank] = seen
        number[rank] = []
        for item in sequence:
            key = (item.message, item.group)
            place = meetings.setdefault((*key, seen[key]), len(meetings))
            seen[key] += 1
            if place == len(found):
                found.append(item)
                first.append(rank)
            elif not _same(found[place], item):
                raise FlintError(
                    f"ranks {first[place]} and {rank} do not run the same step: number "
                    f"{seen[key]} among the ranks {_shown(item.group)} is {_said(found[place])} on "
                    f"the one and {_said(item)} on the other (choose one with --step?)"
                )
            number[rank].append(place)
    _check_counts(counts)
    return Meetings(number, found, _common_order(_chains(exchanges, number), found))


def _chains(
    exchanges: Mapping[int, Sequence[Exchange]], number: Mapping[int, list[int]]
) -> list[list[int]]:
    """What each rank issues one after another.

    A message that a traced rank receives stands where its sender issues it: receiving holds up
    nobody but those who need it.
    """
    return [
        [
            meeting
            for item, meeting in zip(sequence, number[rank], strict=True)
            if item.kind != "recv" or item.group[0] not in exchanges
        ]
        for rank, sequence in exchanges.items()
    ]


def _same(one: Exchange, other: Exchange) -> bool:
    if one.message:
        return sum(one.parts) == sum(other.parts)
    uneven = one.kind in ("all_gather", "all_to_all")
    return one.kind == other.kind and (uneven or sum(one.parts) == sum(other.parts))


def _said(item: Exchange) -> str:
    return f"{item.kind} of {sum(item.parts):,} bytes"


def _shown(group: tuple[int, ...]) -> str:
    text = ", ".join(map(str, group[:8]))
    return text + (", ..." if len(group) > 8 else "")


def _check_counts(counts: Mapping[int, Mapping[tuple[object, ...], int]]) -> None:
    """Every traced member of a group runs as many communications in it."""
    for rank, seen in counts.items():
        for key, count in seen.items():
            group = key[1]
            assert isinstance(group, tuple)
            for other in group:
                there = counts[other].get(key, 0) if other in counts else count
                if there != count:
                    raise FlintError(
                        f"ranks {rank} and {other} do not run the same step: {count} and {there} "
                        f"communications among the ranks {_shown(group)} (choose one with --step?)"
                    )


def _common_order(chains: list[list[int]], found: Sequence[Exchange]) -> list[int]:
    """An order of all meetings that contradicts no rank's own."""
    count = len(found)
    missing = [0] * count
    later: list[list[int]] = [[] for _ in range(count)]
    place = [0.0] * count
    for sequence in chains:
        for at, meeting in enumerate(sequence):
            place[meeting] = max(place[meeting], at / len(sequence))
        for before, after in pairwise(sequence):
            later[before].append(after)
            missing[after] += 1
    ready = [(place[i], i) for i in range(count) if not missing[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, meeting = heapq.heappop(ready)
        order.append(meeting)
        for after in later[meeting]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(ready, (place[after], after))
    if len(order) < count:
        stuck = sorted(set(range(count)) - set(order))
        raise FlintError(
            f"the ranks issue {len(stuck)} communications in conflicting orders, for example "
            f"{_said(found[stuck[0]])} among the ranks {_shown(found[stuck[0]].group)}: "
            "execution traces have one order of communications for all ranks"
        )
    return order


class Communications:
    """Exchanges in the words of a workload graph: equal ones are one object, as are their groups.

    What is one object stands once in a program's table, and is looked at once.
    """

    def __init__(self, world: int) -> None:
        """For a run with ``world`` ranks."""
        self._world = world
        self._known: dict[Exchange, Communication] = {}
        self._groups: dict[tuple[int, ...], Groups] = {}
        self._pairs: dict[tuple[int, ...], Permutation] = {}

    def of(self, item: Exchange) -> Communication:
        """The communication of an exchange."""
        found = self._known.get(item)
        if found is None:
            found = self._known[item] = self._message(item) if item.message else self._shared(item)
        return found

    def _shared(self, item: Exchange) -> Communication:
        groups = self._groups.get(item.group)
        if groups is None:
            groups = self._groups[item.group] = groups_of(item.group, self._world)
        got = item.parts
        if item.kind == "all_gather":
            got = tuple(size * len(item.group) for size in item.parts)
        elif item.kind == "reduce_scatter":
            got = tuple(size // len(item.group) for size in item.parts)
        reduction = "add" if item.kind in _REDUCES else None
        dtypes = (item.dtype,) * len(item.parts)
        return Communication(item.kind, reduction, groups, None, item.parts, got, dtypes)

    def _message(self, item: Exchange) -> Communication:
        pair = self._pairs.get(item.group)
        if pair is None:
            pair = self._pairs[item.group] = permutation(self._world, np.array([item.group]))
        sent, got = ((), item.parts) if item.kind == "recv" else (item.parts, ())
        dtypes = (item.dtype,) * len(item.parts)
        return Communication(item.kind, None, None, pair, sent, got, dtypes)


def groups_of(group: tuple[int, ...], world: int) -> Groups:
    """The partition that a group is one row of, where its ranks are evenly spaced; else it alone.

    Ranks that the other rows name, and that never meet there, do not mind.
    """
    size = len(group)
    if size == world:
        return everybody(world)
    stride = group[1] - group[0] if size > 1 else 1
    even = group == tuple(range(group[0], group[0] + size * stride, stride))
    if even and world % (size * stride) == 0:
        groups = StridedGroups(world, canonical([(size, stride)]))
        if int(groups.base(np.array([group[0]]))[0]) == group[0]:
            return groups
    return TableGroups(world, np.array([group], np.int64))
