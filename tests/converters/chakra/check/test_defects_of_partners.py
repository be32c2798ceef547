"""Defects between ranks: collectives and messages whose other side differs or is missing."""

from __future__ import annotations

import pytest

from flint.converters.chakra.check.checker import check_traces
from tests.converters.chakra.check.defects import GOOD, errors
from tests.converters.chakra.check.traces import AG, RS, coll, comp, in_memory, recv, send


def test_member_without_the_collective():
    assert errors(check_traces(in_memory([GOOD, [comp(0)]]))) == {"group-sequence"}


def test_member_with_one_collective_more():
    longer = [*GOOD, coll(3, [2])]
    assert errors(check_traces(in_memory([GOOD, longer]))) == {"group-sequence"}


def test_sizes_that_differ_among_members():
    report = check_traces(in_memory([[coll(0, size=8)], [coll(0, size=16)]]))
    assert errors(report) == {"group-sequence"}
    assert "16 bytes" in report.findings[0].message and "8 bytes" in report.findings[0].message


def test_kinds_that_differ_among_members():
    report = check_traces(in_memory([[coll(0, kind=AG)], [coll(0, kind=RS)]]))
    assert errors(report) == {"group-sequence"}


def test_sequences_that_differ_among_members():
    one = [coll(0, size=8), coll(1, [0], size=16)]
    two = [coll(0, size=16), coll(1, [0], size=8)]
    assert errors(check_traces(in_memory([one, two]))) == {"group-sequence"}


@pytest.mark.parametrize("peer", [-1, 2])
def test_peer_out_of_range(peer):
    assert errors(check_traces(in_memory([[send(0, peer)], [comp(0)]]))) == {"p2p-peer"}
    assert errors(check_traces(in_memory([[recv(0, peer)], [comp(0)]]))) == {"p2p-peer"}


def test_send_to_oneself():
    report = check_traces(in_memory([[send(0, 0), recv(1, 0)], [comp(0)]]))
    assert errors(report) == {"p2p-peer"}


def test_own_side_that_names_another_rank():
    report = check_traces(in_memory([[send(0, 1, comm_src=1)], [recv(0, 0)]]))
    assert errors(report) == {"p2p-peer"}
    report = check_traces(in_memory([[send(0, 1, comm_src=0)], [recv(0, 0, comm_dst=1)]]))
    assert report.ok


def test_recv_that_is_never_sent():
    report = check_traces(in_memory([[comp(0)], [recv(0, 0)]]))
    assert errors(report) == {"p2p-match"} and "never sent" in report.findings[0].message


def test_send_that_is_never_received():
    report = check_traces(in_memory([[send(0, 1)], [comp(0)]]))
    assert errors(report) == {"p2p-match"} and "never received" in report.findings[0].message


@pytest.mark.parametrize("change", [{"tag": 1}, {"size": 9}, {"src": 2}])
def test_message_whose_two_sides_differ(change):
    attrs = {"src": 0, "tag": 0, "size": 8} | change
    ranks = [[send(0, 1)], [recv(0, **attrs)], [comp(0)]]
    assert errors(check_traces(in_memory(ranks))) == {"p2p-match"}


def test_message_of_another_size_is_pointed_at():
    report = check_traces(in_memory([[send(3, 1)], [recv(0, 0, size=9)]]))
    assert "(node 3 there) has 8 bytes" in report.findings[0].message


def test_unordered_messages_of_one_key():
    report = check_traces(in_memory([[send(0, 1), send(1, 1, [0])], [recv(0, 0), recv(1, 0)]]))
    assert errors(report) == {"p2p-order"}
    report = check_traces(in_memory([[send(0, 1), send(1, 1)], [recv(0, 0), recv(1, 0, [0])]]))
    assert errors(report) == {"p2p-order"}


def test_ordered_messages_of_one_key():
    ranks = [
        [send(0, 1), comp(1, [0]), send(2, 1, [1])],
        [recv(0, 0), comp(1, [0]), coll(2, [1], pg_name="1"), recv(3, 0, [2])],
        [coll(0, pg_name="1")],
    ]
    assert check_traces(in_memory(ranks, groups={1: [1, 2]})).ok
