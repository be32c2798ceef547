"""Capturing model code: a training step in, a workload out.

The idea: ``@flint.capture`` keeps the user's function unchanged and adds two methods to it.  A
``Capture`` describes what to capture (function, mesh, source of the arguments); the framework's
frontend, found through the registry, does it.

    @flint.capture(mesh=(64, 8), axes=("data", "model"), setup=abstract_state)
    def train_step(state, batch): ...

    workload = train_step.capture()
    workload = train_step.at(mesh=(2048, 16)).capture()
    train_step(state, batch)                             # still the ordinary function
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flint import registry
from flint.capturing import targets
from flint.capturing.frameworks import uses
from flint.capturing.request import (
    Arguments,
    CaptureOptions,
    Request,
    capture_options,
    check_takes_mesh,
)
from flint.errors import FlintError, UsageError
from flint.host.readable import counted
from flint.host.stages import stage
from flint.mesh.mesh import MeshLike, as_mesh, has_names
from flint.workload.programs import Level
from flint.workload.workload import Workload


class Capture:
    """A training step that can be captured; otherwise the user's function.

    Calls and attributes go to the function.  A decorated function is pickled by name, like the
    function itself.

    Attributes:
        __wrapped__: the user's function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shape: tuple[int, ...],
        axes: tuple[str, ...] | None,
        setup: Callable[..., Any] | None,
        framework: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        self.__wrapped__ = function
        self._flint: tuple[Any, ...] = (shape, axes, setup, framework, dict(settings))
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(function, name):
                setattr(self, name, getattr(function, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "_flint"):  # not set yet: while being copied or unpickled
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """On an instance, a decorated method is the user's method; on the class, it is the
        capture.
        """
        return self if instance is None else functools.partial(self.__wrapped__, instance)

    def __repr__(self) -> str:
        return f"<flint.capture of {self.__wrapped__!r} on {self._flint[0]}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = str(getattr(self, "__qualname__", ""))
        found: Any = sys.modules.get(str(getattr(self, "__module__", "")))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name
        if isinstance(found, Capture) and found.__wrapped__ is self.__wrapped__:
            return _variant, (found, *self._flint)  # the function's own name leads to `found`
        return Capture, (self.__wrapped__, *self._flint)

    def at(self, mesh: MeshLike, axes: Sequence[str] | None = None) -> Capture:
        """The same step on another mesh.

        Args:
            mesh: devices per axis.
            axes: names of the axes; default: as before, if the number of axes is the same.
        """
        shape, names = _grid(mesh, axes)
        _, before, setup, framework, settings = self._flint
        if names is None and before is not None:
            if len(before) != len(shape):
                raise UsageError(
                    f"mesh {shape}: the step's axes are {before}; name the axes of this mesh too "
                    "(--axes, or axes=)"
                )
            names = before
        return Capture(self.__wrapped__, shape, names, setup, framework, settings)

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices per mesh axis."""
        shape: tuple[int, ...] = self._flint[0]
        return shape

    def with_setup(self, setup: Callable[..., Any]) -> Capture:
        """The same step with other arguments: ``setup(mesh)`` makes them."""
        shape, axes, _, framework, settings = self._flint
        return Capture(self.__wrapped__, shape, axes, setup, framework, settings)

    def of(self, function: Callable[..., Any]) -> Capture:
        """The same request for another form of the function, such as a jitted one."""
        return Capture(function, *self._flint)

    def capture(
        self,
        *args: Any,
        level: str = "partitioned",
        target: str | None = None,
        options: CaptureOptions | Mapping[str, Any] | None = None,
    ) -> Workload:
        """Capture the step.

        Args:
            args: the step's arguments, real or abstract; without any, ``setup(mesh)`` makes them.
            level: "partitioned" or, if the framework has them, "logical" and "optimized"; "auto":
                optimized if the compiler for the target is installed, else partitioned.
            target: what the compiler compiles for (``flint targets``); only for the optimized level
                and auto, whose default is h100.
            options: options of ``flint.convert`` (``{"trip_count": 10}``); ``time_limit``
                (seconds), ``memory_limit`` (bytes) of the compiler's process; at the optimized
                level ``compiler_options``, XLA's flags by name; for PyTorch ``audit``, how many
                ranks chosen at random are compared with their programs.

        Raises:
            UsageError: a mesh that does not fit, an unknown level, target or option, a target whose
                compiler is not installed, or no arguments.
            FlintError: the step cannot be traced, partitioned or analysed; the text says where.
        """
        shape, axes, setup, framework, settings = self._flint
        arguments: Arguments | None = (args, {}) if args else None
        setup = None if args else setup
        check_takes_mesh(setup)
        name = framework or registry.framework_of(arguments) or _by_code(setup, self.__wrapped__)
        if level == targets.AUTO:
            return self._automatic(args, name, target or targets.USUAL, options)
        wanted = _level(level, name)
        chosen = capture_options(options)
        request = Request(
            function=self.__wrapped__,
            shape=shape,
            axes=axes,
            setup=setup,
            arguments=arguments,
            settings=settings,
            level=wanted,
            target=_target(wanted, target, chosen),
            options=chosen,
        )
        if request.arguments is None and setup is None:
            # A step without parameters needs no arguments; for others, the frontend reports that.
            request = replace(request, arguments=((), {}))
        stage(f"capturing {request.name} for {counted(math.prod(shape), 'device')}")
        frontend: Callable[[Request], Workload] = registry.frontend(name)
        return frontend(request)

    def _automatic(
        self,
        args: tuple[Any, ...],
        framework: str,
        target: str,
        options: CaptureOptions | Mapping[str, Any] | None,
    ) -> Workload:
        """The step at the optimized level if possible, else at the partitioned one."""
        why = targets.obstacle(target, math.prod(self.shape), framework)
        if not why:
            try:
                return self.capture(*args, level="optimized", target=target, options=options)
            except FlintError as error:
                why = str(error)
        others = replace(capture_options(options), compiler_options={})
        workload = self.capture(*args, options=others)
        text = targets.NOT_COMPILED.format(why)
        return replace(workload, warnings=workload.warnings | {text: 1})


def _by_code(*functions: Callable[..., Any] | None) -> str:
    """The framework that setup or step is written in, whichever shows it first."""
    for function in functions:
        found = uses(function, registry.FRAMEWORKS)
        if len(found) == 1:
            return found.pop()
    return registry.DEFAULT_FRAMEWORK


def _variant(capture: Capture, *settings: Any) -> Capture:
    """The same function with other settings, when it is unpickled."""
    return Capture(capture.__wrapped__, *settings)


def capture(
    function: Callable[..., Any] | None = None,
    /,
    *,
    mesh: MeshLike,
    axes: Sequence[str] | None = None,
    setup: Callable[..., Any] | None = None,
    framework: str | None = None,
    **settings: Any,
) -> Any:
    """Make a training step capturable: ``@flint.capture(mesh=(64, 8), axes=("data", "model"))``.

    Args:
        function: the step; left out when used as a decorator.
        mesh: devices per mesh axis: ``(64, 8)``, ``{"data": 64, "model": 8}``, or a mesh of JAX.
        axes: names of the axes; default: those in ``mesh``, else in the arguments' shardings.
        setup: called with the mesh, returns the step's positional arguments or ``(args, kwargs)``.
            JAX: gets a ``jax.sharding.AbstractMesh``; arguments may be abstract.
        framework: the frontend's name; default: by the type of the arguments or of setup's result.
        settings: the framework's own settings.  JAX: keywords of ``jax.jit`` for a function that is
            not jitted yet (``in_shardings``, ``out_shardings``, ``donate_argnums``,
            ``static_argnums`` ...; PartitionSpecs allowed), and ``axis_types``.  PyTorch:
            ``local_world_size``, ranks per host (default 8), and ``routing``, how a mixture's
            router distributes tokens: "balanced" (the default), "zipf:1.2" or the experts' relative
            loads (for all frameworks also an option of the capture).

    Returns:
        A ``Capture``, or a decorator that makes one.

    Raises:
        UsageError: mesh and axes do not fit each other.
    """
    shape, names = _grid(mesh, axes)

    def decorate(step: Callable[..., Any]) -> Capture:
        if not callable(step):
            raise UsageError(f"flint.capture decorates a function, not {type(step).__name__}")
        return Capture(step, shape, names, setup, framework, settings)

    return decorate if function is None else decorate(function)


def _grid(
    mesh: MeshLike, axes: Sequence[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
    if isinstance(axes, str):
        axes = tuple(part.strip() for part in axes.split(","))
    grid = as_mesh(mesh, axes)
    return grid.shape, grid.axes if axes or has_names(mesh) else None


def _level(level: str, framework: str) -> Level:
    there_are = registry.LEVELS.get(framework, tuple(Level))
    if level not in there_are:
        of = f" of {framework}" if framework in registry.LEVELS else ""
        choices = ", ".join((*there_are, targets.AUTO))
        raise UsageError(f"unknown level {level!r}{of}; choose from: {choices}")
    return Level(level)


def _target(level: Level, target: str | None, options: CaptureOptions) -> str | None:
    """The full name of the target, if the level has one."""
    if level is Level.OPTIMIZED:
        if target is None:
            raise UsageError(targets.NO_TARGET.format(targets.listed()))
        return targets.named(target).name
    if target is not None:
        raise UsageError(
            f"target {target!r}: the {level} level is the same for every target; leave the "
            "target out, or use the optimized level"
        )
    if options.compiler_options:
        raise UsageError(
            f"compiler options ({', '.join(options.compiler_options)}) are for the optimized "
            f"level; the {level} level runs only the partitioner"
        )
    return None
