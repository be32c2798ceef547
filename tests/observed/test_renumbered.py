"""Traces of a program that some ranks of a run executed."""

from __future__ import annotations

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.renumbered import renumbered
from flint.observed.rows import ObservedRows


def test_ranks_groups_and_peers_have_their_numbers_in_the_run():
    rows = ObservedRows("profile")
    gather = OpFacts(OpClass.ALL_GATHER, "all-gather", group=(0, 1))
    message = OpFacts(OpClass.SEND, "send", peer=0)
    rows.add(gather, rank=0, step=0, start=0, duration=1, end=1)
    rows.add(message, rank=1, step=0, start=1, duration=1, end=2)
    trace = rows.finish(form="xplane", backend="cpu", world=2, steps=("run 0",))
    found = renumbered(trace, (6, 4), 8)
    assert (found.world, found.ranks) == (8, (4, 6))
    ran = {rank: found.facts[op] for rank, op in zip(found.rank, found.op, strict=True)}
    assert ran[6].group == (4, 6)
    assert (ran[4].peer, ran[4].kind) == (6, OpClass.SEND)
