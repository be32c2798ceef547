"""An audit: whether unrecorded ranks do the same as the representative of their class.

The idea: which ranks do the same follows from evidence, and evidence can be missing: a list that is
indexed by the rank asks no question.  So a few ranks chosen at random are recorded and compared
with their class.  The choice follows from what was captured, so that the same capture audits the
same ranks.

    chosen(world=64, recorded={0, 31, 63}, count=2, seed=b"...")         # [7, 42]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.ranks.search import Behaviour, Sign

#: By default, an audit records fewer than this share of what was recorded before it.
_SHARE = 5


def default_count(recorded: int) -> int:
    """The default number of audited ranks: less than a fifth of those recorded."""
    return (recorded - 1) // _SHARE


def chosen(world: int, recorded: Collection[int], count: int, seed: bytes) -> list[int]:
    """Ranks to audit, ascending: at random among those that are not recorded."""
    drawn = random.Random(seed).sample(range(world), min(world, count + len(recorded)))
    return sorted([rank for rank in drawn if rank not in recorded][:count])


def audit(
    found: Iterable[Behaviour],
    ranks: Sequence[int],
    sign: Sign,
    difference: Callable[[int, int], str],
    messages: Callable[[int], str] | None = None,
) -> None:
    """Record ranks and compare each with the representative of its class.

    Args:
        found: the classes.
        ranks: to audit.
        sign: records ranks, the representatives among them before.
        difference: what a rank does differently from its representative:
            ``difference(representative, rank)``.
        messages: what a recorded rank communicates, if ranks that communicate the same may differ
            otherwise.

    Raises:
        FlintError: a rank does not do the same as its class.
    """
    if not ranks:
        return
    classes = list(found)
    owners = np.stack([item.ranks[list(ranks)] for item in classes]).argmax(0).tolist()

    def same(rank: int, one: int) -> bool:
        signs = sign([rank, one])
        alike = messages is not None and messages(rank) == messages(one)
        return alike or signs[rank] == signs[one]

    wrong = [
        (rank, classes[owner].representative)
        for rank, owner in zip(ranks, owners, strict=True)
        if not same(rank, classes[owner].representative)
    ]
    if wrong:
        rank, representative = wrong[0]
        others = "".join(
            f", and rank {item:,} does not do what rank {one:,} does" for item, one in wrong[1:4]
        )
        raise FlintError(
            f"rank {rank:,} does not do what rank {representative:,} does{others}, although no "
            "query of the program about its rank distinguishes them: "
            f"{difference(representative, rank)}. The program should compare "
            "torch.distributed.get_rank() or a mesh coordinate where its behaviour depends on them "
            "(Flint does not see what generators of random numbers make of it)"
        )
