"""Groups of collectives that do not name theirs.

The idea: the weakest assumption that fits comes first: the user's choice, the only group with as
many ranks as the collective's sizes show, the group that several ranks' traces show
(``across_ranks``), the only existing group, and finally all ranks of the run.  Otherwise the group
stays unknown; every inference has a name, under which it is counted.

    unnamed = InferredGroups(trace, groups, world=16, stated={"allreduce": (0, 1, 2, 3)})
    group, why = unnamed.of(fact, row, unit)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flint.errors import UsageError
from flint.observed.columns import Observed, OpFacts
from flint.post_execution.units import around

BY_SIZE = (
    "collectives whose group the trace does not name: inferred from the sizes of their tensors"
)
ACROSS = (
    "collectives whose group the trace does not name: inferred from the traces of several ranks, "
    "by order, sizes and overlap in time"
)
ONLY_GROUP = "collectives whose group the trace does not name: its only group is assumed"
EVERYBODY = (
    "collectives whose group the trace does not name: all ranks of the run are assumed (--group "
    "NAME=0-7 gives another)"
)
OTHER_RANK = "messages whose other rank the trace does not name: the only other one of the run"
#: The most ranks that are assumed to be one group.
_MOST = 1 << 22
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def stated_groups(entries: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``["tp=0-7", "dp=0,8"]`` as name -> ranks.

    Raises:
        UsageError: another format, a repeated rank, or a repeated name.
    """
    found: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        name, _, text = entry.rpartition("=")
        ranges = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
        bounds = [(int(r[1]), int(r[2] or r[1])) for r in ranges if r is not None]
        count = sum(high - low + 1 for low, high in bounds)
        if not name or None in ranges or any(high < low for low, high in bounds) or count > _MOST:
            raise UsageError(f"--group {entry!r}: expected NAME=0-7 or NAME=0,2,4")
        ranks = tuple(sorted(rank for low, high in bounds for rank in range(low, high + 1)))
        if len(set(ranks)) < len(ranks) or name in found:
            raise UsageError(f"--group {entry!r}: a rank or the name is given twice")
        found[name] = ranks
    return found


class InferredGroups:
    """What is known about groups besides the collectives themselves.

    Attributes:
        across: unit -> group, for units whose group other ranks' traces show.
        nameless: receipts of messages whose sender is unknown (``exchanges.Nameless``).
    """

    def __init__(
        self,
        trace: Observed,
        groups: Mapping[str, tuple[int, ...]],
        world: int | None,
        stated: Mapping[str, tuple[int, ...]],
    ) -> None:
        """For one rank's trace.

        Args:
            trace: its rows.
            groups: the process groups that it lists, by name.
            world: number of ranks of the run, None if unknown.
            stated: groups that the user gives, by the name of a process group or of a collective.
        """
        self._trace = trace
        self._stated = stated
        self.across: Mapping[int, tuple[int, ...]] = {}
        self.nameless: list[Any] = []
        self._groups = {group for name, group in groups.items() if name not in stated}
        self._world = world if world is not None and world <= _MOST else None
        sized = np.array([fact.members >= 0 for fact in trace.facts], bool)
        self._sized = around(trace.parent, sized[trace.op])

    @property
    def listed(self) -> frozenset[tuple[int, ...]]:
        """The groups of two or more ranks that the trace lists."""
        return frozenset(group for group in self._groups if len(group) > 1)

    def partner(self, rank: int) -> int:
        """The only rank with which a rank can exchange messages, -1 if there are several."""
        return 1 - rank if self._world == 2 and rank in (0, 1) else -1

    def members(self, fact: OpFacts, row: int) -> int:
        """How many ranks take part in a collective, -1 if unknown."""
        if fact.members >= 0 or row < 0 or self._sized[row] < 0:
            return fact.members
        return self._trace.facts[int(self._trace.op[self._sized[row]])].members

    def stated(self, fact: OpFacts) -> tuple[int, ...] | None:
        """The group that the user gives for a collective; None if there is none."""
        names = (fact.name, fact.name.rpartition("::")[2])
        return next((self._stated[name] for name in names if name in self._stated), None)

    def of(self, fact: OpFacts, row: int, unit: int) -> tuple[tuple[int, ...] | None, str]:
        """The group of a collective and how it was inferred; None if it cannot be.

        Args:
            fact: facts of the collective.
            row: its row in the trace.
            unit: its number in the step.
        """
        stated = self.stated(fact)
        if stated is not None:
            return stated, ""
        members = self.members(fact, row)
        if members >= 0:
            fitting = {group for group in self._groups if len(group) == members}
            if len(fitting) == 1:
                return fitting.pop(), BY_SIZE
            if members == self._world:
                return tuple(range(members)), BY_SIZE
        if unit in self.across:
            return self.across[unit], ACROSS
        if members >= 0:
            return None, ""
        if len(self._groups) == 1 or len(self.listed) == 1:
            return next(iter(self.listed or self._groups)), ONLY_GROUP
        if not self._groups and self._world is not None:
            return tuple(range(self._world)), EVERYBODY
        return None, ""
