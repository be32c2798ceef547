"""The arguments of a step: setup's result or given arguments, on the recording device, by name.

args, kwargs = prepared(setup, mesh, None)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flint.errors import UsageError
from flint.frontends.torch.cluster import device

#: Positional and keyword arguments of a step.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def prepared(setup: Callable[..., Any] | None, mesh: Any, arguments: Arguments | None) -> Arguments:
    """The arguments of the step: setup's result for a mesh, or the given arguments."""
    if setup is None:
        return _moved(arguments or ((), {}))
    made = setup(mesh)
    if (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], tuple)
        and isinstance(made[1], dict)
    ):
        return made
    if made is None:
        return (), {}
    return (tuple(made) if isinstance(made, tuple | list) else (made,)), {}


def _moved(arguments: Arguments) -> Arguments:
    """Arguments that were created before the capture, on the recording device."""

    def move(item: Any) -> Any:
        if isinstance(item, torch.nn.Module):
            return item.to(device.NAME)
        if isinstance(item, torch.optim.Optimizer):
            raise UsageError(
                "an optimizer that is passed as an argument holds real parameters: create model, "
                "optimizer and batch in setup=..., which runs on the recording device"
            )
        if isinstance(item, torch.Tensor):
            return item.to(device.NAME)
        if isinstance(item, list | tuple) and type(item) in (list, tuple):
            return type(item)(move(part) for part in item)
        if type(item) is dict:
            return {key: move(value) for key, value in item.items()}
        return item

    args, kwargs = arguments
    return tuple(move(item) for item in args), {key: move(item) for key, item in kwargs.items()}


def by_parameter(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by the names of the step's parameters, and the objects in the step's closure."""
    named: dict[str, Any] = {}
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"setup's result does not fit the step: {error}; it has {len(args)} positional "
            f"arguments: {', '.join(type(item).__name__ for item in args)}"
        ) from None
    for name, value in bound.arguments.items():
        named[name] = value
    held = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    for name, value in held.items():
        named.setdefault(name, value)
    return named
