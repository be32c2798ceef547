"""Runs that do not end, because ranks wait for partners that never arrive.

check_finished(everyone, run(everyone.columns, everyone.members), workload, passes)
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.errors import FlintError
from flint.passes.what_if import Chosen
from flint.simulation.actors import Actors
from flint.simulation.machine import Run
from flint.workload.workload import Workload


class WaitsForever(FlintError):
    """Ranks wait for each other forever, perhaps because a pass changed their communications."""


def check_finished(
    everyone: Actors, happened: Run, workload: Workload, passes: Sequence[Chosen]
) -> None:
    """Refuse a run in which ranks wait for each other forever.

    Raises:
        WaitsForever: names the first node that never ran, and the passes that may be the reason.
    """
    if not happened.stuck:
        return
    actor, node = happened.stuck[0]
    info = everyone.info[actor]
    graph, index, iteration = info.unrolled.locate(int(info.emission.instance[node]))
    source = graph[index].source
    where = f" at {source.file}:{source.line}" if source.file else ""
    after = ""
    if passes:
        names = ", ".join(str(item) for item in passes)
        after = f", which other programs no longer run in this form after pass {names}"
    raise WaitsForever(
        f"rank {info.rank} of program {workload.programs[info.program].name} waits forever at "
        f"{graph[index].op} (node {index}, iteration {iteration}{where}): its partners never "
        f"arrive{after}"
    )
