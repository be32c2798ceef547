"""A trace of a program that some ranks of a run executed, with the numbers that these have in it.

The idea: an XLA program numbers the devices that it runs on from 0; beside programs on other
devices, its ranks have other numbers.

    trace = renumbered(trace, ranks=(4, 5, 6, 7), world=8)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flint.observed.columns import Observed, OpFacts


def renumbered(trace: Observed, ranks: Sequence[int], world: int) -> Observed:
    """A trace with other numbers for its ranks.

    Args:
        trace: the trace.
        ranks: the number of each of its ranks in the run.
        world: number of ranks of the run.
    """

    def facts(item: OpFacts) -> OpFacts:
        group = None if item.group is None else tuple(sorted(ranks[rank] for rank in item.group))
        return replace(item, group=group, peer=item.peer if item.peer < 0 else ranks[item.peer])

    return replace(
        trace,
        world=world,
        facts=tuple(map(facts, trace.facts)),
        rank=np.array(ranks, trace.rank.dtype)[trace.rank],
        faults=tuple(f._replace(rank=ranks[f.rank], facts=facts(f.facts)) for f in trace.faults),
        taken=tuple(
            one._replace(rank=ranks[one.rank], inside=tuple(map(facts, one.inside)))
            for one in trace.taken
        ),
        iterated=tuple(one._replace(rank=ranks[one.rank]) for one in trace.iterated),
        functions=tuple(one._replace(rank=ranks[one.rank]) for one in trace.functions),
        alone={(ranks[rank], step): count for (rank, step), count in trace.alone.items()},
    )
