"""Defects of node ids and of dependencies within one rank."""

from __future__ import annotations

from tests.converters.chakra.check.defects import both, errors, warnings
from tests.converters.chakra.check.traces import coll, comp


def test_duplicate_id():
    assert errors(both([comp(0), comp(0)])) == {"duplicate-id"}


def test_missing_dependency():
    report = both([comp(0), comp(1, [7])])
    assert errors(report) == {"missing-dep"} and "id 7" in report.findings[0].message


def test_self_dependency():
    report = both([comp(0), comp(1, [1])])
    assert errors(report) == {"self-dep"} and report.findings[0].node == 1


def test_dependency_cycle():
    report = both([comp(0, [2]), comp(1, [0]), comp(2, [1])])
    assert errors(report) == {"cycle"}
    circles = ("0 -> 1 -> 2 -> 0", "1 -> 2 -> 0 -> 1", "2 -> 0 -> 1 -> 2")
    assert any(circle in report.findings[0].message for circle in circles)


def test_cycle_through_ctrl_deps():
    assert "cycle" in errors(both([comp(0, ctrl=[1]), comp(1, [0])]))


def test_forward_references_are_fine():
    assert both([comp(1, [5]), comp(5)]).ok


def test_ctrl_deps_are_warned_about():
    report = both([comp(0), comp(1, ctrl=[0])])
    assert report.ok and warnings(report) == {"ctrl-deps"}


def test_order_by_ctrl_deps_does_not_count():
    """Ranks whose consumer ignores ctrl_deps may start the two in either order."""
    nodes = [comp(0), coll(1, [0]), comp(2), coll(3, [2], ctrl=[1])]
    assert "group-chain" in errors(both(nodes))
