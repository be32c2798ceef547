"""Simulating only a few iterations of long loops or microbatches, with the same result to the tick.

The idea: run the programs with fewer periods of their repeating parts, until the run reaches a
steady state; the omitted periods would repeat it.  A part that reaches no steady state is given
more periods, in the end all of them.

    short = shorten(programs, together, keep)   # 1000 iterations -> 10
    steady(short.cuts[0], everyone, run(...))   # what to insert, how many times
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.instance_count import first_instances
from flint.passes.periods import fewer_periods
from flint.simulation.actor_states import Cut
from flint.simulation.repeating import Part, Together

#: Periods until a part is steady and a state has recurred.
ENOUGH: Final = 8
#: The number of omitted periods is a multiple of this: states usually recur after 1, 2 or 3
#: periods.
MULTIPLE: Final = 6
#: How many times more periods a part is given if it is not steady.
MORE: Final = 4
#: Periods in which a part becomes steady, if it ever does: comparing costs grow with their square.
MOST: Final = 512


@dataclass(frozen=True, eq=False, slots=True)
class Shortened:
    """Programs with fewer periods.

    Attributes:
        programs: graphs and the ranks that run them.
        cuts: one for each of the parts that repeat together.
        left_out: number of removed periods of the slowest part.
    """

    programs: list[tuple[WorkloadGraph, Ints]]
    cuts: list[list[Cut]]
    left_out: list[int]


def least(together: Together) -> int:
    """Number of periods of the slowest part to begin with."""
    return ENOUGH + max(part.lookahead for part, _ in together)


def left_out(together: Together, keep: int, multiple: int = MULTIPLE, more: int = 0) -> int:
    """Number of periods of the slowest part to remove, so that ``keep`` or a few more are left.

    None where ``keep`` is more than ``MOST`` beyond what may run ahead.

    Args:
        together: the parts.
        keep: periods of the slowest part.
        multiple: the removed periods plus ``more`` are a multiple of this.
        more: periods in addition to the existing ones.
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
        left: for each of them, removed periods of the slowest part.
    """
    counts: dict[int, dict[Part, int]] = defaultdict(dict)
    for parts, gone in zip(together, left, strict=True):
        for part, rate in parts:
            counts[part.program][part] = part.place.count - gone * rate
    short = [
        (_with_counts(graph, counts[number]), ranks)
        for number, (graph, ranks) in enumerate(programs)
    ]
    first = [first_instances(graph) for graph, _ in short]

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
    """The graph with a given number of periods of its parts."""
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
