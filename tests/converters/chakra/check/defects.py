"""What tests of single defects share: sound traces, and which rules a report names."""

from __future__ import annotations

from pathlib import Path

from flint.converters.chakra.check.checker import CheckReport, Severity, check, check_traces
from tests.converters.chakra.check.traces import coll, comp, in_memory, write

GOOD = [comp(0), coll(1, [0]), comp(2, [1])]


def run(folder: Path, ranks, **more) -> CheckReport:
    return check(write(folder, ranks, **more))


def both(nodes) -> CheckReport:
    """Both ranks of a world of two have these nodes."""
    return check_traces(in_memory([nodes, nodes]))


def errors(report: CheckReport) -> set[str]:
    return {item.rule for item in report.findings if item.severity is Severity.ERROR}


def warnings(report: CheckReport) -> set[str]:
    return {item.rule for item in report.findings if item.severity is Severity.WARNING}
