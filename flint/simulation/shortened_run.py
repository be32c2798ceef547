"""Running a workload with only a few periods of its repeating parts.

The idea: programs are shortened and run, and the run is searched for a steady state; parts without
one are given more periods, until they have one or run in full.

    everyone, happened, repeated = run_shortened(programs, world, costs)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flint.errors import FlintError
from flint.execution.chains import CommunicationOrder
from flint.graph.blocks import shown
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.instance_count import MAX_INSTANCES
from flint.simulation.actors import Actors, build_actors
from flint.simulation.durations import Costs
from flint.simulation.independence import independent
from flint.simulation.loop_shortening import MORE, MULTIPLE, least, left_out, shorten
from flint.simulation.machine import Run, run
from flint.simulation.microbatches import Microbatches, periods_more
from flint.simulation.repeating import SEARCHED, Together, repeating
from flint.simulation.replay import NO_REPLAY, Replay
from flint.simulation.steady_state import Repeat, steady


def run_shortened(
    programs: list[tuple[WorkloadGraph, Ints]],
    world: int,
    costs: Costs,
    order: CommunicationOrder = CommunicationOrder.RANK,
    replay: Replay = NO_REPLAY,
    searched: int = SEARCHED,
    microbatches: Microbatches | None = None,
) -> tuple[Actors, Run, list[Repeat]]:
    """Run a workload, with only a few periods of repeating parts where the result is the same.

    Programs recorded with times have no two equal periods, and are run in full.

    Args:
        programs, world, order, replay: as of ``build_actors``.
        costs: costs on a system.
        searched: unrolled programs are searched for periods if they have at least this many nodes.
        microbatches: number for the step, if more than were captured.

    Raises:
        FlintError: a step with more microbatches reaches no steady state.

    Returns:
        The actors, what happened, and which parts of it happen again and again.
    """
    together = [] if any(replay.recorded) else repeating(programs, world, searched)
    more = [0] * len(together)
    if microbatches is not None:
        more = periods_more(programs, together, microbatches)
    keep = [least(parts) for parts in together]
    left = [
        left_out(parts, count, more=extra)
        for parts, count, extra in zip(together, keep, more, strict=True)
    ]
    while True:
        short = shorten(programs, together, left)
        everyone = build_actors(
            short.programs, world, costs.ticks, costs=costs.columns, order=order, replay=replay,
            beside=costs.beside,
        )  # fmt: skip
        happened = run(everyone.columns, everyone.members)
        if happened.stuck:
            return everyone, happened, []
        found: list[Repeat] = []
        restless = False
        part = independent(everyone)
        for number, cuts in enumerate(short.cuts):
            again = left[number] + more[number]
            if not again:
                continue
            one = next(n for n, i in enumerate(everyone.info) if i.program == cuts[0].program)
            among = frozenset(np.flatnonzero(part == part[one]).tolist())
            state = steady(cuts, everyone, happened, among)
            if state is not None and again % state.periods == 0:
                found.append(state.times(again))
                continue
            if not left[number]:
                raise FlintError(
                    f"--microbatches {microbatches}: the step reaches no steady state within the "
                    "captured microbatches: capture more"
                )
            restless = True
            multiple = MULTIPLE if state is None else state.periods
            keep[number] = keep[number] * MORE if state is None else keep[number] + multiple
            left[number] = left_out(together[number], keep[number], multiple, more[number])
            _check_whole(programs, together[number], left[number], keep[number])
        if not restless:
            return everyone, happened, found


def _check_whole(
    programs: Sequence[tuple[WorkloadGraph, Ints]], parts: Together, left: int, keep: int
) -> None:
    """Refuse loops that reach no steady state and are too long to be simulated in full.

    Raises:
        FlintError: names the loop and how often it runs.
    """
    for part, rate in parts:
        periods = part.place.count
        if part.loop and (periods - left * rate) * part.instances > MAX_INSTANCES:
            source = programs[part.program][0][part.place.start].source
            where = f" at {source.file}:{source.line}" if source.file else ""
            raise FlintError(
                f"the loop{where} runs {periods:,} times and reaches no steady state in its "
                f"first {keep // MORE}: all of its {shown(periods * part.instances)} nodes would "
                f"have to be simulated, but the limit is {MAX_INSTANCES:,}; use a smaller trip "
                "count"
            )
