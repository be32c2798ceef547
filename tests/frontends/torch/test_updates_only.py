"""Ranks that differ only in the pieces of state that their optimizers update."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.torch.evidence import evidence_of
from flint.frontends.torch.ranks.behaviours import behaviours
from flint.frontends.torch.ranks.updates_only import updates_only
from tests.frontends.torch.made_up_ranks import Cluster

#: Pipeline stages, and data-parallel ranks of each, with pieces of state of their own.
STAGES, PEERS = 4, 32
STAGE, PEER = np.divmod(np.arange(STAGES * PEERS), PEERS)


@pytest.mark.parametrize(("world", "classes"), [(64, 64), (128, 1)])
def test_of_many_ranks_those_that_differ_only_in_pieces_of_optimizers_count_as_one(world, classes):
    """Each updates pieces of sizes of its own; of few ranks each is a program."""
    cluster = Cluster((world,), lambda at: int(at[0]))
    each = [evidence_of("groups", np.arange(world), asked=True, close=True)]
    found, _ = behaviours((world,), cluster.sign, lambda: each, besides_updates=lambda _: "same")
    assert (len(found), len(cluster.recorded)) == (classes, world if classes > 1 else 3)


def test_ranks_that_differ_in_more_than_pieces_of_optimizers_do_not_count_as_one():
    cluster = Cluster((128,), lambda at: int(at[0]) // 32)
    found, _ = behaviours((128,), cluster.sign, besides_updates=lambda rank: str(rank // 32))
    assert cluster.wrong(found) == []
    assert len(found) == 4


def recorded(asked, does, besides):
    """Who is recorded, and the classes, where stages are a fact and the place is asked about."""
    known = [evidence_of("stages", STAGE), *asked]
    cluster = Cluster((STAGES, PEERS), does)
    found, _ = behaviours(
        (STAGES, PEERS), cluster.sign, lambda: known, besides_updates=lambda rank: besides(rank)
    )
    return cluster, found


def test_one_stage_shows_that_a_question_matters_to_updates_only():
    """All 32 of one stage are recorded, and two of each of the other three."""
    place = evidence_of("at optimizer.py:246", PEER, asked=True)
    cluster, found = recorded([place], lambda at: at, lambda rank: str(STAGE[rank]))
    assert len(cluster.recorded) == PEERS + 2 * (STAGES - 1)
    assert [item.ranks.sum() for item in found] == [PEERS] * STAGES


def test_a_question_that_explains_what_else_differs_counts():
    """Rank 0 logs: it is a program of its own, and one of each stage's others stands for them."""
    asked = [
        evidence_of("at optimizer.py:246", PEER, asked=True),
        evidence_of("at log.py:3", np.arange(STAGES * PEERS) == 0, asked=True),
    ]
    cluster, found = recorded(asked, lambda at: at, lambda rank: str((STAGE[rank], rank == 0)))
    assert len(cluster.recorded) == PEERS + 2 * (STAGES - 1)
    assert [item.ranks.sum() for item in found] == [1, PEERS - 1] + [PEERS] * (STAGES - 1)


@given(st.sets(st.integers(0, STAGES - 1)))
def test_where_a_stage_shows_that_it_matters_to_more_every_rank_is_its_own(stages):
    """In some stages the place changes what is communicated, too."""
    place = evidence_of("at optimizer.py:246", PEER, asked=True)

    def besides(rank):
        return str((STAGE[rank], PEER[rank] if STAGE[rank] in stages else 0))

    _, found = recorded([place], lambda at: at, besides)
    of = {int(rank): item.representative for item in found for rank in np.flatnonzero(item.ranks)}
    assert all(besides(rank) == besides(one) for rank, one in of.items())


def test_few_recordings_are_made_for_exact_classes():
    """Four peers in each of 32 stages are asked about alike: every one is a program."""
    shape = (32, 4)
    stage, peer = np.divmod(np.arange(128), 4)
    known = [evidence_of("halves", stage // 16), evidence_of("at optimizer.py:246", peer, True)]
    cluster = Cluster(shape, lambda at: (at[0] // 16, at[1]))
    found, _ = behaviours(
        shape, cluster.sign, lambda: known, besides_updates=lambda rank: str(stage[rank] // 16)
    )
    assert cluster.wrong(found) == []
    assert len(found) == 8


def test_of_questions_that_tell_the_same_apart_one_that_is_needed_stays():
    """Rank 3 differs; two places ask about it, one of them about the others as well."""
    every = evidence_of("at a.py:1", np.arange(8), asked=True)
    odd = evidence_of("at b.py:1", np.arange(8) == 3, asked=True)
    fact = evidence_of("rows", np.arange(8) < 4)
    signs = lambda rank: str(rank == 3)  # noqa: E731
    assert updates_only([every, odd, fact], range(8), signs) == {every}
    assert updates_only([every, fact], range(8), signs) == set()
    assert updates_only([odd], [0, 1, 2], signs) == set()
