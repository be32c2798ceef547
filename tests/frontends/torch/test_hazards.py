"""Order of ops: what streams, events and bytes that are touched imply, and no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.torch.cluster.streams import Timeline
from flint.frontends.torch.recording.hazards import Extent, Hazards, extent


def test_an_extent_is_where_the_elements_lie():
    # 3 rows of 4 bf16 elements, 8 elements apart, from element 2: 2 + 2 * 8 + 4 = 22.
    assert extent(5, 2, (3, 4), (8, 1), 2) == Extent(5, 4, 44, False)
    assert extent(5, 2, (3, 8), (8, 1), 2) == Extent(5, 4, 52, True)
    assert extent(5, 7, (0, 8), (8, 1), 2) == Extent(5, 0, 0, True)


def test_a_broadcast_view_covers_what_it_repeats():
    assert extent(0, 0, (6, 4), (0, 1), 4) == Extent(0, 0, 16, True)


def test_a_transposed_view_is_dense():
    assert extent(0, 0, (4, 3), (1, 4), 4) == Extent(0, 0, 48, True)


def part(low, high, storage=0, dense=True):
    return Extent(storage, low, high, dense)


def test_reads_of_other_bytes_are_not_a_hazard():
    hazards = Hazards()
    hazards.access(0, 0, [], [part(0, 8)])
    assert not hazards.before([part(8, 16)], []).data
    assert hazards.before([part(4, 16)], []).data == {0}


def test_an_overwriter_comes_after_readers_and_writers():
    hazards = Hazards()
    hazards.access(0, 0, [], [part(0, 8)])
    hazards.access(1, 1, [part(0, 4)], [])
    hazards.access(2, 2, [part(4, 8)], [])
    assert hazards.before([], [part(0, 4)]).order == {0, 1}


def test_a_reader_of_overwritten_bytes_takes_the_last_value():
    hazards = Hazards()
    hazards.access(0, 0, [], [part(0, 8)])
    hazards.access(1, 1, [], [part(0, 8)])
    assert hazards.before([part(0, 8)], []).data == {1}


def test_a_write_with_gaps_leaves_the_one_before():
    hazards = Hazards()
    hazards.access(0, 0, [], [part(0, 8)])
    hazards.access(1, 1, [], [part(0, 8, dense=False)])
    assert hazards.before([part(0, 8)], []).data == {0, 1}


def test_an_event_orders_streams():
    timeline = Timeline()
    timeline.issue(0)
    event = timeline.moment(0)
    timeline.issue(0)
    timeline.wait(1, event)
    assert timeline.issue(1).after == (0,)
    assert timeline.issue(1).after == ()  # said once


def test_waits_are_transitive():
    timeline = Timeline()
    timeline.issue("a")
    timeline.wait("b", timeline.moment("a"))
    timeline.issue("b")
    timeline.wait("c", timeline.moment("a"))
    timeline.wait("c", timeline.moment("b"))
    assert timeline.issue("c").after == (1,)


def test_a_wait_for_nothing_is_none():
    timeline = Timeline()
    timeline.wait(1, timeline.moment(0))
    assert timeline.issue(1).after == ()


def test_the_host_waits_for_all_that_it_issues_later():
    timeline = Timeline()
    timeline.issue(1)
    timeline.host_wait(timeline.moment(1))
    assert timeline.issue(0).after == (0,)
    assert timeline.issue(2).after == (0,)


EXTENTS = st.builds(
    lambda storage, low, size, dense: Extent(storage, low, low + size, dense),
    st.integers(0, 1), st.integers(0, 6), st.integers(1, 4), st.booleans(),
)  # fmt: skip
OPS = st.tuples(st.integers(0, 2), st.lists(EXTENTS, max_size=2), st.lists(EXTENTS, max_size=2))
WAITS = st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(st.one_of(OPS, WAITS), max_size=24))
def test_conflicts_and_waits_are_ordered_and_nothing_else(actions):
    """Against brute force: the relation that streams, waits and bytes give pair by pair."""
    timeline, hazards = Timeline(), Hazards()
    done, edges, wanted = [], [], set()  # ops, direct predecessors, pairs
    waits = {stream: set() for stream in range(3)}
    for action in actions:
        if action[0] == "wait":
            _, waiting, other = action
            timeline.wait(waiting, timeline.moment(other))
            waits[waiting] |= {i for i, op in enumerate(done) if op[0] == other} | waits[other]
            continue
        stream, reads, writes = action
        before = hazards.before(reads, writes)
        issued = timeline.issue(stream, before.data, before.order)
        hazards.access(issued.number, stream, reads, writes)
        direct = {i for i, op in enumerate(done) if op[0] == stream} | waits[stream]
        for i, (_, old_reads, old_writes) in enumerate(done):
            if meets(reads + writes, old_writes) or meets(writes, old_reads):
                direct.add(i)
        wanted |= {(i, issued.number) for i in direct}
        same = {i for i, op in enumerate(done) if op[0] == stream}
        assert not set(issued.after) & same
        edges.append(same | set(issued.after) | set(before.data))
        done.append(action)
    reach = closure(edges)
    assert wanted <= {(i, j) for j, earlier in enumerate(reach) for i in earlier}
    # Nothing is ordered that streams, waits and bytes do not order.
    asked = [{i for i, k in wanted if k == j} for j in range(len(done))]
    assert [set(item) for item in reach] == [set(item) for item in closure(asked)]


def meets(some, others):
    return any(
        a.storage == b.storage and a.low < b.high and b.low < a.high for a in some for b in others
    )


def closure(edges):
    found = []
    for earlier in edges:
        found.append(set(earlier).union(*(found[i] for i in earlier)))
    return found
