"""Kernels: functions of tensors that the recording shows as one op.

The idea: the extension's functions are fused kernels.  A function that says what one computes, in
PyTorch's ops, becomes an op of its own (``torch.library.custom_op``): it is recorded once, its
shapes and its work are those of the function.

    @kernel
    def swiglu(x: Tensor) -> Tensor: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from flint.frontends.torch.recording.effects import TRANSFORMER_ENGINE

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """An op "transformer_engine::<name>" that computes what the function does, in one kernel.

    The function has annotations that PyTorch's schemas know, returns new tensors, and writes none
    of its arguments.
    """
    made: Any = torch.library.custom_op(_name(function), function, mutates_args=())
    made.register_fake(function)
    return cast("_Function", made)


def writing_kernel(function: Callable[..., list[Tensor]]) -> Callable[..., Any]:
    """The same, into tensors that exist: ``out``, one for each that the function returns.

    They are written and not read.
    """

    def write(*args: Any) -> list[Tensor] | None:
        *given, out = args
        found = function(*given)
        if out[0].is_meta:  # only the work is asked for
            return found
        for target, item in zip(out, found, strict=True):
            target.copy_(item)
        return None

    signature = inspect.signature(function, eval_str=True)
    target = inspect.Parameter(
        "out", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=list[Tensor]
    )
    parameters = [*signature.parameters.values(), target]
    write.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by PyTorch
        parameters=parameters, return_annotation=None
    )
    write.__name__ = function.__name__
    made: Any = torch.library.custom_op(_name(function), write, mutates_args=("out",))
    made.register_fake(lambda *_, **__: None)
    return cast("Callable[..., Any]", made)


def _name(function: Callable[..., Any]) -> str:
    return f"{TRANSFORMER_ENGINE}::{function.__name__.lstrip('_')}"
