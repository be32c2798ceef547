"""What flash_attn has beside its kernels: exchanges in an autograd graph, and einops' functions.

all_gather(x, group)            # gradients of x are reduce-scattered
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def rearrange(tensor: Any, pattern: str, **axes: int) -> Any:
    """As einops, from which flash_attn imports it."""
    return _einops().rearrange(tensor, pattern, **axes)


def repeat(tensor: Any, pattern: str, **axes: int) -> Any:
    """As einops, from which flash_attn imports it."""
    return _einops().repeat(tensor, pattern, **axes)


def _einops() -> Any:
    """einops, which a program that calls these functions has."""
    return importlib.import_module("einops")


def all_gather_raw(input_: Tensor, process_group: Any, async_op: bool = False) -> Any:
    """All ranks' parts one after another, [ranks * length, ...]."""
    count = dist.get_world_size(process_group)
    output = input_.new_empty(count * input_.shape[0], *input_.shape[1:])
    work = dist.all_gather_into_tensor(output, input_.contiguous(), process_group, async_op)
    return output, work


def reduce_scatter_raw(input_: Tensor, process_group: Any, async_op: bool = False) -> Any:
    """This rank's part of the sum over ranks, [length / ranks, ...]."""
    count = dist.get_world_size(process_group)
    if input_.shape[0] % count:
        raise AssertionError
    output = input_.new_empty(input_.shape[0] // count, *input_.shape[1:])
    work = dist.reduce_scatter_tensor(
        output, input_.contiguous(), group=process_group, async_op=async_op
    )
    return output, work


def all_reduce_raw(input_: Tensor, process_group: Any, async_op: bool = False) -> Any:
    """The sum over ranks, in place."""
    input_ = input_.contiguous()
    return input_, dist.all_reduce(input_, group=process_group, async_op=async_op)


def _passed(grad: Tensor, _group: Any) -> Any:
    return grad, None


def _function(name: str, forward: Any, backward: Any) -> Any:
    """An autograd function of a tensor and a group, by what passes it forward and backward."""

    def there(ctx: Any, input_: Tensor, process_group: Any) -> Tensor:
        ctx.process_group = process_group
        found: Tensor = forward(input_, process_group)[0]
        return found

    def back(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return backward(grad, ctx.process_group)[0], None

    functions = {"forward": staticmethod(there), "backward": staticmethod(back)}
    return type(name, (torch.autograd.Function,), functions)


AllGatherFunc = _function("AllGatherFunc", all_gather_raw, reduce_scatter_raw)
ReduceScatterFunc = _function("ReduceScatterFunc", reduce_scatter_raw, all_gather_raw)
AllReduceFunc = _function("AllReduceFunc", all_reduce_raw, _passed)
all_gather, reduce_scatter, all_reduce = (
    function.apply for function in (AllGatherFunc, ReduceScatterFunc, AllReduceFunc)
)
