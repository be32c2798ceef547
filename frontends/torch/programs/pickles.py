"""Tensors without values in pickles and shallow copies, of the program's own making.

``pickle.dumps(model)`` (a check that a model can be pickled, a copy of it) writes the form of such
a tensor, and ``pickle.loads`` gives another tensor of that form.  ``copy.copy(tensor)`` shares its
memory, as in a run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.modes import unseen
from flint.frontends.torch.patching import replace
from flint.frontends.torch.programs.host_tensors import in_fake_mode


def apply() -> None:
    """Let programs pickle and copy such tensors."""
    kind: Any = FakeTensor
    replace(kind, "__reduce_ex__", _reduced)
    kind.__copy__ = _copied


def _reduced(tensor: FakeTensor, protocol: int) -> tuple[Any, ...]:
    with unseen():
        form = (
            tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())), tensor.dtype,
            str(tensor.device), tensor.requires_grad,
        )  # fmt: skip
    return _of_form, (isinstance(tensor, torch.nn.Parameter), *form)


def _of_form(
    is_parameter: bool, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype,
    device: str, requires_grad: bool,
) -> torch.Tensor:  # fmt: skip
    made = in_fake_mode(shape, stride, dtype, torch.device(device))
    return _like(made, is_parameter, requires_grad)


def _copied(tensor: FakeTensor) -> torch.Tensor:
    return _like(tensor.detach(), isinstance(tensor, torch.nn.Parameter), tensor.requires_grad)


def _like(tensor: torch.Tensor, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
