"""Sums over the classes of a report."""

from __future__ import annotations

from collections import Counter

from flint.validation.report.report import Report


def totals(report: Report, *, lighter: bool = False) -> Counter[str]:
    """Captured, executed, matched and explained ops over all classes that must match.

    Args:
        lighter: over all others instead.
    """
    found: Counter[str] = Counter()
    for kind, count in report.classes.items():
        if kind.must_match != lighter:
            found.update(
                captured=count.captured, executed=count.executed, matched=count.matched,
                by_name=count.by_name, of_any_group=count.of_any_group, explained=count.explained,
            )  # fmt: skip
    return found
