"""A JAX step as one global StableHLO program, without devices.

The idea: ``jit(step).trace(abstract arguments).lower(...)`` with everything on an abstract mesh.
A function that is jitted already is taken as it is, with its donation, static arguments and
shardings; any other is jitted with the decorator's keywords.

    lowered = lower(request)
    lowered.bytecode, lowered.mesh, lowered.inputs_free
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax

from flint import registry
from flint.capturing.decorator import Arguments, Request
from flint.capturing.user_frames import one_line
from flint.errors import UsageError
from flint.frontends.jax.failures import OTHER_MESH, explained
from flint.frontends.jax.internals.abstract_devices import abstract_devices
from flint.frontends.jax.internals.platform_forms import LEFT_OUT, lower_for
from flint.frontends.jax.internals.tracing import mesh_context
from flint.frontends.jax.lower.arguments import is_array, mesh_of, on_mesh
from flint.frontends.jax.lower.mlir_interface import Interface, interface_of
from flint.frontends.jax.lower.own_meshes import in_order, of_devices
from flint.frontends.jax.lower.shard_map_names import name_bodies
from flint.frontends.jax.platforms import PLATFORMS, on_first
from flint.mesh.mesh import Mesh
from flint.workload.programs import Level

NO_MESH = (
    "traced without a mesh in context: with one, a sharding annotation of the step does not fit "
    "its value"
)
#: What a module says of values in the host's memory.
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
        with context, abstract_devices(asked, capability):
            jitted, given, named = _jitted(request.function, args, kwargs, settings)
            traced = jitted.trace(*given, **named)
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


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's positional parameters; empty where it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(item.name for item in parameters if item.kind in positional)


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
    """A step that takes arguments, and nobody who gives any."""
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


def _jitted(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], settings: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function as something with ``trace``, and the arguments for it."""
    if hasattr(function, "trace") and hasattr(function, "lower"):
        if settings:
            raise UsageError(
                f"{', '.join(settings)}: the function is jitted already; give them to its jit"
            )
        return function, args, kwargs
    if hasattr(function, "lower") and hasattr(function, "__wrapped__"):
        if _is_pmap(function):
            raise UsageError(
                "jax.pmap maps over the devices of one process, not over a mesh: use "
                "jax.shard_map over the mesh's axis"
            )
        # A jit that cannot trace on an abstract mesh (equinox's) leaves its function to ours.
        names = ["donate_first"] + ["donate_rest"] * (len(args) - 1)
        donated = tuple(n for n, name in enumerate(names) if getattr(function, name, False))
        settings = {"donate_argnums": donated, **settings}
        function = inspect.unwrap(function)
    jit = _jit_of_mutable(args, kwargs)
    if jit is not None:
        return jit(function, **settings), args, kwargs
    static = any(name.startswith("static_arg") for name in settings)
    if not static and not all(map(is_array, jax.tree_util.tree_leaves((args, kwargs)))):
        function, args, kwargs = _without_constants(function, args, kwargs)
    try:
        return jax.jit(function, **settings), args, kwargs
    except TypeError as error:
        raise UsageError(f"settings of flint.capture: {one_line(error)}") from error


def _is_pmap(function: Any) -> bool:
    """Whether it is ``jax.pmap``'s, or equinox's of it, whose modules are named for it."""
    modules = type(function).__module__, str(getattr(function.lower, "__module__", ""))
    return any(name.startswith(("jax.", "equinox.")) and "pmap" in name for name in modules)


def _jit_of_mutable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``flax.nnx.jit`` for a step whose arguments are nnx objects, else None.

    Such a step updates its arguments in place; under ``jax.jit`` the updates would be lost, and
    with them everything that only they need.
    """
    for argument in (*args, *kwargs.values()):
        if any(cls.__module__.startswith("flax.nnx") for cls in type(argument).__mro__):
            return importlib.import_module("flax.nnx").jit
    return None


def _without_constants(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function of the arrays in the arguments alone; other leaves are put back inside."""
    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    constants = [None if is_array(leaf) else leaf for leaf in leaves]

    def step(*arrays: Any, **named: Any) -> Any:
        found = jax.tree_util.tree_leaves((arrays, named))
        arriving = iter(found)
        whole = [next(arriving) if item is None else item for item in constants]
        inner_args, inner_kwargs = jax.tree_util.tree_unflatten(tree, whole)
        result = function(*inner_args, **inner_kwargs)
        return jax.tree_util.tree_map(lambda leaf: leaf if is_array(leaf) else None, result)

    step.__name__ = str(getattr(function, "__name__", "step"))
    with contextlib.suppress(TypeError, ValueError):  # where JAX takes the inputs' names from
        step.__dict__["__signature__"] = inspect.signature(function)
    arrays = [leaf if is_array(leaf) else None for leaf in leaves]
    args, kwargs = jax.tree_util.tree_unflatten(tree, arrays)
    return step, args, kwargs


def _lowered(traced: Any, platforms: Sequence[str]) -> tuple[Any, dict[str, int]]:
    (lowered, warnings), platform = on_first(
        platforms, lambda platform: lower_for(traced, platform)
    )
    if platform != platforms[0]:
        warnings[f"lowered for {platform}: an op of the step has no CPU form"] = 1
    return lowered, warnings
