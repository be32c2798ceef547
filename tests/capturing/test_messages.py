"""Arrays that move between ranks of different programs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.capturing.messages import MAX_EXCHANGES, Piece, exchanges_of, message_graph
from flint.errors import FlintError
from flint.graph.tensor_types import tensor_type
from flint.mesh.ranks import RankSet

PIECES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(4, 7), st.sampled_from([4, 8])).map(
        lambda item: Piece(*item)
    ),
    max_size=24,
)


@given(PIECES)
def test_the_exchanges_of_an_array_are_its_pieces(pieces):
    found = Counter()
    for item in exchanges_of(pieces, world=8, dtype="f32"):
        for source, target in enumerate(item.permutation.target.tolist()):
            if target >= 0:
                found[Piece(source, target, item.bytes_in)] += 1
    assert found == Counter(pieces)


def test_a_rank_that_sends_to_three_takes_part_in_three_exchanges():
    pieces = [Piece(0, target, 4) for target in (1, 2, 3)] + [Piece(4, 5, 4)]
    exchanges = exchanges_of(pieces, world=8, dtype="f32")
    assert [item.permutation.pairs for item in exchanges] == [2, 1, 1]


def test_too_many_messages_of_one_rank_are_refused():
    pieces = [Piece(0, target, 4) for target in range(1, MAX_EXCHANGES + 2)]
    with pytest.raises(FlintError, match="more than 4,096 messages of one rank"):
        exchanges_of(pieces, world=MAX_EXCHANGES + 2, dtype="f32")


def test_ranks_that_have_it_send_and_ranks_that_need_it_receive():
    exchanges = exchanges_of([Piece(0, 2, 64), Piece(1, 3, 64)], world=4, dtype="f32")
    part = tensor_type((16,), "f32")
    sends = message_graph(exchanges, RankSet(4, 4, ((0, 2),)), part, None)
    receives = message_graph(exchanges, RankSet(4, 4, ((2, 4),)), None, part)
    assert [node.op for node in sends] == ["send"]
    assert (sends.inputs, len(sends.outputs)) == (1, 0)
    assert [node.op for node in receives] == ["recv"]
    assert (receives.inputs, len(receives.outputs)) == (0, 1)


def test_ranks_that_have_all_of_it_pass_it_on_without_a_message():
    part = tensor_type((16,), "f32")
    graph = message_graph((), RankSet(4, 1, ((0, 1),)), part, part)
    assert len(graph) == 0
    assert graph.outputs.tolist() == [0]
