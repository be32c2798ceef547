"""In a child process: the program runs, watched by the hooks of the frameworks that it imports.

The idea: the process ends when the step is found.  Everything else that a program can do (end,
fail, exit, wait for input, take too long) is reported in one line that names the program's line. If
the process is copied while the program runs (``own.py``), the same applies to the copy.

    run_all(functools.partial(be_program, request), [0], folder, limits)
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

from flint.capturing.exits import name_exits
from flint.capturing.user_frames import (
    named_lines,
    one_line,
    running_line,
    short_path,
    user_frame,
)
from flint.errors import FlintError, UsageError
from flint.host.child_processes import Limits
from flint.host.imports import after_import
from flint.host.readable import counted
from flint.host.template import Template
from flint.launching import launched, processes, spawned
from flint.launching.commands import script_commands
from flint.launching.failures import raise_failure
from flint.launching.followed import followed_imports
from flint.launching.hooks import Hooks, hooks, list_steps
from flint.launching.levels import settled
from flint.launching.notes import noted
from flint.launching.outside import kept_inside, watch_mpi
from flint.launching.own import Own
from flint.launching.program import ProgramRequest
from flint.launching.running import run
from flint.launching.waiting import tell_of_threads, watch

#: Extra seconds that the parent waits, so that the child can report where the program is.
_LONGER = 30.0
#: Bytes of a program's output that are searched for its last line.
_MOST_PRINTED = 200
#: The number of assumed values that are named if a program ends or exceeds its time.
_MOST_ASSUMPTIONS = 2


def be_program(
    request: ProgramRequest, rank: int, folder: Path, template: Template | None = None
) -> NoReturn:
    """Run the program until a step is found.

    Args:
        request: the request.
        rank: rank of the process.
        folder: for files that it leaves.
        template: kept for other ranks, if the program's framework needs them.

    Raises:
        UsageError: it does not have the requested step.
        FlintError: it ended otherwise.
    """
    own = Own(rank, folder)
    try:
        _be_program(request, own, template)
    except Exception as error:
        if not own.is_copy:
            raise
        own.fail(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _be_program(request: ProgramRequest, own: Own, template: Template | None) -> NoReturn:
    begun: dict[str, Hooks] = {}
    _without_input(own)
    _limit_time(request, own, begun)
    _name_exits(request, own)
    tell_of_threads()
    spawned.make_up(request.fake_data, own.folder)

    def begin(name: str, hook: Hooks) -> None:
        begun[name] = hook
        hook.begin(settled(request, name)[0], own)

    every = hooks()
    for hook in every.values():
        hook.prepare(request, own, template)
    watch_mpi(request.cluster.world)
    spawned.watch(request, own)
    processes.watch(own.asked)  # from here on they are the program's
    launched.watch(request.cluster)
    if "srun" in (*request.program.launchers, request.program.manager):
        script_commands.provide_hosts(own.folder / "slurm", request.cluster.hosts)
    calls = {name: functools.partial(begin, name, hook) for name, hook in every.items()}
    ended = "ended"
    followed = followed_imports(own.folder.parent / "followed")
    with kept_inside(request.allow), followed, after_import(calls):
        try:
            run(request.program)
        except SystemExit as stopped:
            if stopped.code and isinstance(stopped.__context__, Exception):
                raise_failure(request, begun, stopped.__context__, own.folder)  # caught by it
            own.has_failed = bool(stopped.code)
            where = user_frame(stopped)
            at = f" at {where}" if where else ""
            ended = f"left{at}" + (f" ({one_line(stopped)})" if stopped.code else "")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # some libraries' errors are not Exceptions
            raise_failure(request, begun, error, own.folder)
    for caught in [hook.caught() for hook in begun.values()]:
        if caught is not None:
            raise_failure(request, begun, caught, own.folder)
    _report_end(request, begun, ended, own)


def limits_of(request: ProgramRequest) -> Limits:
    """The parent's limits for such a process."""
    return Limits(request.options.time_limit + _LONGER, request.options.memory_limit)


