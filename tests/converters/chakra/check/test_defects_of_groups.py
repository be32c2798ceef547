"""Defects of groups and of the dims of a network."""

from __future__ import annotations

import pytest

from flint.converters.chakra.check.checker import check_traces
from flint.errors import FlintError
from tests.converters.chakra.check.defects import GOOD, both, errors, run, warnings
from tests.converters.chakra.check.traces import coll, comp, in_memory, recv, send


def test_group_key_that_is_not_an_integer(tmp_path):
    groups = {"0": [0, 1], "tp": [0, 1], "2": "all", "3": [0, 9], "4": [0, 0], "5": []}
    report = run(tmp_path / "w", [GOOD, GOOD], groups=groups)
    assert errors(report) == {"group-table"} and report.counts["group-table"] == 6


def test_group_key_that_is_repeated(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], groups='{"1": [0, 1], "1": [1]}')
    assert errors(report) == {"group-table"}


def test_group_table_that_is_not_json(tmp_path):
    with pytest.raises(FlintError, match="not JSON"):
        run(tmp_path / "w", [GOOD, GOOD], groups='{"1": [0, 1')


@pytest.mark.parametrize("name", ["tp", "-1", "01", "1.0", " 1", "99999999999999999999"])
def test_group_name_that_is_not_an_integer(name):
    assert errors(both([coll(0, pg_name=name)])) == {"group-key"}


@pytest.mark.parametrize("name", ["", "0"])
def test_group_zero_means_everybody(name):
    assert both([coll(0, pg_name=name)]).ok


def test_undeclared_group():
    assert errors(both([coll(0, pg_name="7")])) == {"group-unknown"}


def test_rank_that_is_not_a_member():
    one, two = [coll(0, pg_name="1")], [comp(0)]
    traces = in_memory([one, one, one, two], groups={1: [0, 1]})
    report = check_traces(traces)
    assert errors(report) == {"group-member"} and report.findings[0].rank == 2


def test_group_of_one():
    traces = in_memory([[coll(0, pg_name="1")], [comp(0)]], groups={1: [0]})
    assert errors(check_traces(traces)) == {"group-of-one"}


def test_dims_that_make_a_group_of_one():
    nodes = [coll(0, involved_dim=[False, False])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"group-of-one"}


def test_involved_dim_of_the_wrong_length():
    nodes = [coll(0, involved_dim=[True])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"group-key"}


def test_involved_dim_without_a_network():
    nodes = [coll(0, involved_dim=[True, False])]
    assert errors(check_traces(in_memory([nodes] * 4))) == {"group-key"}


def test_involved_dim_is_resolved_with_dim_0_consecutive():
    """Dim 0 of [2, 2] joins ranks 0 and 1; rank 2 disagreeing with 3 is seen, 0 with 2 is fine."""
    small, large = ([coll(0, size=size, involved_dim=[True, False])] for size in (8, 16))
    assert check_traces(in_memory([small, small, large, large], npus=[2, 2])).ok
    report = check_traces(in_memory([small, large, small, large], npus=[2, 2]))
    assert errors(report) == {"group-sequence"} and report.counts["group-sequence"] == 2


def test_pg_name_over_two_dims_is_warned_about():
    nodes = [coll(0, pg_name="1")]
    report = check_traces(in_memory([nodes] * 4, npus=[2, 2], groups={1: [0, 1, 2, 3]}))
    assert report.ok and warnings(report) == {"network-span"}


def test_message_over_two_dims_is_warned_about():
    ranks = [[send(0, 3)], [comp(0)], [comp(0)], [recv(0, 0)]]
    report = check_traces(in_memory(ranks, npus=[2, 2]))
    assert report.ok and warnings(report) == {"network-span"}
    ranks = [[send(0, 2)], [comp(0)], [recv(0, 0)], [comp(0)]]
    assert check_traces(in_memory(ranks, npus=[2, 2])).findings == ()


def test_more_than_four_dims_are_warned_about():
    report = check_traces(in_memory([[comp(0)]] * 32, npus=[2] * 5))
    assert report.ok and warnings(report) == {"network-dims"}
