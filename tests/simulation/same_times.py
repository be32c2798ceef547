"""A shortened run against the run of everything: every rank's end, and where its time went."""

from __future__ import annotations

from flint.simulation import accounting
from flint.simulation.spent_time import Spent


def assert_same_times(full_actors, full, few_actors, few, repeated):
    """Compare, to the tick.

    Args:
        full_actors, full: the actors of everything, and their run.
        few_actors, few, repeated: what ``run_shortened`` returns.
    """
    assert len(few_actors.columns) == len(full_actors.columns)
    for actor, (every, short) in enumerate(zip(full_actors.info, few_actors.info, strict=True)):
        last = int(full.end[actor].max(initial=0))
        assert accounting.last_end(few, repeated, (actor,)) == last
        wanted = Spent(every, full, actor, [])
        found = Spent(short, few, actor, repeated)
        assert (found.compute, found.communication) == (wanted.compute, wanted.communication)
        assert found.exposed_ticks == wanted.exposed_ticks
        assert found.times.sum() == wanted.times.sum()
