"""A JAX program in its own process: the cluster it sees, the step it ends with.

The idea: everything is prepared when the program has imported jax.  The end of the step's period
ends the process, wherever the program is then, with the workload in a folder.

    running = Running(request, folder, output)       # watches from here on
    running.ended()                          # the program has come to its end
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from flint.errors import FlintError, UsageError
from flint.frontends.jax.cluster.layout import Layout, layout_of
from flint.frontends.jax.compiled import Kept
from flint.frontends.jax.host.calls import Called
from flint.frontends.jax.internals.cluster_client import use_cluster
from flint.frontends.jax.internals.device_attributes import assumed
from flint.frontends.jax.internals.host_evaluation import computing, recorded
from flint.frontends.jax.internals.partitioning_rules import answer_for
from flint.frontends.jax.programs import stand_ins
from flint.frontends.jax.programs.found_step import captured, compiled_alone
from flint.frontends.jax.programs.periods import Period
from flint.frontends.jax.programs.placing import Places, on_one_device
from flint.frontends.jax.programs.watching import Watcher
from flint.frontends.jax.programs.whole_trainings import (
    has_loop,
    is_whole_training,
    trains_in_a_loop,
)
from flint.frontends.jax.targets.table import table
from flint.host.child_errors import leave
from flint.host.readable import counted, human_bytes
from flint.host.stages import stage
from flint.launching.hooks import found, without_launcher
from flint.launching.notes import noted
from flint.launching.own import Own
from flint.launching.program import Cluster, ProgramRequest, SeenStep, StepChoice
from flint.launching.unknown import Unknown
from flint.passes.in_sequence import Origin

_FRAMEWORK = "jax"
#: What a failed program did less often is not said to be its step.
_THRICE = 3
#: The cluster's devices for a program without a named device.
_DEVICE = "h100-sxm"


class Running:
    """A program that runs in this process from now on.

    Args:
        request: the request.
        own: this process.
        output: the folder for the step's workload.
    """

    def __init__(self, request: ProgramRequest, own: Own, output: Path) -> None:
        self._request, self._own, self._output = request, own, output
        self._folder = own.folder
        unknown = Unknown(request.step.values, request.numbers)
        self._watcher = Watcher(request.step, request.lists_steps, self._finish, self, unknown)
        recorder = self._watcher.recorder
        self._kept: Kept = {}
        compiled = functools.partial(compiled_alone, self._kept)
        self._places = Places(recorder.calls, self._watcher.places, compiled)
        shown = use_cluster(_layout(request.cluster))
        shown.held = functools.partial(self._watcher.arrays.bytes_of_a_device, self.of)
        if shown.layout.capability is not None:
            answer_for(shown.layout.capability)
        stack = ExitStack()  # for as long as the process lives
        stack.enter_context(recorded(self._watcher))
        stand_ins.put(self._watcher, request)
        self._stack = stack

    def ended(self) -> Sequence[SeenStep]:
        """The program has ended; returns the steps that were seen, if none of them is wanted."""
        if self._request.lists_steps:
            self.run_unlaunched()
            return self._steps()
        again = self._watcher.end()
        if again is not None:
            found(self._folder, _FRAMEWORK, again=again)
        return self._steps()

    def failed(self) -> None:
        """The program has failed: a step that is held has not."""
        if (held := self._watcher.held.last()) is not None:
            self._finish(held)

    @property
    def repeated(self) -> str:
        """What may be the program's step, which has failed; "" if nothing was renewed thrice."""
        best = self._watcher.periods.best()
        if best is None or best.count < _THRICE or not best.sizes.renewed:
            return ""
        return f"{best.name} at {best.place}, {best.count} times"

    def run_unlaunched(self) -> None:
        """Run the program again without a launcher's variables, if it has looked for them."""
        again = without_launcher(self._request, self._own)
        if again is not None:
            found(self._folder, _FRAMEWORK, again=again)

    @property
    def assumptions(self) -> dict[str, int]:
        """The values that the program was given for unknown ones, text -> count."""
        return self._watcher.recorder.warnings

    def of(self, origin: Origin) -> Any:
        """The sharding of an array."""
        with computing():  # it is asked while the program runs, which has contexts of its own
            return self._places.of(origin)

    def of_results(self, call: Called, given: Sequence[Any]) -> Sequence[Any]:
        """The shardings of a call's results, by those of its operands, None if they may move."""
        with computing():
            return [place or on_one_device() for place in self._places.of_results(call, given)]

    def module_of(self, call: Called, given: Sequence[Any]) -> bytes:
        """The module of a call after partitioning; as for its results."""
        with computing():
            return self._places.module_of(call, given)

    def _finish(self, period: Period) -> NoReturn:
        """Capture the step and end the process."""
        signal.setitimer(signal.ITIMER_REAL, 0)  # the compiler has a limit of its own
        threading.excepthook = lambda _: None  # threads of the program that still make calls
        self._stack.close()
        recorder = self._watcher.recorder
        self.run_unlaunched()
        try:
            stage(f"capturing {period.name}, {counted(period.length, 'program')}")
            warnings = recorder.warnings | assumed() | noted.of_all_processes(self._folder)
            number = min(self._request.step.number, period.count)
            numbers, before = period.calls_of(number), period.calls_of(1) if number == 2 else ()
            warnings |= self._without_launcher()
            warnings |= _left_out(self._watcher.periods.of_other_threads(period))
            warnings |= _of_one_name(self._request.step, period, self._steps())
            one_round = self._is_loop(period, numbers)
            if not one_round and not self._request.step.call:
                warnings |= _called_once(period) if period.count == 1 else _doubts(period)
            workload = captured(
                recorder.calls, numbers, self._places, warnings, period.name,
                self._request.options, self._request.target, one_round=one_round, before=before,
                kept=self._kept,
            )  # fmt: skip
            workload.save_programs(self._output)
        except BaseException as error:
            leave(_or_its_main(error, period), self._folder, "the capture")
            os._exit(1)  # the program would see an exception, and continue
        found(self._folder, _FRAMEWORK, self._steps())

    def _without_launcher(self) -> dict[str, int]:
        line = self._request.step.unlaunched
        if not line:
            return {}
        return {
            f"{line} looks for a launcher's variables, and none are set: python sets "
            "none; if torchrun, srun or mpirun starts the program, name it": 1
        }

    def _is_loop(self, period: Period, numbers: Sequence[int]) -> bool:
        """Whether the step is an iteration of the loop inside of its only program."""
        choice = self._request.step
        call = self._watcher.recorder.calls[numbers[0]]
        # One that renews what it is called with is a step, however much its loops carry (a solver's
        # saved values).
        alone = len(numbers) == 1 and not period.whole
        found = alone and is_whole_training(call)
        found = found or (period.count == 1 and trains_in_a_loop(call))
        return choice.loop or (choice.name is None and found)

    def _steps(self) -> list[SeenStep]:
        calls = self._watcher.recorder.calls
        seen = [
            SeenStep(
                name=period.name,
                count=period.count,
                place=period.place,
                what=_what(period),
            )
            for period in self._watcher.periods.found.values()
        ]
        known = {(step.name, step.place) for step in seen}
        others = {(one.name, one.place): one for one in calls if (one.name, one.place) not in known}
        looping = {key for key, call in others.items() if has_loop(call)}
        return seen + [
            SeenStep(
                name=name,
                count=count,
                place=place,
                what=("does not repeat" if count == 1 else "not alone")
                + ("; has a loop" if (name, place) in looping else ""),
                repeats=False,
                loops=(name, place) in looping,
            )
            for (name, place), count in self._watcher.jitted.items()
            if (name, place) in others
        ]


