"""Questions of a program about its rank that matter to its optimizers' pieces of state only.

The idea: a distributed optimizer gives every rank other pieces, by its place among its peers, so
that questions make as many cells as there are peers, times the stages.  If ranks of these cells,
one each and of one stage, do the same besides their updates, then the questions that tell them
apart are not asked for what they do otherwise, and do not count for the other stages, either.

    updates_only(evidence, ranks, besides_updates)     # {Evidence("at optimizer.py:246", ...)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from flint.frontends.torch.evidence import Evidence


def updates_only(
    evidence: Iterable[Evidence], ranks: Sequence[int], besides_updates: Callable[[int], str]
) -> set[Evidence]:
    """Questions that tell ranks apart that do the same, and are not needed for those that do not.

    A question that tells only ranks apart that differ may be why they do, and counts.

    Args:
        evidence: of the ranks recorded so far.
        ranks: recorded ones that no fact distinguishes.
        besides_updates: what a recorded rank does but for its optimizers.
    """
    names = [besides_updates(rank) for rank in ranks]
    signs = np.unique(names, return_inverse=True)[1].reshape(-1)
    unlike = signs[:, None] != signs
    asked = sorted(
        {item: item.kinds()[list(ranks)] for item in evidence if item.asked}.items(),
        key=lambda pair: (-len(np.unique(pair[1])), pair[0].place, pair[0].packed),
    )
    left: dict[Evidence, NDArray[np.bool_]] = {
        item: kinds[:, None] != kinds for item, kinds in asked
    }
    # How many questions tell each two ranks apart.
    count = np.sum([*left.values(), np.zeros_like(unlike, np.int64)], 0)
    found: set[Evidence] = set()
    for item, apart in left.items():
        if (apart & ~unlike).any() and not (unlike & apart & (count == 1)).any():
            count = count - apart
            found.add(item)
    return found
