"""Running a step's host code to see which programs it calls.

The idea: the step is called with arrays that have no values
(``internals/host_evaluation.py``).  Each jitted function that it calls, and each op outside of one,
becomes a ``Called`` with everything that JAX would compile it with: donation, shardings, static
arguments and compiler options are those of a real call, also if a library wraps the jit.  Reading a
value follows a policy (``values.py``).

    recording = record(step, args, kwargs, jax.tree_util.keystr)
    [call.name for call in recording.calls]        # ["gradient", "momentum"]
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from flint.capturing.user_frames import named_lines, running_frame, running_line, short_path
from flint.errors import FlintError
from flint.frontends.jax.host import values
from flint.frontends.jax.host.calls import Called, Operand, ReadValue, Recording
from flint.frontends.jax.internals.avals import aval_of
from flint.frontends.jax.internals.compiled_ahead import not_stated
from flint.frontends.jax.internals.finite import said
from flint.frontends.jax.internals.host import Host
from flint.frontends.jax.internals.host_arrays import HostArray, path
from flint.frontends.jax.internals.host_evaluation import recorded
from flint.frontends.jax.internals.traced_calls import jitted_sources
from flint.launching.unknown import Unknown
from flint.passes.in_sequence import Origin

#: The modules of JAX's own jitted functions, which are ops for a user.
_JAX = os.path.dirname(jax.__file__) + os.sep
#: Except what users jit: functions that JAX puts around their code (to map it over devices, the
#: second in jax 0.8; to check it; to call an exported program), and its libraries of examples.
_OF_USERS = (
    f"{os.sep}pmap.py:", "call_wrapped at ", f"{os.sep}checkify.py:", f"{os.sep}_export.py:",
    f"{os.sep}example_libraries{os.sep}",
)  # fmt: skip
OF_CONSTANTS = (
    "ops on constants outside of the step's jitted functions: computed in the capture and left "
    "out; in a run each is a small program"
)
#: A step that calls more programs than this has a loop that the capture does not see.
MAX_CALLS = 10_000


class DeletedError(FlintError, RuntimeError):
    """An array is used that was donated or deleted; JAX's error is a ``RuntimeError``."""


class NothingJittedError(Exception):
    """A function failed, and there is no sign that it calls jitted functions."""


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name_of: Callable[[Any], str],
) -> Recording:
    """The host side of a function's call.

    Args:
        function: a step.
        args, kwargs: its arguments; arrays are abstract.
        name_of: the name of a leaf of both by its keys, as of ``jax.tree_util``.

    Raises:
        NothingJittedError: it fails before it has called any jitted function.
        FlintError: it reads a value that cannot be assumed, or an array that it has donated.
    """
    host = Recorder()
    leaves, tree = jax.tree_util.tree_flatten_with_path((args, kwargs))
    given: list[Any] = []
    names: list[str] = []
    arguments: list[Any] = []
    for keys, leaf in leaves:
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            origin = Origin(-1, len(arguments))
            given.append(HostArray(host, origin, aval_of(leaf), getattr(leaf, "sharding", None)))
            names.append(name_of(keys))
            arguments.append(leaf)
        else:
            given.append(leaf)
    given_args, given_kwargs = jax.tree_util.tree_unflatten(tree, given)
    try:
        with recorded(host):
            result = function(*given_args, **given_kwargs)
    except Exception as error:
        if host.ahead or any(call.jitted for call in host.calls):
            raise
        raise NothingJittedError from error
    finally:
        host.ended = True
    outputs = [leaf for leaf in jax.tree_util.tree_leaves(result) if isinstance(leaf, HostArray)]
    return Recording(
        tuple(host.calls),
        tuple(names),
        tuple(arguments),
        tuple(item.origin for item in outputs),
        host.warnings,
    )


def calls_jitted(traced: Any) -> bool:
    """Whether a function that was traced whole calls jitted functions, not JAX's own.

    Args:
        traced: of ``jax.jit(...).trace(...)`` or a library's around it.
    """
    return any(is_jitted(source) for source in jitted_sources(traced))


def is_jitted(source: str) -> bool:
    """Whether a jitted function is a user's or a library's, not one of JAX's own.

    Args:
        source: "function at file:line" as JAX writes it; "" for an op.
    """
    return bool(source) and (
        f" at {_JAX}" not in source or any(part in source for part in _OF_USERS)
    )


def _own_line(source: str) -> tuple[str, int]:
    """File and line in "function at file:line"; ("", 0) if they are not known."""
    file, _, line = source.rpartition(" at ")[2].rpartition(":")
    return (file, int(line)) if file and line.isdigit() else ("", 0)


def _is_of_one_device(mesh: Any) -> bool:
    """Whether a mesh in context is a single device, on which a program takes parts of arrays."""
    return not mesh.empty and mesh.size == 1


