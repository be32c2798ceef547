"""What one rank exchanges, and with which ranks.

exchanges_of(units, trace, groups)[0][3]        # Exchange("all_reduce", (0, 1), (4096,), "f32")
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flint.errors import FlintError
from flint.observed.across_ranks import Group, Ungrouped
from flint.observed.classes import COMMUNICATIONS, OpClass
from flint.observed.columns import UNKNOWN_RANK, Observed, OpFacts
from flint.post_execution.inferred_groups import OTHER_RANK, InferredGroups
from flint.post_execution.units import Units, around

_KIND = {found: kind for kind, found in COMMUNICATIONS.items() if not kind.startswith("ragged")}
#: The most bytes of a collective.
_LARGEST = 1 << 50

#: c10d's name of a reduce to one rank.
_LACKING = "communications that stay kernels with their time: the trace has no {}{}"
_TO_ONE = re.compile(r"(c10d::)?reduce_?")
REDUCES = "reduces to one rank: converted to all-reduces, because execution traces have no reduce"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One communication as one rank sees it.

    Attributes:
        kind: StableHLO op name; "send" and "recv" for messages.
        group: its ranks, ascending; for a message (source, target).
        parts: bytes of each buffer that the rank contributes (for a ``recv``: receives).
        dtype: element type ("" if unknown).
        root: the rank that sends in a broadcast; -1 if unknown, and in other kinds.
    """

    kind: str
    group: tuple[int, ...]
    parts: tuple[int, ...]
    dtype: str
    root: int = -1

    @property
    def message(self) -> bool:
        """Whether it is between two ranks."""
        return self.kind in ("send", "recv")


class Nameless(NamedTuple):
    """A message that names no sender.

    Attributes:
        unit: its unit.
        parts: bytes of each buffer.
        dtype: element type.
        note: what is said of it in the rank's notes.
    """

    unit: int
    parts: tuple[int, ...]
    dtype: str
    note: str


def exchanges_of(
    units: Units,
    trace: Observed,
    unnamed: InferredGroups,
    *,
    strict: bool = False,
    alone: bool = False,
) -> tuple[list[Exchange | None], dict[int, str]]:
    """The exchange of each unit, None for those that compute, and how groups were inferred.

    A communication about which the trace records too little stays a kernel with its time, and is
    counted in the units' notes; so is each inferred group, whose unit comes with the reason.

    Args:
        units: units of one rank.
        trace: the rows that they come from.
        unnamed: the groups of collectives that do not name theirs.
        strict: nothing is inferred, and nothing may stay a kernel.
        alone: no other file of the run completes the trace.

    Raises:
        FlintError: a rank is not in its group; with ``strict``, the trace does not record a
            collective's size, group or peer.
    """
    found: list[Exchange | None] = [None] * len(units)
    missing: dict[str, int] = defaultdict(int)
    inferred: dict[str, int] = defaultdict(int)
    guessed: dict[int, str] = {}
    how = f" ({trace.hints.sizes})" if trace.hints.sizes else ""
    hint = trace.hints.beside if alone else ""
    root_of = _root_of(trace)
    for unit, fact, row, group in _named(units, trace):
        kind = _KIND[fact.kind]
        if fact.parts is None or not 0 <= sum(fact.parts) < _LARGEST:
            missing[f"bytes of {fact.name}{how}"] += 1
            continue
        if fact.kind in (OpClass.SEND, OpClass.RECV):
            peer = fact.peer if fact.peer >= 0 else unnamed.partner(units.rank)
            if peer < 0:
                text = f"other rank of a {fact.name}"
                missing[text] += 1
                if kind == "recv":
                    note = _LACKING.format(text, hint)
                    unnamed.nameless.append(Nameless(unit, fact.parts, fact.dtype, note))
                continue
            if fact.peer < 0:
                inferred[OTHER_RANK] += 1
                guessed[unit] = OTHER_RANK
            pair = (units.rank, peer) if kind == "send" else (peer, units.rank)
            found[unit] = Exchange(kind, pair, fact.parts, fact.dtype)
            continue
        place = root_of(row) if fact.kind == OpClass.BROADCAST else -1
        if group is None:
            group, why = unnamed.of(fact, row, unit)
            if group is not None and place >= len(group):
                group = None
            if group is not None and why:
                inferred[why] += 1
                guessed[unit] = why
        if group is None:
            missing[f"group of {fact.name} (--group {fact.name}=0-7 gives one)"] += 1
            continue
        if units.rank not in group:
            whose = f"of rank {units.rank} by its distributedInfo or its file's name"
            if UNKNOWN_RANK in trace.notes:
                whose = (
                    f"taken as rank {units.rank}, because nothing names its rank: name it "
                    "rank<N>.json"
                )
            raise FlintError(
                f"{trace.path}: {fact.name} among the ranks {shown_group(group)} in a trace that "
                f"is {whose}"
            )
        if len(group) == 1 and fact.group is None:
            continue
        if _TO_ONE.fullmatch(fact.name):
            units.notes[REDUCES] = units.notes.get(REDUCES, 0) + 1
        root = group[place] if 0 <= place < len(group) else -1
        found[unit] = Exchange(kind, group, fact.parts, fact.dtype, root)
    _say(trace.path, units.notes, missing, inferred, strict=strict, hint=hint)
    return found, guessed


