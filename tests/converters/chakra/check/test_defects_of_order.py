"""Order over all ranks: what may hang or pair wrongly, and what is fine."""

from __future__ import annotations

import pytest

from flint.converters.chakra.check.checker import check_traces
from tests.converters.chakra.check.all_orders import outcome
from tests.converters.chakra.check.defects import both, errors
from tests.converters.chakra.check.traces import coll, comp, in_memory, recv, send


def test_independent_send_behind_a_collective():
    """Hanging trace (a): rank 0 may start the collective before its slow COMP lets the SEND go."""
    ranks = [
        [comp(1), send(2, 1, [1]), coll(3)],
        [recv(1, 0), coll(2, [1])],
    ]
    report = check_traces(in_memory(ranks))
    assert errors(report) == {"slot-order"}
    assert report.findings[0].rank == 0 and report.findings[0].node == 3


def test_independent_send_mended_by_an_edge():
    ranks = [
        [comp(1), send(2, 1, [1]), coll(3, [2])],
        [recv(1, 0), coll(2, [1])],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_collectives_that_become_ready_in_different_order():
    """Hanging trace (b): equal ids and sequences, but each COLL follows a COMP of its own."""
    ranks = [
        [comp(0, micros=1), comp(1, [0], micros=99), coll(2, [0]), coll(3, [1], size=128)],
        [comp(0, micros=1), comp(1, micros=99), coll(2, [1]), coll(3, [0], size=128)],
    ]
    assert errors(check_traces(in_memory(ranks))) >= {"group-chain"}


def test_collectives_of_equal_size_that_may_pair_wrongly():
    nodes = [comp(0), comp(1), coll(2, [0]), coll(3, [1])]
    assert "group-chain" in errors(both(nodes))


def test_collectives_mended_by_a_chain():
    ranks = [
        [comp(0, micros=1), comp(1, [0], micros=99), coll(2, [0]), coll(3, [1, 2], size=128)],
        [comp(0, micros=1), comp(1, micros=99), coll(2, [1]), coll(3, [0, 2], size=128)],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_a_message_from_a_member_orders_two_collectives():
    """Rank 0 has no edge from the first to the second, but hears from rank 1 in between."""
    ranks = [
        [coll(0), recv(1, 1), coll(2, [1])],
        [coll(0), send(1, 0, [0]), coll(2, [1])],
    ]
    assert outcome(ranks, {0: [0, 1]}).sound
    assert check_traces(in_memory(ranks)).findings == ()


def test_a_message_that_only_ctrl_deps_hold_back_orders_nothing():
    """A consumer that ignores them sends at once, and rank 0 starts its second collective first."""
    ranks = [
        [coll(0), recv(1, 1), coll(2, [1])],
        [coll(0), send(1, 0, ctrl=[0]), coll(2, [0, 1])],
    ]
    assert "group-chain" in errors(check_traces(in_memory(ranks)))


def test_a_reply_orders_two_messages():
    ranks = [
        [send(0, 1), recv(1, 1), send(2, 1, [1])],
        [recv(0, 0), send(1, 0, [0]), recv(2, 0, [0])],
    ]
    assert outcome(ranks, {0: [0, 1]}).sound
    assert check_traces(in_memory(ranks)).findings == ()


def test_a_receive_is_posted_whether_its_message_comes_or_not():
    """Rank 0 may post its second RECV first; it takes the message that the first one waits for."""
    ranks = [
        [recv(0, 1), send(1, 1, [0]), recv(2, 1)],
        [send(0, 0), recv(1, 0), send(2, 0, [1])],
    ]
    assert not outcome(ranks, {0: [0, 1]}).sound
    assert errors(check_traces(in_memory(ranks))) == {"p2p-order"}


def test_groups_crossed_on_two_ranks():
    """Both ranks have chains, but of two groups in opposite order."""
    ranks = [
        [coll(0, pg_name="1"), coll(1, [0], pg_name="2")],
        [coll(0, pg_name="2"), coll(1, [0], pg_name="1")],
    ]
    report = check_traces(in_memory(ranks, groups={1: [0, 1], 2: [1, 0]}))
    assert errors(report) == {"cross-rank-cycle"}


def test_ring_of_groups_that_closes():
    """Rows and columns of a 2 x 2 mesh, each rank's order consistent by itself."""
    groups = {1: [0, 1], 2: [1, 3], 3: [3, 2], 4: [2, 0]}
    order = {0: ("1", "4"), 1: ("2", "1"), 3: ("3", "2"), 2: ("4", "3")}
    ranks = [
        [coll(0, pg_name=order[rank][0]), coll(1, [0], pg_name=order[rank][1])] for rank in range(4)
    ]
    assert errors(check_traces(in_memory(ranks, groups=groups))) == {"cross-rank-cycle"}


def test_unordered_rows_and_columns_may_hang():
    """Each rank leaves row and column collective unordered: four holds can close a circle."""
    nodes = [coll(0, involved_dim=[True, False]), coll(1, involved_dim=[False, True])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"slot-order"}


def test_unordered_collectives_of_a_tree_are_fine():
    """Rank 0 has two partners that know nothing of each other: either order works."""
    ranks = [
        [coll(0, pg_name="1"), coll(1, pg_name="2")],
        [coll(0, pg_name="1")],
        [coll(0, pg_name="2")],
    ]
    assert check_traces(in_memory(ranks, groups={1: [0, 1], 2: [0, 2]})).findings == ()


def test_unordered_send_to_a_bystander_is_fine():
    ranks = [[coll(0), send(1, 2)], [coll(0)], [coll(0), recv(1, 0)]]
    assert check_traces(in_memory(ranks)).findings == ()


def test_pair_ordered_through_another_rank_is_fine():
    """SEND -> rank 1 -> RECV -> COLL orders SEND before COLL, though not by rank 0's edges."""
    ranks = [
        [send(0, 1), recv(1, 1, tag=1), coll(2, [1])],
        [recv(0, 0), send(1, 0, [0], tag=1), coll(2, [1])],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_messages_that_wait_for_each_other():
    ranks = [[recv(0, 1), send(1, 1, [0])], [recv(0, 0), send(1, 0, [0])]]
    report = check_traces(in_memory(ranks))
    assert errors(report) == {"cross-rank-cycle"} and "RECV 0 of rank" in report.findings[0].message


def test_collective_before_the_send_that_the_peer_needs():
    ranks = [[coll(0), send(1, 1, [0])], [recv(0, 0), coll(1, [0])]]
    assert errors(check_traces(in_memory(ranks))) == {"cross-rank-cycle"}


def test_ring_of_messages_passes():
    ranks = [
        [
            send(0, (rank + 1) % 4, tag=0),
            recv(1, (rank - 1) % 4, tag=0),
            comp(2, [1]),
            send(3, (rank + 1) % 4, [0, 2], tag=1),
            recv(4, (rank - 1) % 4, [2], tag=1),
            coll(5, [3, 4]),
        ]
        for rank in range(4)
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_pipeline_passes():
    """Stages whose communications lie at different depths: no common level exists."""
    stages = 4
    ranks = []
    for stage in range(stages):
        nodes, last = [], None
        for step in range(6):
            number = 10 * step
            if stage:
                nodes.append(recv(number, stage - 1, tag=step))
            deps = ([number] if stage else []) + ([last] if last is not None else [])
            nodes.append(comp(number + 1, deps))
            last = number + 1
            if stage < stages - 1:
                nodes.append(send(number + 2, stage + 1, [number + 1], tag=step))
                last = number + 2
        nodes.append(coll(100, [last]))
        ranks.append(nodes)
    assert check_traces(in_memory(ranks)).findings == ()


def test_findings_are_bounded_and_counted():
    nodes = [comp(number, [number]) for number in range(1000)]
    report = both(nodes)
    assert report.counts == {"self-dep": 2000} and len(report.findings) == 20
    assert report.errors == 2000 and report.warnings == 0


@pytest.mark.parametrize("bound", ["MAX_PAIRS", "MAX_VERTICES", "MAX_BITS"])
def test_unordered_pairs_are_refused_where_the_analysis_would_be_too_large(monkeypatch, bound):
    monkeypatch.setattr(f"flint.converters.chakra.check.unordered_holds.{bound}", 1)
    ranks = [
        [coll(0, pg_name="1"), coll(1, pg_name="2")],
        [coll(0, pg_name="1")],
        [coll(0, pg_name="2")],
    ]
    report = check_traces(in_memory(ranks, groups={1: [0, 1], 2: [0, 2]}))
    assert errors(report) == {"slot-order"} and "too many" in report.findings[0].message
