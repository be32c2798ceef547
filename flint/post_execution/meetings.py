"""Matching the exchanges of several traces.

The idea: the k-th collective that a rank runs in a group is the k-th one of every other member, and
the k-th message from one rank to another is the k-th one that the other receives.  Traced ranks
must agree on each; nothing else is known about ranks without a trace.

    meetings = meet({0: [Exchange("all_reduce", (0, 1), (4096,), "f32")], 1: [...]})
    meetings.number[0][0] == meetings.number[1][0]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from flint.errors import FlintError
from flint.graph.ready_order import ready_order
from flint.post_execution.exchanges import Exchange, shown_group

CONTRADICTORY = (
    "communications that stay kernels with their time: the trace has no group of them, and the "
    "ranks of the inferred group do not run the same collectives (--group NAME=0-7 gives one)"
)
NO_BYTES = (
    "communications without bytes, of empty tensors: they stay kernels with their time, because "
    "execution traces leave them out"
)


@dataclass(frozen=True, eq=False)
class Meetings:
    """The distinct communications of a run.

    Attributes:
        number: rank -> the meeting of each of its exchanges, in its order.
        exchange: the exchange of each meeting, as seen by its first traced member.
        order: all meetings, in an order that is consistent with that of every rank.
    """

    number: Mapping[int, list[int]]
    exchange: list[Exchange]
    order: list[int]


def take_back(
    exchanges: Mapping[int, list[Exchange | None]], guessed: Mapping[int, Collection[int]]
) -> list[tuple[int, int]]:
    """Leave out exchanges with an inferred group that the traces contradict.

    Args:
        exchanges: exchanges of each traced rank's units; changed in place.
        guessed: for each of these ranks, the units whose groups were inferred.

    Returns:
        Rank and unit of each omitted exchange.
    """
    runs: dict[tuple[int, ...], dict[int, list[Exchange]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    doubtful = set()
    for rank, items in exchanges.items():
        for unit, item in enumerate(items):
            if item is None:
                continue
            if item.message:
                sizes[item.group][rank].append(sum(item.parts))
                continue
            runs[item.group][rank].append(item)
            if unit in guessed[rank]:
                doubtful.add(item.group)
    wrong = {
        (False, group) for group in doubtful if not _agree(group, runs[group], set(exchanges))
    } | {
        (True, pair) for pair, ends in sizes.items()
        if exchanges.keys() >= set(pair) and ends[pair[0]] != ends[pair[1]]
    }  # fmt: skip
    left_out = []
    for rank, items in exchanges.items():
        for unit in guessed[rank]:
            item = items[unit]
            if item is not None and (item.message, item.group) in wrong:
                items[unit] = None
                left_out.append((rank, unit))
    return left_out


def leave_out_empty(exchanges: Mapping[int, list[Exchange | None]]) -> list[tuple[int, int]]:
    """Leave out exchanges in which no traced rank sends anything.

    A library waits for the other ranks all the same, so their kernels have a time.

    Args:
        exchanges: exchanges of each traced rank's units; changed in place.

    Returns:
        Rank and unit of each omitted exchange.
    """
    if all(item is None or any(item.parts) for items in exchanges.values() for item in items):
        return []
    met: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    full: set[tuple[object, ...]] = set()
    for rank, items in exchanges.items():
        seen: Counter[tuple[bool, tuple[int, ...]]] = Counter()
        for unit, item in enumerate(items):
            if item is None:
                continue
            pair = item.message, item.group
            key = (*pair, seen[pair])
            seen[pair] += 1
            if any(item.parts):
                full.add(key)
            else:
                met[key].append((rank, unit))
    left_out = [place for key, places in met.items() if key not in full for place in places]
    for rank, unit in left_out:
        exchanges[rank][unit] = None
    return left_out


def _agree(group: tuple[int, ...], runs: Mapping[int, list[Exchange]], traced: Set[int]) -> bool:
    """Whether all traced members run the same collectives."""
    members = [runs.get(rank, []) for rank in group if rank in traced]
    return all(
        len(run) == len(members[0]) and all(map(_same, members[0], run)) for run in members[1:]
    )


def meet(
    exchanges: Mapping[int, Sequence[Exchange]], *, hint: str = "choose one with --step?"
) -> Meetings:
    """Match the exchanges of the traced ranks.

    Args:
        exchanges: those of each traced rank, in order.
        hint: what a user can do about ranks that run different steps.

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
            elif _same(found[place], item):
                if item.root >= 0:
                    found[place] = replace(found[place], root=item.root)
            else:
                raise FlintError(
                    f"ranks {first[place]} and {rank} do not run the same step: number "
                    f"{seen[key]} among the ranks {shown_group(item.group)} is "
                    f"{_described(found[place])} on the one and {_described(item)} on the other "
                    f"({hint})"
                )
            number[rank].append(place)
    _check_counts(counts, hint)
    return Meetings(number, found, _common_order(_chains(exchanges, number), found))


def _chains(
    exchanges: Mapping[int, Sequence[Exchange]], number: Mapping[int, list[int]]
) -> list[list[int]]:
    """What each rank issues in order.

    A message that a traced rank receives is placed where its sender issues it: receiving delays
    only work that needs it.
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
    if one.root != other.root and min(one.root, other.root) >= 0:
        return False
    uneven = one.kind in ("all_gather", "all_to_all")
    return one.kind == other.kind and (uneven or sum(one.parts) == sum(other.parts))


def _check_counts(counts: Mapping[int, Mapping[tuple[object, ...], int]], hint: str) -> None:
    """Check that every traced member of a group runs the same number of communications in it."""
    for rank, seen in counts.items():
        for key, count in seen.items():
            group = key[1]
            assert isinstance(group, tuple)
            for other in group:
                there = counts[other].get(key, 0) if other in counts else count
                if there != count:
                    raise FlintError(
                        f"ranks {rank} and {other} do not run the same step: {count} and {there} "
                        f"communications among the ranks {shown_group(group)} ({hint})"
                    )


def _common_order(chains: list[list[int]], found: Sequence[Exchange]) -> list[int]:
    """An order of all meetings that contradicts no rank's own."""
    count = len(found)
    place = [0.0] * count
    for sequence in chains:
        for at, meeting in enumerate(sequence):
            place[meeting] = max(place[meeting], at / len(sequence))
    pairs = [pair for sequence in chains for pair in pairwise(sequence)]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    order = ready_order(place, before, after)
    if len(order) < count:
        stuck = sorted(set(range(count)) - set(order))
        raise FlintError(
            f"the ranks issue {len(stuck)} communications in conflicting orders, for example "
            f"{_described(found[stuck[0]])} among the ranks {shown_group(found[stuck[0]].group)}: "
            "execution traces have one order of communications for all ranks"
        )
    return order


def _described(item: Exchange) -> str:
    sender = f" from rank {item.root}" if item.root >= 0 else ""
    return f"{item.kind} of {sum(item.parts):,} bytes{sender}"
