"""Can consumers run these traces?  All rules over all ranks, with file, node, reason and remedy.

The idea: rules come in four rounds: each distinct file and the composition of the set; then which
ranks communicate; then whether any order of events can hang.  A round whose preconditions are not
met is reported as not checked, never as passed.  The cost depends on distinct files and the number
of communications, not on ranks times nodes, as long as ranks share files.

    report = check(Path("out"))
    report.ok, report.counts, [str(finding) for finding in report.findings]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from flint.converters.chakra.check.file_rules import FILE_RULES
from flint.converters.chakra.check.findings import (
    FINDINGS_PER_RULE,
    CheckReport,
    Finding,
    Hits,
    Rule,
    Severity,
    order_findings,
)
from flint.converters.chakra.check.matching import match
from flint.converters.chakra.check.node_rules import NODE_RULES
from flint.converters.chakra.check.order_rules import ORDER_RULES
from flint.converters.chakra.check.partner_rules import PARTNER_RULES
from flint.converters.chakra.check.seal_rules import SEAL_RULES, broken_files, document_of
from flint.converters.chakra.check.set_rules import SET_RULES
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.check.unordered_holds import undecided
from flint.converters.chakra.read.trace_set import TraceSet, load_trace_set

__all__ = ["RULES", "CheckReport", "Finding", "Severity", "check", "check_traces"]

_OF_ONE_FILE: Final = (FILE_RULES.rules, NODE_RULES.rules)

RULES: Final[dict[str, Rule[...]]] = {
    rule.id: rule
    for rule in chain[Rule[Any]](
        SEAL_RULES.rules, SET_RULES.rules, *_OF_ONE_FILE, PARTNER_RULES.rules, ORDER_RULES.rules
    )
}
"""All rules by id, in the order in which they are applied."""

_PARTIAL: Final = "the folder holds some ranks only"
_EARLIER: Final = "the folder is of an earlier version, without checksums"


def check(
    folder_or_prefix: Path,
    *,
    comm_groups: Path | None = None,
    npus_count: tuple[int, ...] | None = None,
) -> CheckReport:
    """Check the traces of a workload folder, a folder of ETs, or `PREFIX.<rank>.et`.

    Args:
        folder_or_prefix: where the traces are.
        comm_groups: the group table, if it is not in the folder's usual place.
        npus_count: extents of the network's dims, consecutive ranks first, if the folder has no
            network file.

    Raises:
        UsageError: there are no traces, or the extents do not fit them.
        FlintError: a configuration file (groups, network, system) is corrupt.
    """
    return check_traces(
        load_trace_set(folder_or_prefix, comm_groups=comm_groups, npus_count=npus_count)
    )


def check_traces(traces: TraceSet) -> CheckReport:
    """Check a set of traces that is in memory."""
    facts = Facts(traces)
    log = _Log(facts)
    if traces.partial:
        log.skip(("missing-file", "world-size"), _PARTIAL)
        if traces.network is None:
            log.skip(("p2p-peer",), "the folder holds some ranks only, and npus_count is unknown")
    _check_seal(traces.home, log)
    for rule in SET_RULES.rules:
        if rule.id not in log.not_checked:
            log.take(rule, rule.hits(facts))
    for file_rule in chain(*_OF_ONE_FILE):
        for view in facts.views:
            log.take(file_rule, file_rule.hits(view, facts))
    _check_partners(facts, log)
    return log.report()


def _check_seal(home: Path | None, log: _Log) -> None:
    document = document_of(home)
    if home is None or document is None:  # Flint did not write it: it has no seal
        return
    if document.files is None:
        log.skip(SEAL_RULES.ids, _EARLIER)
        return
    found = broken_files(home, document)
    for rule in SEAL_RULES.rules:
        log.take(rule, rule.hits(home, found))


def _check_partners(facts: Facts, log: _Log) -> None:
    if facts.set.partial:
        log.skip((*PARTNER_RULES.ids, *ORDER_RULES.ids), _PARTIAL)
        return
    if blocked := log.blocked():
        log.skip((*PARTNER_RULES.ids, *ORDER_RULES.ids), blocked)
        return
    matching = match(facts)
    for rule in PARTNER_RULES.rules:
        log.take(rule, rule.hits(facts, matching))
    if blocked := log.blocked():
        log.skip(ORDER_RULES.ids, blocked)
        return
    loose = undecided(facts)
    for order_rule in ORDER_RULES.rules:
        log.take(order_rule, order_rule.hits(facts, matching, loose))


class _Log:
    """Collects hits and formats the first ones of each rule."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._findings: list[Finding] = []
        self._worded: dict[str, int] = {}
        self._checked: dict[str, None] = {}
        self.counts: dict[str, int] = {}
        self.not_checked: dict[str, str] = {}

    def skip(self, rules: tuple[str, ...], reason: str) -> None:
        """Note that `rules` were not applied."""
        self.not_checked.update(dict.fromkeys(rules, reason))

    def blocked(self) -> str:
        """Why later rounds cannot be checked; empty if they can."""
        rules = sorted(rule for rule in self.counts if RULES[rule].blocks)
        return f"fix first: {', '.join(rules)}" if rules else ""

    def take(self, rule: Rule[...], hits: Iterator[Hits]) -> None:
        """Count all hits of a rule; each is formatted before the rule continues."""
        self._checked[rule.id] = None
        for hit in hits:
            self.counts[rule.id] = self.counts.get(rule.id, 0) + hit.count()
            for row, rank, more in _places(hit):
                if self._worded.get(rule.id, 0) >= FINDINGS_PER_RULE:
                    break
                self._worded[rule.id] = self._worded.get(rule.id, 0) + 1
                self._findings.append(self._word(rule, hit, row, rank, more))

    def _word(
        self, rule: Rule[...], hit: Hits, row: int | None, rank: int | None, more: int
    ) -> Finding:
        traces = self._facts.set
        place = row if row is not None else rank
        message = hit.say(-1 if place is None else place)
        if more:
            message += f" (the same in {more} more ranks' files)"
        node = None
        if hit.view is not None and row is not None:
            node = int(self._facts.views[hit.view].trace.id[row])
        file = str(traces.prefix if rank is None else traces.path(rank))
        return Finding(rule.severity, rule.id, file, node, rank, message)

    def report(self) -> CheckReport:
        """The report of all rules that were applied."""
        views = self._facts.views
        return CheckReport(
            findings=order_findings(self._findings),
            counts=dict(self.counts),
            ranks=sum(len(view.ranks) for view in views),
            size=self._facts.set.size,
            nodes=sum(len(view.ranks) * len(view.trace) for view in views),
            distinct_files=len(views),
            checked=tuple(self._checked),
            not_checked=dict(self.not_checked),
        )


def _places(hit: Hits) -> Iterator[tuple[int | None, int | None, int]]:
    """(row, rank, further ranks with the same): rows of one file are reported for its first
    rank.
    """
    ranks = hit.ranks[:FINDINGS_PER_RULE].tolist()
    if len(hit.rows):
        for row in hit.rows[:FINDINGS_PER_RULE].tolist():
            yield row, ranks[0], len(hit.ranks) - 1
    elif hit.view is None and ranks:
        yield from ((None, rank, 0) for rank in ranks)
    else:
        yield None, ranks[0] if ranks else None, max(len(hit.ranks) - 1, 0)