class Recorder:
    """Notes calls and reads in the order in which they come.

    Args:
        most: calls.
        host: the host of the arrays that calls return; None: the recorder.
        unknown: the values given for unknown ones; None: the usual ones.
    """

    def __init__(
        self, most: int = MAX_CALLS, host: Host | None = None, unknown: Unknown | None = None
    ) -> None:
        self._most, self._host = most, host or self
        self.unknown = unknown or Unknown()
        self.calls: list[Called] = []
        self._remarks: dict[str, Counter[str]] = defaultdict(Counter)
        self.ended = False
        self.ahead = False  # whether it has lowered anything to call it later
        self._deleted: dict[Origin, str] = {}  # how, and where
        self._finite: dict[Origin, bool] = {}  # what results say if all numbers are finite
        self._read: set[Origin] = set()

    def call(
        self,
        name: str,
        parameters: Mapping[str, Any],
        operands: Sequence[Any],
        source: str,
        compiled_for: Sequence[Any] = (),
        known: Sequence[Any] | None = None,
    ) -> list[Any]:
        file, line = running_line()
        if not file:  # a pool's thread that calls nothing but the function
            file, line = _own_line(source)
        if len(self.calls) == self._most:
            raise FlintError(
                f"{short_path(file)}:{line}: more than {self._most:,} programs are called: jit "
                "what the step computes, or capture one iteration of a loop on the host"
            )
        given = []
        alone = _is_of_one_device(parameters["ctx_mesh"])
        for item in operands:
            ours = isinstance(item, HostArray)
            if ours:
                self._check_held(item)
            given.append(Operand(aval_of(item), item.source if ours and not alone else None))
        jitted = is_jitted(source)
        call = Called(
            name, parameters, tuple(given), jitted, path(), file, line, tuple(compiled_for)
        )
        number = len(self.calls)
        self.calls.append(call)
        how = f"donated to {name} ({short_path(file)}:{line})"
        self._deleted.update(dict.fromkeys(call.deleted, how))
        avals = parameters["jaxpr"].out_avals
        results = [HostArray(self._host, Origin(number, n), aval) for n, aval in enumerate(avals)]
        if any(aval.dtype == bool for aval in avals):
            answered = [item.origin and self._finite.get(item.origin) for item in given]
            answers = said(parameters["jaxpr"], answered)
            for result, answer in zip(results, answers, strict=True):
                if answer is not None and result.dtype == bool:
                    self._finite[result.origin] = answer
        return results

    def waits(self, array: HostArray) -> tuple[str, int]:
        """Note that the host waits for an array; returns the user's line."""
        file, line = running_line()
        self._check_held(array)
        if array.origin.program >= 0 and array.origin not in self._read:
            self._read.add(array.origin)  # JAX keeps fetched values
            self.calls[-1].reads.append(ReadValue(array.origin, file, line))
        return file, line

    def read(self, array: HostArray, kind: str) -> Any:
        file, line = self.waits(array)
        where = f"{short_path(file)}:{line}" if file else ""
        finite, frame = self._finite.get(array.origin), running_frame(sys._getframe(1))
        found, text = values.assumed(array.aval, kind, where, finite, self.unknown, frame)
        if text:
            self.remark(text, where)
        return found

    @property
    def warnings(self) -> dict[str, int]:
        """The remarks, text -> count."""
        return {
            text.format(named_lines(places)): places.total()
            for text, places in self._remarks.items()
        }

    def remark(self, text: str, place: str = "") -> None:
        """Note an assumption.

        Args:
            text: text of the warning, with {} in the place of its lines.
            place: the line.
        """
        self._remarks[text][place] += 1

    def lowers(self) -> None:
        self.ahead = True

    def computed(self) -> None:
        if not self.ended:
            self.remark(OF_CONSTANTS)

    def sharding(self, array: HostArray) -> Any:
        raise AttributeError("the sharding is not known before the program is compiled")

    def results(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> Sequence[Any]:
        raise NotImplementedError(not_stated("output_shardings"))

    def module(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> bytes:
        raise NotImplementedError(
            "the step inspects an executable, but a capture compiles only after the step has run"
        )

    def value(self, array: HostArray) -> Any:
        return None

    def keeps(self, source: str) -> bool:
        return False

    def spans(self, program: Any) -> bool:
        return False

    def put(self, value: Any, sharding: Any) -> Any:
        return None

    def is_deleted(self, array: HostArray) -> bool:
        return array.origin in self._deleted

    def deleted(self, array: HostArray) -> None:
        file, line = running_line()
        self._deleted.setdefault(array.origin, f"deleted at {short_path(file)}:{line}")
        self.dropped(array)

    def dropped(self, array: HostArray) -> None:
        if self.calls and not self.ended and array.origin.program >= 0:
            self.calls[-1].gone.add(array.origin)

    def _check_held(self, array: HostArray) -> None:
        how = self._deleted.get(array.origin)
        if how is not None:
            file, line = running_line()
            raise DeletedError(
                f"{short_path(file)}:{line}: uses an array that was {how}: a run stops here with "
                "'Array has been deleted'"
            )
