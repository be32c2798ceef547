"""Can consumers run these traces?  All rules over all ranks, with file, node, reason and remedy.

The idea: rules are functions in tables, here joined into `RULES`.  They run in three rounds: each
distinct file by itself and the set's make-up; then who communicates with whom; then whether any
order of events can hang.  A round whose ground is missing is reported as not checked, never as
passed.  Work follows distinct files and the number of communications, not ranks times nodes, as
long as ranks share files.

    report = check(Path("out"))
    report.ok, report.counts, [str(finding) for finding in report.findings]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from flint.converters.chakra.check.cross_rules import ORDER_RULES, PARTNER_RULES
from flint.converters.chakra.check.file_rules import FILE_RULES
from flint.converters.chakra.check.findings import (
    FINDINGS_PER_RULE,
    CheckReport,
    Finding,
    Hits,
    Severity,
    order_findings,
)
from flint.converters.chakra.check.matching import match
from flint.converters.chakra.check.set_rules import SET_RULES
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.check.unordered_holds import undecided
from flint.converters.chakra.read.trace_set import TraceSet, load_trace_set

__all__ = ["RULES", "CheckReport", "Finding", "Severity", "check", "check_traces"]

_TABLES: Final[tuple[Mapping[str, tuple[Severity, Callable[..., Iterator[Hits]]]], ...]] = (
    SET_RULES,
    FILE_RULES,
    PARTNER_RULES,
    ORDER_RULES,
)

RULES: Final[dict[str, tuple[Severity, str]]] = {
    rule: (severity, (function.__doc__ or "").partition("\n")[0])
    for table in _TABLES
    for rule, (severity, function) in table.items()
}
"""Rule id -> (severity, what it demands)."""

_BLOCKING: Final = frozenset(
    {
        "framing",
        "missing-metadata",
        "missing-file",
        "empty-graph",
        "duplicate-id",
        "missing-dep",
        "self-dep",
        "cycle",
        "node-type",
        "required-attr",
        "group-key",
        "group-table",
        "group-unknown",
        "group-member",
        "group-of-one",
        "p2p-peer",
    }
)
"""After a finding of these there is no telling who communicates with whom."""

_PARTIAL: Final = "the folder holds some ranks only"


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
    for rule, (severity, set_rule) in SET_RULES.items():
        if rule not in log.not_checked:
            log.take(rule, severity, set_rule(facts))
    for rule, (severity, file_rule) in FILE_RULES.items():
        for view in facts.views:
            log.take(rule, severity, file_rule(view, facts))
    _check_partners(facts, log)
    return log.report()


def _check_partners(facts: Facts, log: _Log) -> None:
    blocking = sorted(rule for rule in log.counts if rule in _BLOCKING)
    if facts.set.partial:
        log.skip((*PARTNER_RULES, *ORDER_RULES), _PARTIAL)
        return
    if blocking or facts.set.size < 2:
        reason = ", ".join(blocking or ["world-size"])
        log.skip((*PARTNER_RULES, *ORDER_RULES), f"fix first: {reason}")
        return
    matching = match(facts)
    for rule, (severity, partner_rule) in PARTNER_RULES.items():
        log.take(rule, severity, partner_rule(facts, matching))
    unmatched = [rule for rule in PARTNER_RULES if rule in log.counts]
    if unmatched:
        log.skip(tuple(ORDER_RULES), f"fix first: {', '.join(unmatched)}")
        return
    loose = undecided(facts)
    for rule, (severity, order_rule) in ORDER_RULES.items():
        log.take(rule, severity, order_rule(facts, matching, loose))


class _Log:
    """Collects hits and words the first of each rule."""

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

    def take(self, rule: str, severity: Severity, hits: Iterator[Hits]) -> None:
        """Count all hits of a rule; each is worded before the rule goes on to the next."""
        self._checked[rule] = None
        for hit in hits:
            self.counts[rule] = self.counts.get(rule, 0) + hit.count()
            for finding in map(partial(self._word, rule, severity, hit), _places(hit)):
                if self._worded.get(rule, 0) >= FINDINGS_PER_RULE:
                    break
                self._worded[rule] = self._worded.get(rule, 0) + 1
                self._findings.append(finding)

    def _word(
        self, rule: str, severity: Severity, hit: Hits, place: tuple[int, int | None, int]
    ) -> Finding:
        row, rank, more = place
        traces = self._facts.set
        message = hit.say(row, -1 if rank is None else rank)
        if more:
            message += f" (the same in {more} more ranks' files)"
        node = None
        if hit.view is not None and row >= 0:
            node = int(self._facts.views[hit.view].trace.id[row])
        return Finding(
            severity,
            rule,
            str(traces.prefix if rank is None else traces.path(rank)),
            node,
            rank,
            message,
        )

    def report(self) -> CheckReport:
        """What was found."""
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


def _places(hit: Hits) -> Iterator[tuple[int, int | None, int]]:
    """(row, rank, further ranks with the same): rows of one file are worded for its first rank."""
    if not len(hit.rows):
        ranks = hit.ranks[:FINDINGS_PER_RULE].tolist()
        if hit.view is None and ranks:
            yield from ((-1, rank, 0) for rank in ranks)
        else:
            yield -1, ranks[0] if ranks else None, max(len(hit.ranks) - 1, 0)
        return
    for row in hit.rows[:FINDINGS_PER_RULE].tolist():
        yield row, int(hit.ranks[0]), len(hit.ranks) - 1
