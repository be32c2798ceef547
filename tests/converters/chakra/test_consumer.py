"""The reference consumer on schedules worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flint.errors import FlintError
from tests.converters.chakra.check.traces import coll, comp, in_memory, recv, send
from tests.converters.chakra.consumer import execute


def ticks(table: dict[tuple[int, int], int]):
    """Durations by (rank, node id); others take 1 tick."""

    def durations(rank: int, ids: np.ndarray) -> np.ndarray:
        return np.array([table.get((rank, int(number)), 1) for number in ids], np.int64)

    return durations


def test_compute_runs_one_at_a_time_lowest_id_first():
    """Ids 5, 3, 4 are ready at 0: 3 runs 0-10, then 4 10-30, then 5 30-33.

    A communication that needs 4 starts when it ends: COLL 9 runs 30-31.
    """
    nodes = [comp(5), comp(3), comp(4), coll(9, [4])]
    times = {3: 10, 4: 20, 5: 3}
    table = {(rank, number): time for rank in (0, 1) for number, time in times.items()}
    result = execute(in_memory([nodes, nodes]), durations=ticks(table))
    assert result.complete and result.time.tolist() == [33, 33]
    table[0, 9] = 40  # 30 + 40 on both: a collective takes as long as its slowest member
    result = execute(in_memory([nodes, nodes]), durations=ticks(table))
    assert result.time.tolist() == [70, 70]


def test_collective_starts_when_its_last_member_does():
    """Rank 0 is ready at 10, rank 1 at 25: both end at 25 + 7."""
    nodes = [comp(0), coll(1, [0])]
    table = {(0, 0): 10, (1, 0): 25, (0, 1): 7, (1, 1): 7}
    result = execute(in_memory([nodes, nodes]), durations=ticks(table))
    assert result.complete and result.time.tolist() == [32, 32]


def test_communication_overlaps_compute():
    """COLL 0 runs 0-50 in parallel with COMP 1, 0-30; COMP 2 after both, 50-51."""
    nodes = [coll(0), comp(1), comp(2, [0, 1])]
    table = {(rank, number): time for rank in (0, 1) for number, time in {0: 50, 1: 30}.items()}
    assert execute(in_memory([nodes, nodes]), durations=ticks(table)).time.tolist() == [51, 51]


def test_send_and_collective_share_a_slot():
    """SEND 0 holds the slot 0-20, so COLL 1 runs 20-25, on rank 1 as well."""
    ranks = [[send(0, 1), coll(1)], [recv(0, 0), coll(1)]]
    table = {(0, 0): 20, (0, 1): 5, (1, 1): 5}
    assert execute(in_memory(ranks), durations=ticks(table)).time.tolist() == [25, 25]


def test_recv_takes_no_slot_and_no_time_once_the_message_is_there():
    """RECV 0 waits 0-20 while COMP 1 and COLL 2 run; COMP 3 after the RECV runs 20-21."""
    ranks = [
        [send(0, 1), coll(1, [], pg_name="1")],
        [recv(0, 0), comp(1), coll(2, [], pg_name="2"), comp(3, [0])],
        [coll(0, pg_name="1"), coll(1, [0], pg_name="2")],
    ]
    table = {(0, 0): 20}
    traces = in_memory(ranks, groups={1: [0, 2], 2: [1, 2]})
    result = execute(traces, durations=ticks(table))
    # Rank 0's slot is free for group 1's COLL at 20; group 2's follows it on rank 2 at 21.
    assert result.complete and result.time.tolist() == [21, 22, 22]


def test_messages_of_one_key_come_first_in_first_out():
    """SENDs end at 10 and 20; the first RECV issued ends at 10, the second at 20."""
    ranks = [
        [send(0, 1), send(1, 1, [0])],
        [recv(0, 0), comp(1, [0]), recv(2, 0), comp(3, [2])],
    ]
    result = execute(in_memory(ranks), durations=ticks({(0, 0): 10, (0, 1): 10, (1, 3): 5}))
    assert result.complete and result.time.tolist() == [20, 25]


def test_own_durations_are_those_of_the_file():
    nodes = [comp(0, micros=7), comp(1, [0], micros=0)]
    assert execute(in_memory([nodes, nodes])).time.tolist() == [8, 8]


def test_seeds_repeat():
    nodes = [comp(0), coll(1, [0]), comp(2, [1])]
    traces = in_memory([nodes, nodes])
    one, two, other = (execute(traces, seed=seed).time.tolist() for seed in (1, 1, 2))
    assert one == two != other


def test_hang_by_an_early_collective_is_reported():
    """Contract's trace (a), with a COMP slow enough that the COLL goes first."""
    ranks = [[comp(1), send(2, 1, [1]), coll(3)], [recv(1, 0), coll(2, [1])]]
    result = execute(in_memory(ranks), durations=ticks({(0, 1): 9}))
    assert result.finished.tolist() == [False, False]
    assert (0, 2, "is ready, but the communication slot is held") in result.stuck
    reasons = {(rank, node): why for rank, node, why in result.stuck}
    assert "other members" in reasons[0, 3] and "message" in reasons[1, 1]


def test_hang_by_collectives_in_different_order():
    """Contract's trace (b): sizes differ, so the two never meet."""
    nodes = [comp(0), comp(1), coll(2, [0]), coll(3, [1], size=128)]
    other = [comp(0), comp(1), coll(2, [1]), coll(3, [0], size=128)]
    result = execute(in_memory([nodes, other]))
    assert not result.finished.any() and not result.mispaired


def test_wrong_pairs_of_equal_size_are_reported():
    """The same with equal sizes: both ranks finish, yet node 2 met node 3."""
    nodes = [comp(0), comp(1), coll(2, [0]), coll(3, [1])]
    other = [comp(0), comp(1), coll(2, [1]), coll(3, [0])]
    result = execute(in_memory([nodes, other]))
    assert result.finished.all() and not result.complete
    assert result.mispaired == (((0, 2), (1, 3)), ((0, 3), (1, 2)))


def test_chain_against_the_order_of_ids_is_not_a_wrong_pair():
    nodes = [coll(0), coll(1, [0])]
    other = [coll(0, [1]), coll(1)]
    assert execute(in_memory([nodes, other])).complete


def test_cycle_is_left_behind():
    nodes = [comp(0, [1]), comp(1, [0])]
    result = execute(in_memory([nodes, [comp(0)]]))
    assert result.finished.tolist() == [False, True]
    assert result.stuck[0][2] == "waits for a node that never ran"


def test_unknown_dependency_is_an_error():
    with pytest.raises(FlintError, match="do not resolve"):
        execute(in_memory([[comp(0, [3])], [comp(0)]]))


def test_unknown_group_is_an_error():
    with pytest.raises(FlintError, match="group 4"):
        execute(in_memory([[coll(0, pg_name="4")], [comp(0)]]))
