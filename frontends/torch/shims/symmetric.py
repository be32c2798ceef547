"""Products that gather or scatter as they go: ``torch.ops.symm_mem.fused_all_gather_matmul``.

The idea: on GPUs these ops write into each other's memory while they multiply, and no collective is
dispatched.  What they exchange and multiply is what PyTorch's own functions for other devices do: a
collective and then the product, or the other way round.

    apply(); torch.ops.symm_mem.fused_all_gather_matmul(x, [weight], 0, name)    # two ops
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import _functional_collectives, _symmetric_memory

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line

_functional: Any = _functional_collectives


def _gathered(tensor: torch.Tensor, group_name: Any) -> Any:
    return _functional.wait_tensor(_functional.all_gather_tensor(tensor, 0, group_name))


def _scattered(tensor: torch.Tensor, reduce_op: str, group_name: Any) -> Any:
    found = _functional.reduce_scatter_tensor(tensor, reduce_op, 0, group_name)
    return _functional.wait_tensor(found)


#: Op -> what does the same by collectives.
_OPS: dict[str, Callable[..., Any]] = {
    "_low_contention_all_gather": _gathered,
    "_low_contention_reduce_scatter": _scattered,
    **{
        name: getattr(_symmetric_memory, f"_{name}_fallback")
        for name in (
            "fused_all_gather_matmul", "fused_all_gather_scaled_matmul",
            "fused_matmul_reduce_scatter", "fused_scaled_matmul_reduce_scatter",
        )
    },
}  # fmt: skip


def apply() -> None:
    """Replace these ops, except in graphs, which have PyTorch's own until they run."""
    for name, function in _OPS.items():
        around(torch.ops.symm_mem, name, functools.partial(_by_collectives, name, function))
        op = getattr(torch.ops.symm_mem, name)
        # Its only overload, and none that PyTorch may decompose.
        op.default, op.overloads, op.op_overloads = op, list, list


def _by_collectives(
    name: str, function: Callable[..., Any], _: Any, *args: Any, **kwargs: Any
) -> Any:
    capture().notice(
        f"symm_mem.{name}{at_user_line()}: its exchange is a collective, which does not overlap "
        "with its product"
    )
    return function(*args, **kwargs)
