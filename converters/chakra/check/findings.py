"""Rules, their results, and the report of a check.

The idea: a rule is a function with an id and a severity, added to its round by a decorator.  It
returns `Hits`: the offending rows (nodes), the ranks with that file, and the message.  So a rule
that fires a million times costs an array, not a million strings; the report formats the first few
of each rule and counts the rest.

    FILE_RULES: Final = Round[[View, Facts]]()

    @FILE_RULES.rule("self-dep", ERROR, blocks=True)
    def self_dep(view: View, facts: Facts) -> Iterator[Hits]: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, ParamSpec

import numpy as np
from numpy.typing import NDArray

FINDINGS_PER_RULE: Final = 20
"""The most findings of a rule that are formatted; the rest are counted in `CheckReport.counts`."""


class Severity(StrEnum):
    """ERROR: consumers abort, hang or silently do something else.  WARNING: it runs, but ..."""

    ERROR = "error"
    WARNING = "warning"


ERROR: Final = Severity.ERROR
WARNING: Final = Severity.WARNING


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        severity: error or warning.
        rule: the rule's id, a key of `checker.RULES`.
        file: the offending file.
        node: the node's id, None if the finding is about the file or the set.
        rank: the (first) rank concerned, None if it is about the set.
        message: what, why it matters, and what to do.
    """

    severity: Severity
    rule: str
    file: str
    node: int | None
    rank: int | None
    message: str

    def __str__(self) -> str:
        node = "" if self.node is None else f", node {self.node}"
        return f"{self.severity} [{self.rule}] {self.file}{node}: {self.message}"


@dataclass(frozen=True, slots=True)
class Hits:
    """Where a rule fired: on each of `rows` in the file of each of `ranks`.

    Attributes:
        view: index of the trace in the set, None for the set or a missing file.
        rows: node indices; empty if the hit is about whole files.
        ranks: the ranks with these files; empty if it is about the set.
        message: one for all, or a function of the row (of the rank if there are no rows).
    """

    view: int | None
    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    message: str | Callable[[int], str]

    def count(self) -> int:
        """Number of affected (node, rank) pairs, or files."""
        return max(len(self.rows), 1) * max(len(self.ranks), 1)

    def say(self, place: int) -> str:
        """The message for a row, or for a rank if there are no rows."""
        return self.message if isinstance(self.message, str) else self.message(place)


NO_ROWS: Final = np.zeros(0, np.int64)


def whole_set(message: str) -> Hits:
    """A hit about the set as a whole."""
    return Hits(None, NO_ROWS, NO_ROWS, message)


def one_node(view: int, row: int, rank: int, message: str) -> Hits:
    """A hit on one node of one rank."""
    return Hits(view, np.array([row]), np.array([rank]), message)


Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Arguments]):
    """A rule.

    Attributes:
        id: its name in the report and the documentation.
        severity: error or warning.
        blocks: if it fires, later rounds cannot be judged and are not checked.
        hits: finds violations; the first line of its docstring is the requirement.
    """

    id: str
    severity: Severity
    blocks: bool
    hits: Callable[Arguments, Iterator[Hits]]


class Round(Generic[Arguments]):
    """Rules that are functions of the same arguments, in the order in which they are applied."""

    def __init__(self) -> None:
        self.rules: list[Rule[Arguments]] = []

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all rules."""
        return tuple(rule.id for rule in self.rules)

    def rule(
        self, identifier: str, severity: Severity, *, blocks: bool = False
    ) -> Callable[[Callable[Arguments, Iterator[Hits]]], Callable[Arguments, Iterator[Hits]]]:
        """Enter the decorated function as a rule."""

        def enter(
            hits: Callable[Arguments, Iterator[Hits]],
        ) -> Callable[Arguments, Iterator[Hits]]:
            self.rules.append(Rule(identifier, severity, blocks, hits))
            return hits

        return enter


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    Attributes:
        findings: the formatted findings, errors first, at most `FINDINGS_PER_RULE` per rule.
        counts: rule id -> how often it fired over all ranks.
        ranks: traces found.
        size: ranks of the world.
        nodes: nodes over all ranks.
        distinct_files: number of different files.
        checked: ids of the rules that were applied.
        not_checked: rule id -> why it was not applied.
    """

    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    ranks: int
    size: int
    nodes: int
    distinct_files: int
    checked: tuple[str, ...]
    not_checked: Mapping[str, str]

    @property
    def errors(self) -> int:
        """How many times a rule of severity error fired."""
        rules = {finding.rule for finding in self.findings if finding.severity is Severity.ERROR}
        return sum(self.counts[rule] for rule in rules)

    @property
    def warnings(self) -> int:
        """How many times a rule of severity warning fired."""
        return sum(self.counts.values()) - self.errors

    @property
    def ok(self) -> bool:
        """True if nothing that was checked is an error."""
        return self.errors == 0


def order_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors before warnings, otherwise as found."""
    return tuple(sorted(findings, key=lambda finding: finding.severity is Severity.WARNING))
