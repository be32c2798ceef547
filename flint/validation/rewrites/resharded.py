"""Changes of a DTensor's sharded dim, which gloo's ranks run in another form than captured.

The idea: a shard of one dim becomes a shard of another by an all-to-all.  On a CPU,
torch.distributed.tensor gathers the whole and takes its part (``shard_dim_alltoall`` in
torch/distributed/tensor/_collective_utils.py).  Each rank passes on its shard either way, so that
both forms are in the same place of the order of a rank's gathers and all-to-alls.

    resharded(matching)     # before the collectives of each class
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.alignment import aligned
from flint.validation.matching.pairing import Evidence, Matching

RESHARDED = "another sharded dim of a DTensor: an all-to-all, on the CPU an all-gather"

_FORMS = (OpClass.ALL_TO_ALL, OpClass.ALL_GATHER)


def resharded(matching: Matching) -> None:
    """Pair captured all-to-alls with the all-gathers that ran in their places."""
    ops = matching.captured, matching.executed
    sides = [
        [number for number, kind in enumerate(kinds) if kind in _FORMS and number in unmatched]
        for kinds, unmatched in zip(
            matching.kinds, (matching.unmatched_captured, matching.unmatched_executed), strict=True
        )
    ]
    fewer = [sum(matching.kinds[side][n] == _FORMS[0] for n in sides[side]) for side in (0, 1)]
    if fewer[0] <= fewer[1]:
        return
    numbers: dict[Hashable, int] = {}

    def keys(side: int) -> NDArray[np.int64]:
        as_gathers = (_as_gather(ops[side][n]) for n in sides[side])
        return _numbered((matching.rules.key(facts) for facts in as_gathers), numbers)

    for x, y in aligned(keys(0), keys(1)) or ():
        i, j = sides[0][x], sides[1][y]
        if (matching.kinds[0][i], matching.kinds[1][j]) == _FORMS:
            evidence = Evidence.SIZES if matching.rules.sized(ops[1][j]) else Evidence.NAME
            matching.pair(i, j, evidence, RESHARDED)


def _as_gather(facts: OpFacts) -> OpFacts:
    return replace(facts, kind=OpClass.ALL_GATHER, reduction="")


def _numbered(keys: Iterable[Hashable], numbers: dict[Hashable, int]) -> NDArray[np.int64]:
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
