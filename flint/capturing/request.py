"""The request to a frontend: a step, a mesh, the source of the arguments, and options."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flint.capturing.converting import walk_options
from flint.capturing.user_frames import short_path
from flint.errors import UsageError
from flint.stablehlo.options import WalkOptions
from flint.workload.programs import Level

#: Seconds and bytes that a compiler's child process may take.
TIME_LIMIT = 1800.0
MEMORY_LIMIT = 32 * 2**30

_WALK_WORDS = (
    "trip_count", "branch", "reduce_scatter", "drop_barriers", "strict", "loop_lookahead", "fuse",
    "routing",
)  # fmt: skip

#: Positional and keyword arguments of a step.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """Options of one capture.

    Attributes:
        walk: options of the walk from the program to the graph.
        time_limit: seconds that the compiler's process may take.
        memory_limit: bytes that it may occupy.
        compiler_options: the compiler's own (XLA's flags), name -> value; optimized level only.
        audit: number of ranks, chosen at random, that are recorded and compared with their class;
            None: as many as cost less than a fifth of the capture. PyTorch only: in JAX, all ranks
            run one program.
        read_seconds: for a step of several programs in sequence: time from a program's end until
            the host, which reads a value of it, starts the next one.
    """

    walk: WalkOptions = field(default_factory=WalkOptions)
    time_limit: float = TIME_LIMIT
    memory_limit: int = MEMORY_LIMIT
    compiler_options: Mapping[str, Any] = field(default_factory=dict)
    audit: int | None = None
    read_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request to a frontend.

    Attributes:
        function: the user's step.
        shape: devices per mesh axis.
        axes: names of the axes; None: those in the arguments' shardings.
        setup: makes the arguments for a mesh; None when ``arguments`` are given.
        arguments: the step's arguments; None when ``setup`` makes them.
        settings: the decorator's further keywords, which are specific to the framework.
        level: how far to compile.
        target: what to compile for; None at levels without a target.
        options: limits, and options of the walk.
    """

    function: Callable[..., Any]
    shape: tuple[int, ...]
    axes: tuple[str, ...] | None
    setup: Callable[..., Any] | None
    arguments: Arguments | None
    settings: Mapping[str, Any]
    level: Level
    target: str | None
    options: CaptureOptions

    @property
    def name(self) -> str:
        """The step's name in messages."""
        return str(getattr(self.function, "__name__", None) or type(self.function).__name__)


def capture_options(options: CaptureOptions | Mapping[str, Any] | None) -> CaptureOptions:
    """Options with the names of ``Capture.capture``.

    Raises:
        UsageError: an unknown option, a limit that is not a positive number, or a negative audit.
    """
    if isinstance(options, CaptureOptions):
        return options
    given = dict(options or {})
    limits = {key: given.pop(key) for key in ("time_limit", "memory_limit") if key in given}
    compiler = dict(given.pop("compiler_options", None) or {})
    read_seconds = given.pop("read_seconds", 0.0)
    if not isinstance(read_seconds, int | float) or not 0 <= read_seconds < math.inf:
        raise UsageError(f"read_seconds={read_seconds!r}: expected a number of seconds, 0 or more")
    for key, value in limits.items():
        if not isinstance(value, int | float) or value <= 0:
            raise UsageError(f"{key}={value!r}: expected a positive number")
    audit = given.pop("audit", None)
    if audit is not None and (not isinstance(audit, int) or audit < 0):
        raise UsageError(f"audit={audit!r}: expected a number of ranks, 0 for none")
    try:
        return CaptureOptions(
            walk=walk_options(**given),
            compiler_options=compiler,
            audit=audit,
            read_seconds=float(read_seconds),
            **limits,
        )
    except TypeError:
        others = ("time_limit", "memory_limit", "compiler_options", "audit", "read_seconds")
        words = [*_WALK_WORDS, *others]
        unknown = ", ".join(sorted(set(given) - set(words)))
        raise UsageError(f"unknown option {unknown}; choose from: {', '.join(words)}") from None


def check_takes_mesh(setup: Callable[..., Any] | None) -> None:
    """Refuse a setup that cannot be called with a mesh alone.

    Raises:
        UsageError: it needs more, or less.
    """
    if setup is None:
        return
    try:
        inspect.signature(setup).bind(None)
    except ValueError:  # some of C's have no signature
        return
    except TypeError as error:
        code = getattr(inspect.unwrap(setup), "__code__", None)
        where = f"{short_path(code.co_filename)}:{code.co_firstlineno}: " if code else ""
        name = getattr(setup, "__name__", "setup")
        raise UsageError(f"{where}{name} is called with the mesh alone: {error}") from error
