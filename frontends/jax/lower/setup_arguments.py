"""The arguments of a step: given by the caller, or made by the user's setup for the mesh.

args, kwargs = arguments_of(request, axis_types=None)
"""

from __future__ import annotations

import inspect
from typing import Any

from flint import registry
from flint.capturing.request import Arguments, Request
from flint.capturing.user_frames import one_line
from flint.errors import UsageError
from flint.frontends.jax.failures import explained
from flint.frontends.jax.internals.tracing import mesh_context
from flint.frontends.jax.lower.arguments import mesh_of


class OtherFrameworkError(Exception):
    """The arguments from setup belong to another framework; ``args[0]`` is its name."""


def arguments_of(request: Request, axis_types: Any) -> Arguments:
    """Positional and keyword arguments of the request's step.

    Args:
        request: the step.
        axis_types: types of the mesh's axes, if the user gave them.

    Raises:
        UsageError: there are none, and the step takes some.
        FlintError: setup fails; the text has the user's line.
        OtherFrameworkError: they are not JAX's.
    """
    arguments = request.arguments
    if arguments is None:
        return _from_setup(request, axis_types)
    if arguments == ((), {}):
        _refuse_missing(request)
    return arguments


def _from_setup(request: Request, axis_types: Any) -> Arguments:
    """The result of the user's setup for the mesh, as (args, kwargs)."""
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
            # Abstract initialisation with bare PartitionSpecs needs its mesh in context.  Not
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
    if made is None:  # a setup that only prepares something, or lacks its return
        _refuse_missing(request)
        return (), {}
    if isinstance(made, tuple) and len(made) == 2 and _is_pair(made):
        return tuple(made[0]), dict(made[1])
    if isinstance(made, tuple | list) and not hasattr(made, "_fields"):
        return tuple(made), {}
    return (made,), {}


def _refuse_missing(request: Request) -> None:
    """Refuse a step that takes arguments if there are none."""
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