def ungrouped_exchanges(units: Units, trace: Observed, groups: InferredGroups) -> list[Ungrouped]:
    """The collectives of a step whose group neither the trace nor the user names.

    Args:
        units: units of one rank.
        trace: the rows that they come from.
        groups: what else is known about groups.
    """
    starts, ends = units.start.tolist(), units.end.tolist()
    root_of = _root_of(trace)
    lanes = units.stream.tolist() if units.device else [-1] * len(units)
    found = []
    for unit, fact, row, group in _named(units, trace):
        if group is not None or groups.stated(fact) is not None:
            continue
        if fact.kind in (OpClass.SEND, OpClass.RECV):
            continue
        size = -1 if fact.kind == OpClass.ALL_TO_ALL else fact.bytes
        over = ends[unit] if units.timed and (units.device or trace.end[row] >= 0) else -1
        found.append(
            Ungrouped(
                unit, _KIND[fact.kind], size, groups.members(fact, row), lanes[unit],
                starts[unit], over, root_of(row) if fact.kind == OpClass.BROADCAST else -1,
            )
        )  # fmt: skip
    return found


def unused_groups(
    groups: Mapping[str, Group], exchanges: Iterable[Exchange | None]
) -> dict[str, int]:
    """Warnings about given groups that no communication has."""
    found = {exchange.group for exchange in exchanges if exchange is not None}
    return {
        f"--group {name} changes nothing: no communication of the step has a process group or a "
        "name like that": 1
        for name, ranks in groups.items()
        if ranks not in found
    }


def _named(units: Units, trace: Observed) -> Iterator[tuple[int, OpFacts, int, Group | None]]:
    """Each unit that communicates: its facts, its row, and its recorded group."""
    talking = np.flatnonzero(units.collective)
    if not len(talking):
        return
    known = np.array([fact.group is not None for fact in trace.facts], bool)
    holder = around(trace.parent, known[trace.op])
    for unit, number, row in zip(
        talking.tolist(), units.fact[talking].tolist(), units.row[talking].tolist(), strict=True
    ):
        fact = units.facts[number]
        group = fact.group
        if group is None and holder[row] >= 0:
            group = trace.facts[int(trace.op[holder[row]])].group
        yield unit, fact, row, group


def _root_of(trace: Observed) -> Callable[[int], int]:
    """The position of a row's sender in its group, which an op around it may record; -1 without."""
    rooted = np.array([fact.root >= 0 for fact in trace.facts], bool)
    if not rooted.any():
        return lambda row: -1
    holder = around(trace.parent, rooted[trace.op])
    return lambda row: trace.facts[int(trace.op[holder[row]])].root if holder[row] >= 0 else -1


def _say(
    path: str,
    notes: dict[str, int],
    missing: dict[str, int],
    inferred: dict[str, int],
    *,
    strict: bool,
    hint: str,
) -> None:
    """Count what is missing and what was inferred.

    Raises:
        FlintError: there is something, and ``strict``.
    """
    if strict and (missing or inferred):
        text, count = max((missing or inferred).items(), key=lambda item: item[1])
        what = f"does not record the {text}" if missing else f"has {text}"
        raise FlintError(
            f"{path}: --strict: {sum((missing or inferred).values())} communications would be "
            f"inferred or stay kernels: the trace {what}, {count} times" + hint
        )
    for text, count in inferred.items():
        notes[text] = notes.get(text, 0) + count
    for text, count in missing.items():
        note = _LACKING.format(text, hint)
        notes[note] = notes.get(note, 0) + count


def shown_group(group: tuple[int, ...]) -> str:
    """The ranks of a group as text; only the first ones if there are many."""
    text = ", ".join(map(str, group[:8]))
    return text + (", ..." if len(group) > 8 else "")
