"""Long loops and many microbatches simulated by a few of them, with the same result to the tick.

The idea: run the programs with fewer periods of what repeats in them, until the run comes to a
steady state; what was left out happens there again and again.  A part that comes to no steady state
is given more periods, in the end all that it has.

    short = shorten(programs, together, keep)   # 1000 iterations -> 10
    steady(short.cuts[0], everyone, run(...))   # what to insert, how many times
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.instance_count import instances_of
from flint.passes.periods import fewer_periods
from flint.simulation.repeating import Part, Together
from flint.simulation.steady_state import Cut

#: Periods until a part has come to rest and a state has come again.
ENOUGH: Final = 8
#: What is left out is a multiple of this: states come again after 1, 2 or 3 periods, as a rule.
MULTIPLE: Final = 6
#: How many times more periods a part is given that has not come to rest.
MORE: Final = 4
#: Periods in which a part comes to rest, if it ever does: what is compared grows with their square.
MOST: Final = 512


@dataclass(frozen=True, eq=False, slots=True)
class Shortened:
    """Programs with fewer periods.

    Attributes:
        programs: graphs and the ranks that run them.
        cuts: of each of the parts that repeat together.
        left_out: periods of the slowest of them that were taken away.
    """

    programs: list[tuple[WorkloadGraph, Ints]]
    cuts: list[list[Cut]]
    left_out: list[int]


def least(together: Together) -> int:
    """Periods of the slowest part to begin with."""
    return ENOUGH + max(part.lookahead for part, _ in together)


def left_out(together: Together, keep: int, multiple: int = MULTIPLE, more: int = 0) -> int:
    """Periods of the slowest part to take away, so that ``keep`` or a few more of them are left.

    None where ``keep`` is more than ``MOST`` beyond what may run ahead.

    Args:
        together: the parts.
        keep: periods of the slowest part.
        multiple: of which those that are taken away, with ``more``, are one.
        more: periods beyond those that there are.
    """
    if keep > MOST + max(part.lookahead for part, _ in together):
        return 0
    spare = min(part.place.count // rate for part, rate in together) - keep
    return max(spare - (spare + more) % multiple, 0)


def shorten(
    programs: Sequence[tuple[WorkloadGraph, Ints]],
    together: Sequence[Together],
    left: Sequence[int],
) -> Shortened:
    """The programs without some periods.

    Args:
        programs: graphs and the ranks that run them.
        together: the parts that repeat together.
        left: of each of them, periods of the slowest that are taken away.
    """
    counts: dict[int, dict[Part, int]] = defaultdict(dict)
    for parts, gone in zip(together, left, strict=True):
        for part, rate in parts:
            counts[part.program][part] = part.place.count - gone * rate
    short = [
        (_with_counts(graph, counts[number]), ranks)
        for number, (graph, ranks) in enumerate(programs)
    ]
    first = [_first_instances(graph) for graph, _ in short]

    def cut(part: Part, rate: int) -> Cut:
        there = counts[part.program]
        gone = sum(
            (other.place.count - count) * other.place.nodes
            for other, count in there.items()
            if not other.loop and other.place.start < part.place.start
        )
        at = int(first[part.program][part.place.start - gone])
        return Cut(part.program, at, part.instances, there[part], rate)

    cuts = [[cut(part, rate) for part, rate in parts] for parts in together]
    return Shortened(short, cuts, list(left))


def _with_counts(graph: WorkloadGraph, counts: dict[Part, int]) -> WorkloadGraph:
    """The graph with so many periods of its parts."""
    loops = list(graph.loops)
    for part in counts:
        if part.loop:
            detail = int(graph.detail[part.place.start])
            loops[detail] = replace(loops[detail], trip_count=counts[part])
    short = replace(graph, loops=tuple(loops)) if loops else graph
    for part in sorted(counts, key=lambda part: -part.place.start):
        if not part.loop and counts[part] < part.place.count:
            short = fewer_periods(short, part.place, counts[part])
    return short


def _first_instances(graph: WorkloadGraph) -> Ints:
    """Number of the first instance of each node, shape [nodes]."""
    sizes = np.ones(len(graph), np.int64)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = graph.loops[int(graph.detail[node])]
        sizes[node] = loop.trip_count * instances_of(loop.body)
    found: Ints = np.cumsum(sizes) - sizes
    return found
