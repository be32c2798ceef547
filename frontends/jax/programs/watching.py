"""A program's calls, noted while it runs, until its step has been found.

The idea: the program runs unchanged, on arrays that have no values if they would be large or lie on
several devices (``internals/host_evaluation.py``).  Every call of a jitted function is noted; when
the calls repeat themselves (``periods.py``) the step is found, and the next call does not return.

    with recorded(Watcher(chosen, placements, ...)):
        ...                         # the program
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from flint.capturing.user_frames import running_line, short_path
from flint.frontends.jax.host.calls import Called, Operand
from flint.frontends.jax.host.recording import Recorder, is_jitted
from flint.frontends.jax.host.values import UnknownIntegerError
from flint.frontends.jax.internals.avals import aval_of, aval_on
from flint.frontends.jax.internals.host_arrays import HostArray
from flint.frontends.jax.internals.jaxprs import is_elsewhere, is_placed, meshes
from flint.frontends.jax.internals.traced_calls import is_stated, told_apart
from flint.frontends.jax.internals.tracing import computes_on_host, is_folding, is_on_host, on_host
from flint.frontends.jax.programs import whole_trainings
from flint.frontends.jax.programs.held_arrays import HeldArrays
from flint.frontends.jax.programs.held_step import HeldStep
from flint.frontends.jax.programs.operand_sizes import Given, Made
from flint.frontends.jax.programs.periods import Period, Periods
from flint.frontends.jax.programs.placing import Placements
from flint.frontends.jax.programs.taken_arrays import TakenArrays
from flint.launching.notes import noted
from flint.launching.program import StepChoice
from flint.launching.unknown import Unknown
from flint.passes.in_sequence import Origin

#: The most calls of a whole program.
_MOST_CALLS = 1_000_000
#: A period that renews little of its operands, or computes no gradients, is taken when it has been
#: seen this often; one that renews nothing may be an evaluation of a whole data set before the
#: training.
_OFTEN, _EVALUATION = 1_000, 10_000
_INSPECTED = (
    "an executable is inspected at {}: it is the module after partitioning, before fusion; its "
    "temporary memory is assumed to be 0"
)
_ON_HOST = "computed on the host's processor at {}: if it is in the step, as on the device"


class Watcher:
    """The record of a program's calls (a ``Host``).

    Args:
        choice: the wanted step.
        lists_steps: list all steps, so that none ends the program.
        finish: called with the step's period when it has been found; does not return.
        placements: those of arrays that were created without a sharding.
        unknown: the values that are assumed.

    Attributes:
        recorder: the calls.
        arrays: the arrays that the program holds.
        places: shardings of arrays that no program created, and those that programs state.
        held: the step, while another training may follow.
    """

    def __init__(
        self,
        choice: StepChoice,
        lists_steps: bool,
        finish: Callable[[Period], None],
        placements: Placements,
        unknown: Unknown,
    ) -> None:
        self.recorder = Recorder(_MOST_CALLS, self, unknown)
        self.periods = Periods()
        self.places: dict[Origin, Any] = {}
        self.jitted: Counter[tuple[str, str]] = Counter()
        self._choice, self._lists_steps = choice, lists_steps
        self._finish, self._placements = finish, placements
        self.arrays = HeldArrays()
        self.held = HeldStep(self.periods.calls, self.arrays.made_at)
        self._threads, self._put = {threading.get_ident(): 0}, 0  # arrays that no program made
        self._taken, self._lock = TakenArrays(), threading.RLock()
        self._kinds: dict[Hashable, int] = {}
        self._due: Period | None = None
        self._seen = 0  # calls of the step alone

    def call(
        self,
        name: str,
        parameters: Mapping[str, Any],
        operands: Sequence[Any],
        source: str,
        compiled_for: Sequence[Any] = (),
        known: Sequence[Any] | None = None,
    ) -> list[Any]:
        with self._lock:
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            due = self._due
        if due is not None and due.thread == thread:
            # Other threads continue meanwhile: they may hold locks that a capture waits for.
            self._finish(due)
        with self._lock:
            results = self.recorder.call(name, parameters, operands, source, compiled_for)
            number = len(self.recorder.calls) - 1
            call = self.recorder.calls[number]
            call.values = self.arrays.integers(call, operands)
            for result, stated in zip(results, parameters["out_shardings"], strict=True):
                if is_stated(stated) and is_placed(stated):
                    result.place_on(stated)
                    self.places[result.origin] = stated
                elif computes_on_host():
                    result.known_sharding = on_host()
                elif isinstance(stated, NamedSharding):  # over a mesh of one device
                    result.known_sharding = stated
            if computes_on_host():
                self.recorder.remark(_ON_HOST, f"{short_path(call.file)}:{call.line}")
            self.arrays.made(results, call, operands, known)
            thread = self._threads[threading.get_ident()] = self._in_turn(call, thread)
            self._note(call, self._taken.of(number, call, operands, thread), thread)
            self.recorder.unknown.trained += call.jitted
            return results

    def end(self) -> StepChoice | None:
        """The program has ended: the best step that was seen is taken, if there is one.

        Otherwise it may have ended because of unknown values: returns what to look for with others.
        """
        named, choice = self._choice.name, self._choice
        again = self.recorder.unknown.again(choice)
        some = [
            period
            for period in self.periods.found.values()
            if (named is None or (not choice.alone and choice.names(period.name, period.place)))
            and period.count >= choice.number
        ]
        best = self._due or self.held.last() or self.periods.best(some)
        if named is None and not (best is not None and best.whole and best.trains):
            training = whole_trainings.last_of(self.recorder.calls)
            if best is None and training is None and again is None:
                training = whole_trainings.last_loop_of(self.recorder.calls)
            if training and (not (best and best.whole) or self._taken.gradients(training)):
                own = training.name, training.place
                best = self.periods.single(lambda name, place: (name, place) == own)
        if best is None and named is not None and (choice.number == 1 or choice.alone):
            best = self.periods.single(choice.names)
        if best is not None:
            self._finish(best)
        return again

    def read(self, array: HostArray, kind: str) -> Any:
        value = self.value(array)
        if value is None or kind == "wait":
            try:
                return self.recorder.read(array, kind)
            except UnknownIntegerError:
                file, line = self.recorder.waits(array)
                noted[f"an integer is read at {short_path(file)}:{line}: assumed to be 0"] += 1
                value = np.zeros(array.shape, array.dtype)
        else:
            self.recorder.waits(array)
        found = np.asarray(value)
        return found if kind == "array" else found.item()

    def lowers(self) -> None:
        """A lowered program is noted when it is called."""

    def computed(self) -> None:
        """Calls that need no device of the cluster are ignored."""

    def sharding(self, array: HostArray) -> Any:
        found = self._placements.of(array.origin)
        array.known_sharding = found
        return found

    def results(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> Sequence[Any]:
        return self._placements.of_results(*self._ahead(name, parameters, compiled_for))

    def module(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> bytes:
        file, line = running_line()
        noted[_INSPECTED.format(f"{short_path(file)}:{line}")] += 1
        return self._placements.module_of(*self._ahead(name, parameters, compiled_for))

    def _ahead(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> tuple[Called, Sequence[Any]]:
        """A call that has not been made, and the shardings of its operands."""
        given = [
            self._placements.of(item) if isinstance(item, Origin) else item for item in compiled_for
        ]
        operands = tuple(Operand(aval, None) for aval in parameters["jaxpr"].in_avals)
        over = [item if is_elsewhere(item) else None for item in given]
        return Called(name, parameters, operands, True, "", *running_line()), over

    def value(self, array: HostArray) -> Any:
        return self.arrays.value(array)

    def keeps(self, source: str) -> bool:
        return is_jitted(source)

    def spans(self, program: Any) -> bool:
        return any(mesh.size > 1 for mesh in meshes(program))

    def put(self, value: Any, sharding: Any) -> Any:
        if isinstance(value, HostArray):
            if value.known_sharding == sharding or sharding is None:
                return value
            if is_on_host(sharding):
                return value.part(value.shape, (slice(None),) * value.ndim, on_host())
            if not is_on_host(value.known_sharding):
                return None
        return self.place(value, sharding) if is_elsewhere(sharding) else None

    def place(self, value: Any, sharding: Any, shape: Sequence[int] | None = None) -> HostArray:
        """An array on several devices, made of the host's data.

        Args:
            value: a part of it, or all; or the type of all, if the value is unknown.
            sharding: its placement.
            shape: shape of the whole array; None: the value's.
        """
        own = tuple(getattr(value, "shape", ()))
        aval = aval_on(aval_of(value), own if shape is None else shape, sharding)
        with self._lock:
            origin = Origin(-1, self._put)
            self._put += 1
        self.places[origin] = sharding
        known = tuple(aval.shape) == own and not isinstance(
            value, (jax.ShapeDtypeStruct, HostArray)
        )
        self.arrays.put(origin, aval, value if known else None)
        return HostArray(self, origin, aval, sharding)

    def is_deleted(self, array: HostArray) -> bool:
        return self.recorder.is_deleted(array)

    def deleted(self, array: HostArray) -> None:
        self.recorder.deleted(array)
        self.dropped(array)

    def dropped(self, array: HostArray) -> None:
        self.recorder.dropped(array)
        self.arrays.dropped(array.origin)

    def _in_turn(self, call: Called, thread: int) -> int:
        """The thread that a call counts for: threads of a pool take turns at one training."""
        made = {item.origin.program for item in call.operands if item.origin is not None}
        for number in made if call.jitted else ():
            if number < 0 or self.periods.calls[number].thread == thread:
                continue
            one = self.recorder.calls[number]
            same = (one.name, one.place) == (call.name, call.place)
            if same and self._taken.gradients(call):
                return self.periods.calls[number].thread
        return thread

    def _note(self, call: Called, given: tuple[Given, ...], thread: int) -> None:
        kind = (
            call.name, call.file, call.line, call.donated, told_apart(call.parameters),
            tuple((item.aval.shape, str(item.aval.dtype)) for item in call.operands),
        )  # fmt: skip
        key = self._kinds.setdefault(kind, len(self._kinds))
        if is_folding():
            self.periods.leave_out()
            return
        if call.jitted:
            self.jitted[call.name, call.place] += 1
        gradients = self._taken.gradients(call)
        made = Made(key, call.name, call.jitted, given, thread, gradients, call.place)
        period = self.periods.add(made)
        if self._choice.alone:
            self._seen += call.jitted and self._choice.names(call.name, call.place)
            if self._seen == self._choice.number and self._due is None:
                self._due = self.periods.single(self._choice.names)
        elif period is not None and not self._lists_steps and self._is_wanted(period):
            self._due = self.held.taken(period) if self._choice.name is None else period

    def _is_wanted(self, period: Period) -> bool:
        if period.count < self._choice.number:
            return False
        if self._choice.name is not None:
            return self._choice.names(period.name, period.place)
        sizes = period.sizes  # from data alone a loader makes batches
        given = sizes.renewed + sizes.unchanged + sizes.same
        if period.thread and not period.trains:  # one of those that prepare data
            return False
        most = _OFTEN if sizes.renewed else _EVALUATION
        found = period.certain or period.often
        return found or (period.count >= most and given > 0)
