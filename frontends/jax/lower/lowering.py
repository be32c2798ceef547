"""A JAX step as one global StableHLO program, without devices.

The idea: ``jit(step).trace(abstract arguments).lower(...)`` with everything on an abstract mesh.
A function that is jitted already is taken as it is, with its donation, static arguments and
shardings; any other is jitted with the decorator's keywords.

    lowered = lower(request)
    lowered.bytecode, lowered.mesh, lowered.inputs_free
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax

from flint import registry
from flint.capturing.request import Arguments, Request
from flint.capturing.user_frames import one_line
from flint.errors import UsageError
from flint.frontends.jax.failures import OTHER_MESH, explained
from flint.frontends.jax.internals.abstract_devices import abstract_devices
from flint.frontends.jax.internals.platform_forms import LEFT_OUT, lower_for
from flint.frontends.jax.internals.tracing import mesh_context
from flint.frontends.jax.lower.arguments import mesh_of, on_mesh
from flint.frontends.jax.lower.jitting import jitted, parameters_of
from flint.frontends.jax.lower.mlir_interface import Interface, interface_of
from flint.frontends.jax.lower.module_scopes import named_modules
from flint.frontends.jax.lower.own_meshes import in_order, of_devices
from flint.frontends.jax.lower.shard_map_names import name_bodies
from flint.frontends.jax.platforms import PLATFORMS, on_first
from flint.mesh.mesh import Mesh
from flint.workload.programs import Level

NO_MESH = (
    "traced without a mesh in context: with one, a sharding annotation of the step does not fit "
    "its value"
)
#: Words in a module that has values in the host's memory.
_IN_HOST_MEMORY = (b"annotate_device_placement", b"pinned_host")
TIMED_AS_ON_DEVICE = (
    "values in host memory: peak memory counts them on the device, and copies between host and "
    "device are timed as copies within the device"
)

#: Compute capability that GPUs are taken to have where no target is named: Hopper's.
ANY_GPU = (9, 0)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A global program.

    Attributes:
        bytecode: the module, MLIR bytecode.
        mesh: the mesh that it is for.
        interface: names, donation and shardings of its inputs and outputs.
        shardy: whether it is annotated for Shardy (else GSPMD).
        warnings: text -> count.
    """

    bytecode: bytes
    mesh: Mesh
    interface: Interface
    shardy: bool
    warnings: dict[str, int]


class OtherFrameworkError(Exception):
    """The arguments that setup made are another framework's; ``args[0]`` is its name."""


def lower(
    request: Request,
    platforms: Sequence[str] = PLATFORMS,
    capability: tuple[int, int] = ANY_GPU,
) -> Lowered:
    """Trace and lower a step for the request's mesh.

    Args:
        request: the step.
        platforms: JAX's names of those to lower for; the first that every op has a form for.
        capability: compute capability of the GPUs, should it be GPUs.

    Raises:
        UsageError: arguments, mesh and shardings that do not fit each other.
        FlintError: the step cannot be traced; the text has the user's source line.
        OtherFrameworkError: the step is not JAX's.
    """
    settings = dict(request.settings)
    axis_types = settings.pop("axis_types", None)
    arguments = request.arguments
    if arguments is None:
        arguments = _from_setup(request, axis_types)
    elif arguments == ((), {}):
        _refuse_missing(request)
    mesh = mesh_of(arguments, request.shape, request.axes, axis_types)
    args, kwargs = on_mesh(arguments, mesh, parameters_of(request.function))
    asked = None if request.level is Level.LOGICAL else mesh

    def attempt(
        context: AbstractContextManager[None], check: Callable[[Any], None] = lambda traced: None
    ) -> tuple[Any, dict[str, int]]:
        with context, abstract_devices(asked, capability), named_modules():
            step, given, named = jitted(request.function, args, kwargs, settings)
            traced = step.trace(*given, **named)
            check(traced)
            return _lowered(traced, platforms)

    try:
        try:
            lowered, warnings = attempt(mesh_context(mesh))
        except ValueError as error:
            if OTHER_MESH in str(error):
                lowered, warnings = attempt(mesh_context(of_devices(mesh)), in_order)
            elif "with_sharding_constraint" not in str(error):
                raise
            else:
                lowered, warnings = _without_context(attempt, error)
    except Exception as error:
        raise explained(error, request.name) from error
    module = lowered.compiler_ir("stablehlo")
    interface = interface_of(module)
    if not interface.sharded and mesh.size > 1:
        warnings["nothing is sharded: every rank does the whole step"] = 1
    bytecode = _bytecode(module)
    if any(word in bytecode for word in _IN_HOST_MEMORY):
        compiled = request.level is Level.OPTIMIZED
        warnings[TIMED_AS_ON_DEVICE if compiled else LEFT_OUT] = 1
    if b"manual_computation" in bytecode:  # in its table of op names: much faster than a walk
        name_bodies(module)
        bytecode = _bytecode(module)
    return Lowered(
        bytecode,
        Mesh(tuple(mesh.axis_sizes), tuple(map(str, mesh.axis_names))),
        interface,
        bool(jax.config.values["jax_use_shardy_partitioner"]),
        warnings,
    )


