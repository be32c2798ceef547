"""From a request to a workload: the program runs in a child process, and its framework's hooks do
the rest.

workload = capture(ProgramRequest(program=program, cluster=cluster))
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from flint.capturing import targets
from flint.capturing.user_frames import crashed_line
from flint.host.child_processes import none_left
from flint.host.stages import stage
from flint.host.tasks import run_all
from flint.host.template import Template
from flint.host.temporary import temporary_folder
from flint.launching.child import be_program, limits_of
from flint.launching.hooks import Found, hooks, read_found
from flint.launching.levels import settled
from flint.launching.program import ProgramRequest, StepChoice
from flint.launching.stated_values import unused
from flint.workload.workload import Workload


def capture(request: ProgramRequest) -> Workload:
    """The workload of a program's step.

    Raises:
        UsageError: it has no such step.
        FlintError: it ended before its step, failed, or took more than the limits.
    """
    with none_left(), temporary_folder() as folder, Template() as template:
        place = _run(request, folder, template)
        found = read_found(place)
        framework = found.framework
        if found.again is not None:
            return capture(replace(request, step=found.again))
        chosen, why = settled(request, framework)
        workload = hooks()[framework].workload(chosen, place, folder, template)
        if isinstance(workload, StepChoice):
            return capture(replace(request, step=workload))
    more = unused(request.numbers, request.mask_shares, workload.warnings)
    if why:
        more.append(targets.NOT_COMPILED.format(why))
    return (
        replace(workload, warnings=workload.warnings | dict.fromkeys(more, 1)) if more else workload
    )


def steps(request: ProgramRequest) -> Found:
    """The repeated steps that were seen in a program, which may have failed behind them; raises as
    ``capture``.
    """
    with none_left(), temporary_folder() as folder:
        found = read_found(_run(request, folder, None))
    return found if found.again is None else steps(replace(request, step=found.again))


def _run(request: ProgramRequest, folder: Path, template: Template | None) -> Path:
    """Run the program once, as rank 0; returns the folder that its child process left."""
    stage(f"running {request.program.name}")
    first = folder / "first"
    first.mkdir()
    work = functools.partial(be_program, request, template=template)
    return run_all(work, [0], first, limits_of(request), line_of=crashed_line)[0]
