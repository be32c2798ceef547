"""Steps of a program that updates its parameters itself, without an optimizer of PyTorch's.

The idea: a step begins where a model is called for the first time after a backward pass and writes
to the model's parameters, outside of any model.  Such programs have optimizers that are classes of
their own, or write ``parameter -= rate * gradient``.

    updates = OwnUpdates(lambda: steps.ended(OwnUpdates.NAME, Kind.UPDATE))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.recording.schemas import tensors_in


class OwnUpdates:
    """The updates of a program, as it runs."""

    NAME = "update"

    def __init__(self, ended: Callable[[], None]) -> None:
        """Watch for updates.

        Args:
            ended: called where a step ends and the next one begins.
        """
        self._ended = ended
        self._parameters: set[int] = set()  # their storages
        self._has_gradients = self._has_written = self._is_over = False

    def over(self) -> None:
        """The program has an optimizer."""
        self._is_over = True
        self._parameters = set()

    def called(self, module: torch.nn.Module) -> None:
        """A model is called, not from within another one."""
        if self._is_over or not torch.is_grad_enabled():
            return
        if self._has_written:
            self._has_gradients = self._has_written = False
            self._ended()
        with torch._C.DisableTorchFunctionSubclass():  # a parameter's class may refuse to say
            self._parameters |= {
                item.untyped_storage()._cdata
                for item in module.parameters()
                if isinstance(item, FakeTensor) and item.requires_grad
            }

    def ran_backward(self) -> None:
        """A backward pass has ended."""
        self._has_gradients = True

    def op(self, op: Any, args: tuple[Any, ...], is_inside: bool) -> None:
        """An op is about to run, inside a model or not."""
        if is_inside or not (self._has_gradients and self._parameters) or self._has_written:
            return
        if op._schema.is_mutable:
            self._has_written = any(
                isinstance(item, FakeTensor) and item.untyped_storage()._cdata in self._parameters
                for item in tensors_in(_written_by(op, args))
            )


def _written_by(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that an op writes to."""
    return tuple(
        item
        for item, described in zip(args, op._schema.arguments, strict=False)
        if described.alias_info is not None and described.alias_info.is_write
    )