def _layout(cluster: Cluster) -> Layout:
    device = cluster.device or _DEVICE
    names: dict[str, str] = {}
    for name, item in table().items():
        names.setdefault(str(item.row["accelerator"]), name)
    if device not in names:
        raise UsageError(f"--device {device}: for JAX programs, choose from {', '.join(names)}")
    slices = cluster.slices if cluster.slices > 1 else None
    return layout_of(cluster.world, names[device], cluster.hosts, slices)


def _or_its_main(error: BaseException, period: Period) -> BaseException:
    """The error; of several programs, with the choice that leaves out the others."""
    if period.length == 1 or type(error) is not FlintError:
        return error
    text = (
        f"{error}. The step is {counted(period.length, 'program')}: --step {period.name}:call "
        f"captures {period.name} alone"
    )
    return FlintError(text).with_traceback(error.__traceback__)


def _called_once(period: Period) -> dict[str, int]:
    return {f"{period.name} is called once: its one-time work is part of the step": 1}


def _doubts(period: Period) -> dict[str, int]:
    """Warnings if the step may not be all of a training step."""
    sizes = period.sizes
    same = sizes.unchanged + sizes.same
    if not period.whole:
        doubt = "if this is an evaluation"
    elif not period.trains:
        doubt = "it computes no gradients; if this is not the training"
    elif not period.is_little(same):
        doubt = "if they are neither data nor frozen parameters"
    else:
        return {}
    text = (
        f"the step is {period.name}: {human_bytes(same)} of its inputs stay unchanged from step "
        f"to step and {human_bytes(sizes.renewed + sizes.fresh)} are new; {doubt}, choose the "
        "training step with --step (--list-steps lists others)"
    )
    return {text: 1}


def _of_one_name(choice: StepChoice, period: Period, steps: Sequence[SeenStep]) -> dict[str, int]:
    places = [one.place for one in steps if one.name == choice.name and one.place != period.place]
    if choice.place or not places:
        return {}
    text = (
        f"the step is {period.name} at {period.place}, and others have this name: to choose one, "
        f"--step {period.name}@{places[0]}"
    )
    return {text: 1}


def _left_out(names: Mapping[str, int]) -> dict[str, int]:
    text = f"other threads call jitted functions: {', '.join(names)}: not part of the step"
    return {text: sum(names.values())} if names else {}


def _what(period: Period) -> str:
    kind = "replaces most inputs" if period.whole else "leaves most inputs unchanged"
    gradients = "" if period.gradients else "; no gradients"
    return f"{counted(period.length, 'program')}; {kind}{gradients}"
