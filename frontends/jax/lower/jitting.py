"""A step in a form that JAX can trace.

The idea: a function that is already jitted is used unchanged, with its donation, static arguments
and shardings; any other is jitted with the decorator's keywords.  A wrapper around a jit that
cannot trace (haliax's, equinox's) is opaque: only calling it shows what it compiles.

    step, args, kwargs = jitted(function, args, kwargs, {"donate_argnums": 0})
    step.trace(*args, **kwargs)
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from flint.capturing.user_frames import one_line
from flint.errors import UsageError
from flint.frontends.jax.lower.arguments import is_array


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's positional parameters; empty if they are unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(item.name for item in parameters if item.kind in positional)


def is_jitted(function: Any) -> bool:
    """Whether JAX can trace it unchanged."""
    return hasattr(function, "trace") and hasattr(function, "lower")


def is_opaque(function: Any) -> bool:
    """Whether it is jitted in a way that only a call shows.

    Raises:
        UsageError: it comes from ``jax.pmap``.
    """
    if not hasattr(function, "lower") or is_jitted(function):
        return False
    if _is_pmap(function):
        raise UsageError(
            "jax.pmap maps over the devices of one process, not over a mesh: use jax.shard_map "
            "over the mesh's axis"
        )
    return True


def jitted(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], settings: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function as something with ``trace``, and the arguments for it."""
    if settings and hasattr(function, "lower"):
        raise UsageError(
            f"{', '.join(settings)}: the function is already jitted; pass them to its jit"
        )
    if is_jitted(function):
        return function, args, kwargs
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
    """Whether it comes from ``jax.pmap`` or equinox's wrapper of it, named like its module."""
    modules = type(function).__module__, str(getattr(function.lower, "__module__", ""))
    return any(name.startswith(("jax.", "equinox.")) and "pmap" in name for name in modules)


def _jit_of_mutable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``flax.nnx.jit`` for a step whose arguments are nnx objects, else None.

    Such a step updates its arguments in place; under ``jax.jit`` the updates would be lost, with
    everything that only they need.
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