def _without_context(
    attempt: Callable[[AbstractContextManager[None]], tuple[Any, dict[str, int]]],
    error: ValueError,
) -> tuple[Any, dict[str, int]]:
    """The step with annotations that do not fit: constraints only with a mesh in context (flax)."""
    try:
        lowered, warnings = attempt(contextlib.nullcontext())
    except Exception:  # it needs the mesh, so the first error is the one to mend
        raise error from None
    return lowered, warnings | {NO_MESH: 1}


def _bytecode(module: Any) -> bytes:
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def _from_setup(request: Request, axis_types: Any) -> Arguments:
    """What the user's setup makes for the mesh, as (args, kwargs)."""
    setup = request.setup
    assert setup is not None
    mesh = mesh_of((), request.shape, request.axes, axis_types)
    name = str(getattr(setup, "__name__", "setup"))
    try:
        try:
            made = setup(mesh)
        except (RuntimeError, TypeError, ValueError) as error:
            if "context" not in str(error):
                raise
            # Abstract initialisation with bare PartitionSpecs wants its mesh in context.  Not
            # always: with it, nothing can be computed.
            with mesh_context(mesh):
                made = setup(mesh)
    except Exception as error:
        if request.axes is None and "not found in mesh" in str(error):
            raise UsageError(f"{name}: {one_line(error)}: name the axes (--axes)") from error
        raise explained(error, name, "make arguments") from error
    other = registry.framework_of(made)
    if other not in (None, "jax"):
        raise OtherFrameworkError(other)
    if isinstance(made, tuple) and len(made) == 2 and _is_pair(made):
        return tuple(made[0]), dict(made[1])
    if isinstance(made, tuple | list) and not hasattr(made, "_fields"):
        return tuple(made), {}
    return (made,), {}


def _refuse_missing(request: Request) -> None:
    """Refuse a step that takes arguments where there are none."""
    try:
        inspect.signature(request.function).bind()
    except TypeError as error:
        raise UsageError(
            f"{request.name} takes arguments ({error}): pass them to capture(), or name a "
            "function that makes them for a mesh: setup=..., --setup NAME"
        ) from error
    except ValueError:
        return


def _is_pair(made: tuple[Any, Any]) -> bool:
    """Whether a setup's result is ``(args, kwargs)`` and not two arguments."""
    args, kwargs = made
    return (
        type(args) is tuple
        and type(kwargs) is dict
        and all(isinstance(key, str) and key.isidentifier() for key in kwargs)
    )


def _lowered(traced: Any, platforms: Sequence[str]) -> tuple[Any, dict[str, int]]:
    (lowered, warnings), platform = on_first(
        platforms, lambda platform: lower_for(traced, platform)
    )
    if platform != platforms[0]:
        warnings[f"lowered for {platform}: an op of the step has no CPU form"] = 1
    return lowered, warnings
