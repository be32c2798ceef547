"""DeepSpeed's kernels of optimizers, which it compiles when a program first needs them.

The idea: a machine without GPUs has no compiler for CUDA, and compiled code needs memory that fake
tensors do not have.  DeepSpeed keeps loaded kernels by their names, so it finds these here: an
update reads and writes the same tensors as PyTorch's fused one, which is recorded in its place.

    apply(); deepspeed.initialize(model=model, config={"optimizer": {"type": "Adam"}})
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import torch

from flint.frontends.torch.programs.fused_updates import adam_update
from flint.host.imports import watch_imports
from flint.launching.notes import noted

_BUILDER = "deepspeed.ops.op_builder.builder"


def apply() -> None:
    """Give DeepSpeed its kernels, from its import on."""
    watch_imports({_BUILDER: _provide})


def _provide() -> None:
    builder: Any = importlib.import_module(_BUILDER)
    builder.OpBuilder._loaded_ops |= {
        "fused_adam": SimpleNamespace(multi_tensor_adam=_fused_adam),
        "cpu_adam": SimpleNamespace(
            create_adam=_create, adam_update=_cpu_adam, destroy_adam=lambda _: None
        ),
    }


def _update(
    kernel: str, decoupled: bool, lists: list[list[torch.Tensor]], **numbers: float
) -> None:
    """Adam's update of parameters, by gradients and both averages."""
    noted[
        f"DeepSpeed's {kernel} is not compiled: its update is recorded as PyTorch's fused one"
    ] += 1
    adam_update(decoupled, lists, **numbers)


def _fused_adam(
    _chunk: int, _overflow: torch.Tensor, lists: list[list[torch.Tensor]], lr: float, beta1: float,
    beta2: float, eps: float, _step: int, decoupled: int, _corrected: int, decay: float,
) -> None:  # fmt: skip
    _update(
        "fused_adam", bool(decoupled), lists, lr=lr, beta1=beta1, beta2=beta2, eps=eps,
        weight_decay=decay,
    )  # fmt: skip


#: Number of an optimizer of the host -> its decay is decoupled.
_decoupled: dict[int, bool] = {}


def _create(
    number: int, _lr: float, _beta1: float, _beta2: float, _eps: float, _decay: float,
    decoupled: bool, *_: Any,
) -> None:  # fmt: skip
    _decoupled[number] = decoupled


def _cpu_adam(
    number: int, _step: int, lr: float, beta1: float, beta2: float, eps: float, decay: float,
    _corrected: bool, parameter: torch.Tensor, *others: torch.Tensor,
) -> None:  # fmt: skip
    gradient, *averages = others
    _update(
        "cpu_adam", _decoupled[number], [[gradient], [parameter], *([item] for item in averages)],
        lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=decay,
    )  # fmt: skip
