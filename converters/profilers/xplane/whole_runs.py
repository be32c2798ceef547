"""The runs of a program that a profile contains as a whole, on every device of its process.

The idea: devices run on while the host starts or stops the profiler, so the first and the last run
may be cut, on some devices or on all.  What is in the entry computation runs once per run: a run
that lacks some of it, which the next one has, is cut.  Devices of a process share the numbers of
runs: one that is not on all of them, or is cut on one, is no step.

    events, left_out = whole_runs(events, program.entry, file_of)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from flint.converters.profilers.xplane.events import Event

CUT = "runs of the program of which the profile, at its begin or end, has only a part: left out"


def whole_runs(
    events: list[Event], entry: Set[str], file_of: Mapping[int, int]
) -> tuple[list[Event], int]:
    """The events of whole runs, in the same order, and the number of other runs.

    If no run is whole on all devices of a process, all of its runs are kept.

    Args:
        events: what ran, by rank.
        entry: names of the ops of the entry computation.
        file_of: the number of the file, one per process, of each rank; of its own for each rank if
            their runs have no common numbers.
    """
    ran: dict[int, dict[int, set[str]]] = defaultdict(dict)  # rank -> run, by begin -> entry's ops
    for event in sorted(events, key=lambda event: event.start):
        names = ran[event.device].setdefault(event.run, set())
        if event.hlo in entry:
            names.add(event.hlo)
    ranks: dict[int, list[int]] = defaultdict(list)
    for rank in ran:
        ranks[file_of[rank]].append(rank)
    kept: dict[int, set[int]] = {}
    for own in ranks.values():
        whole = [_uncut(ran[rank]) for rank in own]
        everywhere = set.intersection(*whole) or set.intersection(*(set(ran[r]) for r in own))
        kept |= {rank: everywhere or set(ran[rank]) for rank in own}
    left_out = {(file_of[rank], run) for rank in ran for run in set(ran[rank]) - kept[rank]}
    return [event for event in events if event.run in kept[event.device]], len(left_out)


def _uncut(runs: Mapping[int, Set[str]]) -> set[int]:
    """A rank's runs without a first or last one that has less than the one beside it."""
    order: Sequence[int] = list(runs)
    cut = {
        edge
        for edge, beside in (order[:2], order[-1:-3:-1])
        if runs[edge] < runs[beside]
    } if len(order) > 1 else set()  # fmt: skip
    return set(order) - cut
