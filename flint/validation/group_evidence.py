"""Checking captured groups against several ranks' traces, for collectives that name no group.

The idea: the collectives that a rank ran for one captured group are a run.  Members of a group run
the same ones in the same order, and none leaves one before the last has arrived.  If that rules out
the captured group, for any clocks, the traces show another one.  If it leaves only the captured
one, or that is by far the likeliest (``across_ranks``), the group is counted as inferred, not as
recorded: the run as a whole belongs to no other group, but one of its collectives might.  If
another one is likelier, the group stays unknown.

    evidence.add(matching, trace, rows)       # of each rank
    evidence.conclude(report)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flint.mesh.ragged import Ints
from flint.observed.across_ranks import (
    BLUR,
    ENOUGH,
    Group,
    Ungrouped,
    groups_across,
    rows_of_grids,
)
from flint.observed.classes import OpClass
from flint.observed.columns import Observed, OpFacts
from flint.validation.matching.equivalence import MESSAGES, TO_ROOT, last_name
from flint.validation.matching.pairing import Matching
from flint.validation.matching.unrecorded import GROUP, INFERRED
from flint.validation.report.report import Difference, Report

#: Kinds that no member can leave before all have arrived: each needs data from every other.
_TOGETHER = frozenset(
    {OpClass.ALL_REDUCE, OpClass.ALL_GATHER, OpClass.REDUCE_SCATTER, OpClass.ALL_TO_ALL}
)
ONLY = (
    "collectives whose group is inferred from several ranks' traces: by order and overlap in "
    "time, those of the captured group together fit no other group"
)
LIKELY = "collectives whose group is inferred from several ranks' traces, as captured"
UNLIKE = (
    "collectives whose group is inferred from several ranks' traces, and is not the captured one; "
    "others fit as well"
)


@dataclass(frozen=True, slots=True)
class _Run:
    """Collectives that a rank ran for one captured group, in the order in which they ran.

    Attributes:
        rank: the rank.
        group: the captured group.
        position: position among the captured ops, shape [collectives].
        what: kind and bytes of each, as numbers of the evidence's table, shape [collectives].
        together: whether no member leaves it before all have arrived, shape [collectives].
        start, end: nanoseconds on the rank's clock, an end of -1 if unknown, shape [collectives].
    """

    rank: int
    group: Group
    position: Ints
    what: Ints
    together: NDArray[np.bool_]
    start: Ints
    end: Ints


@dataclass(slots=True)
class GroupEvidence:
    """Collectives of all ranks that do not name their group, as columns.

    Attributes:
        runs: runs of each rank.
        table: (kind, bytes that a member contributes) -> number; -1 if bytes differ between
            members.
        groups: all captured groups.
    """

    runs: dict[int, list[_Run]] = field(default_factory=dict)
    table: dict[tuple[OpClass, int], int] = field(default_factory=dict)
    groups: set[Group] = field(default_factory=set)

    def add(self, matching: Matching, trace: Observed, rows: Ints) -> None:
        """A rank's collectives with a certain partner whose group its trace lacks."""
        captured, executed = matching.captured, matching.executed
        self.groups.update(one.group for one in captured if one.group and len(one.group) > 1)
        pairs = Counter(i for i, _, _ in matching.pairs)
        used = Counter(j for _, j, _ in matching.pairs)
        found: dict[Group, list[tuple[int, int]]] = defaultdict(list)
        for i, j, _ in matching.pairs:
            group, ran = captured[i].group, executed[j]
            alone = i in matching.certain and pairs[i] == used[j] == 1
            ungrouped = ran.kind not in MESSAGES and matching.rules.of_unknown_group(
                captured[i], ran
            )
            if group is not None and alone and ungrouped:
                found[group].append((j, i))
        self.runs[matching.rank] = [
            self._run(matching, trace, rows, group, np.array(sorted(some), np.int64))
            for group, some in found.items()
        ]

    def _run(
        self, matching: Matching, trace: Observed, rows: Ints, group: Group, pairs: Ints
    ) -> _Run:
        """The run for one group, from ``pairs`` of executed and captured, shape [collectives,
        2].
        """
        facts = [matching.executed[j] for j in pairs[:, 0].tolist()]
        together = [
            fact.kind in _TOGETHER and last_name(fact.name) not in TO_ROOT for fact in facts
        ]
        ran = rows[pairs[:, 0]]
        return _Run(
            matching.rank,
            group,
            pairs[:, 1],
            np.array([self.table.setdefault(_what(one), len(self.table)) for one in facts]),
            np.array(together, np.bool_),
            trace.start[ran],
            np.where(trace.start[ran] < 0, -1, trace.end[ran]),
        )

    def conclude(self, report: Report) -> None:
        """Conclude about the groups that a report of all ranks counts as not recorded."""
        likely = self._likely(report.world)
        for rank, runs in self.runs.items():
            candidates = set(rows_of_grids(rank, report.world))
            candidates.update(group for group in self.groups if rank in group)
            for number, run in enumerate(runs):
                possible = [group for group in candidates if self._possible(run, group)]
                if len(possible) == 1 and len(run.what) >= ENOUGH:
                    if possible[0] == run.group:
                        self._settle(report, run, ONLY)
                    elif self._contradicted(run):
                        self._differ(report, run, possible[0])
                    continue
                # Without all members' traces what else they ran together looks likelier.
                group = likely[rank].get(number) if set(run.group) <= set(self.runs) else None
                if group == run.group:
                    self._settle(report, run, LIKELY)
                elif group is not None:
                    report.note(UNLIKE, len(run.what))

    def _likely(self, world: int) -> dict[int, dict[int, Group]]:
        """The group of each rank's runs, if one group is by far the likeliest."""
        kinds = list(self.table)
        known = {
            rank: frozenset(
                {group for group in self.groups if rank in group} | set(rows_of_grids(rank, world))
            )
            for rank in self.runs
        }
        ungrouped = {
            rank: [
                Ungrouped(number, str(kinds[what][0]), kinds[what][1], -1, number, start, end)
                for number, run in enumerate(runs)
                for what, start, end in zip(
                    run.what.tolist(), run.start.tolist(), run.end.tolist(), strict=True
                )
            ]
            for rank, runs in self.runs.items()
        }
        return groups_across(ungrouped, known, world)

    def _possible(self, run: _Run, group: Group) -> bool:
        """Whether a run can belong to this group; True if nothing contradicts it."""
        wanted = Counter(run.what.tolist())
        for rank in group:
            others = self.runs.get(rank)
            if rank == run.rank or others is None:
                continue
            alike = [other for other in others if np.array_equal(other.what, run.what)]
            if alike:
                if not any(_meet(run, other) for other in alike):
                    return False
            elif wanted - Counter(what for other in others for what in other.what.tolist()):
                return False  # it ran fewer of them
        return True

    def _contradicted(self, run: _Run) -> bool:
        """Whether a member of the captured group left before another arrived, for any clocks."""
        for rank in run.group:
            for other in self.runs.get(rank, ()):
                same = other.group == run.group and np.array_equal(other.what, run.what)
                if rank != run.rank and same and not _meet(run, other):
                    return True
        return False

    def _settle(self, report: Report, run: _Run, note: str) -> None:
        """Count the group as inferred, because the traces support the captured one."""
        kinds = list(self.table)
        report.note(note, len(run.what))
        report.unrecorded[INFERRED] = report.unrecorded.get(INFERRED, 0) + len(run.what)
        report.unrecorded[GROUP] -= len(run.what)
        if not report.unrecorded[GROUP]:
            del report.unrecorded[GROUP]
        for what in run.what.tolist():
            report.of(kinds[what][0]).of_any_group -= 1

    def _differ(self, report: Report, run: _Run, group: Group) -> None:
        """Report that the traces show another group than the captured one."""
        kinds = list(self.table)
        place = f"several ranks' traces: only the ranks {_shown(group)} communicated at these times"
        for what, position in zip(run.what.tolist(), run.position.tolist(), strict=True):
            kind, size = kinds[what]
            op = f"{kind}{f' of {size:,} bytes' if size >= 0 else ''} among {_shown(run.group)}"
            report.add(Difference("in another group", kind, run.rank, position, op, place, True))


def _what(fact: OpFacts) -> tuple[OpClass, int]:
    return fact.kind, -1 if fact.kind == OpClass.ALL_TO_ALL else fact.bytes


def _meet(one: _Run, other: _Run) -> bool:
    """Whether two ranks can have been in every collective of a run together.

    That is, for some difference of their clocks, each begins before the other ends.
    """
    timed = one.together & (one.end >= 0) & (other.end >= 0)
    if not timed.any():
        return True
    least = (other.start - one.end)[timed].max()
    most = (other.end - one.start)[timed].min()
    return bool(least <= most + 2 * BLUR)


def _shown(group: Group) -> str:
    ranks = ", ".join(map(str, group[:8]))
    return f"[{ranks}{f', ... {len(group):,} ranks' if len(group) > 8 else ''}]"
