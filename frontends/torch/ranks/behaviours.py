"""Which ranks do the same, from recordings of a few of them.

The idea: all evidence of differences among ranks (a program's comparisons of its own rank, uneven
shards, stages, groups) is crossed into one partition, and ranks of every cell are recorded; their
evidence counts, too.  If two ranks of one cell do not do the same, the mesh axes along which they
differ are found one by one, and places along those axes are distinguished as well.  Cells that turn
out to do the same are one behaviour.

    behaviours((4, 2, 8), sign)       # sign(ranks) -> rank -> signature; here 4 stages
    [Behaviour(0, mask of 16 ranks), Behaviour(16, ...), ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.evidence import Evidence, evidence_of
from flint.frontends.torch.ranks.partition import MOST_CELLS, Partition, crossed
from flint.frontends.torch.ranks.search import (
    Behaviour,
    Search,
    Sign,
    far_end,
    places_along,
    rank_at,
)

#: The fewest recorded ranks that show differences for which there is no evidence.
_FEWEST = 4

#: Up to this many ranks are all recorded if the evidence does not explain their differences.
_FEW = 16

#: Up to this many ranks, those whose optimizers update other pieces than others' are told apart.
_MANY = 64


def behaviours(
    shape: tuple[int, ...],
    sign: Sign,
    evidence: Callable[[], Iterable[Evidence]] = tuple,
    unseen: Callable[[], bool] = bool,
    recorded: Iterable[int] = (),
    messages: Callable[[int], str] | None = None,
    besides_updates: Callable[[int], str] | None = None,
) -> tuple[list[Behaviour], Partition]:
    """The distinct behaviours over a mesh, and the partition with which they were found.

    Args:
        shape: devices per mesh axis; rank is row-major.
        sign: records ranks; asked for several at once, and for each rank once.
        evidence: the evidence of the ranks recorded so far; called again after more.
        unseen: whether the program may ask questions that are not seen: then ranks that differ
            without a known reason are narrowed down instead of refused.
        recorded: ranks that have been recorded before; if there is one, its evidence decides
            which others are recorded first, otherwise these are four that are far apart.
        messages: what a recorded rank communicates, if every rank reads its own data: ranks that
            differ without a pattern and communicate the same then count as one of them.
        besides_updates: this, and what a recorded rank does but for its optimizers, whose pieces of
            state may differ on every rank: of many ranks, those equal in it count as one.

    Raises:
        FlintError: too many distinct places, or a rank that breaks the pattern.
    """
    if math.prod(shape) <= _MANY:
        besides_updates = None
    search = Search(shape, sign, evidence, besides_updates)
    apart = (
        0,
        search.world - 1,
        rank_at(tuple(size // 2 for size in shape), shape),
        far_end(shape),
    )
    search.record(tuple(recorded) or apart)
    partition = search.divided(())
    if len(search.known) < _FEWEST:
        search.record(apart)
        partition = search.divided(())
    if search.different(partition) is None:
        return search.explained(partition), partition
    if search.world <= _FEW:
        each = crossed([evidence_of("ranks", np.arange(search.world))], search.world)
        search.record(range(search.world))
        return search.explained(each), each
    if search.alike(partition, besides_updates):
        return search.explained(partition), partition
    if search.counts_all():
        partition = search.divided(())
        if search.different(partition) is None or search.alike(partition, besides_updates):
            return search.explained(partition), partition
    if search.looks_closely():
        partition = search.divided(())
        if search.different(partition) is None:
            return search.explained(partition), partition
    axes = search.changing_axes(partition)
    count = math.prod(shape[axis] for axis in axes)
    places: tuple[Evidence, ...] = ()
    if count <= MOST_CELLS:
        places = places_along(shape, axes)
        partition = search.divided(places)
    elif not unseen():
        if search.alike(partition, messages):
            return search.explained(partition), partition
        raise FlintError(
            f"ranks behave differently along mesh axes of {count:,} places in total; the limit is "
            f"{MOST_CELLS}"
        )
    if search.different(partition) is not None and unseen():
        partition = search.divided((*places, search.narrowed(partition)))
    different = search.different(partition)
    if different is None or search.alike(partition, messages):
        return search.explained(partition), partition
    raise FlintError(
        f"rank {different[1]:,} behaves differently from rank {different[0]:,}, although both have "
        f"the same coordinates on the mesh axes {axes} along which ranks differ, and no query of "
        "the program about its rank distinguishes them: its behaviour follows no pattern"
    )