def _report_end(
    request: ProgramRequest, begun: Mapping[str, Hooks], ended: str, own: Own
) -> NoReturn:
    """The program has ended, and no step was found."""
    folder = own.folder
    name = f"{request.program.name} (rank {own.rank:,})" if own.rank else request.program.name
    if request.lists_steps:
        list_steps(folder, begun)
    seen_by = [hook.seen() for hook in begun.values()]
    if not begun:
        known = " nor ".join(hooks())
        raise FlintError(
            f"{name} {ended} and imported neither {known}: it has no step{_elsewhere()}"
            f"{_last_line(folder)}"
        )
    every = [step for each in seen_by for step in each]
    seen = [f"{step.name} at {step.place} ({_often(step.count)})" for step in every]
    wanted = request.step
    if wanted.name is not None and not any(wanted.names(one.name, one.place) for one in every):
        listed = f"steps seen: {', '.join(seen)}" if seen else "no step was seen"
        raise UsageError(f"--step {wanted}: {name} has no such step; {listed}")
    known_as = "; ".join(hook.STEP for hook in begun.values())
    none = f"no step was seen{_elsewhere()}; {known_as}"
    listed = f"steps seen: {', '.join(seen)}" if seen else none
    single = [step for step in every if step.count == 1 or not step.repeats]
    once = sorted(single, key=lambda step: step.loops)
    chosen = f", or capture a single run with --step {once[-1].name}:1" if once else ""
    if once and once[-1].loops:
        chosen += f", or an iteration of its loop with --step {once[-1].name}:loop"
    # A framework may have seen a step that it does not take unasked: a part of a single training.
    least = max(wanted.number, 2)
    enough = [step for step in every if step.repeats and step.count >= least]
    chosen += f", or capture that with --step {enough[0].name}" if enough else ""
    last = _assumptions(begun, folder)[-_MOST_ASSUMPTIONS:]
    why = f". This may have ended it: {'; '.join(last)}" if last else ""
    raise FlintError(
        f"{name} {ended} before its step ran {counted(wanted.number, 'time')}: {listed}; make it "
        f"run longer with its own arguments{chosen}{why}{_last_line(folder)}"
    )


def _often(count: int) -> str:
    return counted(count, "time") if count else "begun, not ended"


def _last_line(folder: Path) -> str:
    """The last line that the program printed, which often says why it ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    with (folder / "stderr").open("rb") as words:
        words.seek(max(words.seek(0, os.SEEK_END) - _MOST_PRINTED, 0))
        lines = words.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f". The last line that it printed: {last}" if last else ""


def _assumptions(begun: Mapping[str, Hooks], folder: Path, often: bool = False) -> list[str]:
    """The values that were assumed for the program, with counts: in order, or by count."""
    assumed = noted.of_all_processes(folder)
    for hook in begun.values():
        assumed.update(hook.assumed())
    every = assumed.most_common() if often else list(assumed.items())
    return [f"{text.partition('; ')[0]} ({counted(count, 'time')})" for text, count in every]


def _elsewhere() -> str:
    lines = named_lines(processes.started)
    return f"; it starts processes at {lines}, and their steps are not seen" if lines else ""


def _without_input(own: Own) -> None:
    """Make stdin empty, and send what the program prints to stderr."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115

    def say() -> None:
        os.dup2(2, 1)

    say()
    own.in_copies(say)


def _name_exits(request: ProgramRequest, own: Own) -> None:
    """Report where the program exits at once (``os._exit``), which raises nothing."""

    def report(left: str) -> bool:
        if os.getpid() != own.process:
            return False
        said = _last_line(own.folder)
        own.fail(FlintError(f"{request.program.name} {left} before its step{said}"))
        return True

    name_exits(report)


def _limit_time(request: ProgramRequest, own: Own, begun: Mapping[str, Hooks]) -> None:
    """Report where the program is when its time is over, which cannot be seen from outside."""

    def over(frame: FrameType | None) -> None:
        file, line = running_line(frame)
        at = f" at {short_path(file)}:{line}" if file else ""
        assumed = "; ".join(_assumptions(begun, own.folder, often=True)[:_MOST_ASSUMPTIONS])
        own.fail(
            FlintError(
                f"{request.program.name} took more than {request.options.time_limit:g} s and was "
                f"stopped{at}: raise the time limit (--time-limit), or let the program do less "
                "before its "
                f"step{assumed and f'. It may wait for something that a capture lacks: {assumed}'}"
            )
        )
        os._exit(1)

    def begin() -> None:
        signal.setitimer(signal.ITIMER_REAL, request.options.time_limit)
        watch(request.program.name, request.options.time_limit, over, own.folder.parent)

    signal.signal(signal.SIGALRM, lambda _, frame: over(frame))
    begin()
    own.in_copies(begin)
