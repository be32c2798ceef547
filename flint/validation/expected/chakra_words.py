"""Captured ops in the vocabulary of Chakra's traces.

words, kept, uncompared = as_in_chakra(captured, executed, expected, rank, recorded=True)
"""

from __future__ import annotations

from dataclasses import replace

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.expected.ops import Expected


def as_in_chakra(
    captured: list[OpFacts],
    executed: list[OpFacts],
    expected: Expected,
    rank: int,
    *,
    recorded: bool,
) -> tuple[list[OpFacts], Expected, int]:
    """Captured ops in Chakra's vocabulary, without those that its traces do not record.

    Compute has PyTorch's names there, or none that could be compared; a permute is a send, and a
    receive that ``rows_of`` leaves out.  A message from a rank to itself is a copy.  A broadcast
    may be the messages of a tree, as in our own traces.

    Returns:
        The ops in this vocabulary, their addresses, and the number of captured ops that must match
        but cannot be compared.
    """
    in_tree = all(facts.kind != OpClass.BROADCAST for facts in executed)
    received = any(facts.kind == OpClass.RECV for facts in captured)
    named = recorded and any(
        not facts.kind.collective and facts.kind not in (OpClass.FREE, OpClass.OTHER)
        for facts in executed
    )
    kept, words, uncompared = [], [], 0
    for number, facts in enumerate(captured):
        if facts.kind == OpClass.COLLECTIVE_PERMUTE:
            if not facts.group or facts.group == (rank,):
                continue
            facts = replace(facts, kind=OpClass.SEND, peer=facts.group[0], group=None)
        if facts.kind == OpClass.BROADCAST and in_tree:
            for kind, peer in _tree(expected, number, rank):
                if kind == OpClass.SEND or received:
                    kept.append(number)
                    words.append(replace(facts, kind=kind, peer=peer, group=None))
            continue
        if facts.kind.collective or named:
            kept.append(number)
            words.append(facts)
        elif facts.kind.must_match:
            uncompared += 1
    return words, expected.only(kept), uncompared


def _tree(expected: Expected, number: int, rank: int) -> list[tuple[OpClass, int]]:
    """Messages of a rank in a broadcast down a binomial tree whose root is the first member.

    The member at position i, whose highest bit is h, receives from i - h and sends to i + 2h, i +
    4h and so on (``flint.execution.peers``).
    """
    item = expected.graphs[int(expected.graph[number])][int(expected.node[number])].communication
    assert item is not None
    assert item.groups is not None
    members = item.groups.members(rank).tolist()
    place = members.index(rank)
    highest = 1 << place.bit_length() >> 1
    found = [(OpClass.RECV, members[place - highest])] if place else []
    step = max(2 * highest, 1)
    while place + step < len(members):
        found.append((OpClass.SEND, members[place + step]))
        step *= 2
    return found
