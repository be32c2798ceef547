"""Messages between the programs of a sequence."""

from __future__ import annotations

from flint.capturing.messages import Piece, exchanges_of, message_graph
from flint.mesh.ranks import RankSet
from flint.passes.in_sequence import Link, Message, Origin, in_sequence
from tests.passes.building import ACTIVATION, Graph

SENT = exchanges_of([Piece(0, 1, ACTIVATION.bytes)], world=2, dtype="f32")
FIRST, SECOND = RankSet(2, 2, ((0, 1),)), RankSet(2, 2, ((1, 2),))


def program():
    """A program of one op."""
    build = Graph()
    return build.builder.finish((build.elementwise(build.input()),))


def test_the_next_program_does_not_wait_for_what_is_sent():
    sends = message_graph(SENT, FIRST, ACTIVATION, None)
    links = [
        Link(program(), (Origin(-1, 0),)),
        Message(sends, (Origin(0, 0),)),
        Link(program(), (Origin(-1, 0),)),
    ]
    graph = in_sequence(links, [ACTIVATION], [])
    assert [node.op for node in graph] == [
        "add", "program_end", "send", "program_end", "add", "program_end"
    ]  # fmt: skip
    assert graph.predecessors(2) == {0, 1}
    assert graph.predecessors(3) == {2}
    assert graph.predecessors(4) == {1}  # the end of the first program, not of the message


def test_the_program_that_takes_a_value_waits_for_it_and_the_one_before_does_not():
    receives = message_graph(SENT, SECOND, None, ACTIVATION)
    links = [
        Message(receives, ()),
        Link(program(), (Origin(-1, 0),)),
        Link(program(), (Origin(0, 0),)),
    ]
    graph = in_sequence(links, [ACTIVATION], [Origin(2, 0)])
    assert [node.op for node in graph] == [
        "recv", "program_end", "add", "program_end", "add", "program_end"
    ]  # fmt: skip
    assert graph.predecessors(2) == set()
    assert graph.predecessors(4) == {0, 1, 3}
