"""FSDP2's own kernels around its collectives: copy in, copy out, cat of chunks."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.movement import chunk_cat, split_along
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


@lowers("fsdp.all_gather_copy_in")
def _all_gather_copy_in(call: Call, all_gather_inputs: Any, *_: Any, **__: Any) -> list[Any]:
    """This rank's shards one after another into its part of the gathered buffer.

    The first target is that part; others (the buffer) hold it already.
    """
    parts = [
        op.reshape(value_at(item, item.shape, call.dtype), (math.prod(item.shape),))
        for item in all_gather_inputs
    ]
    joined = op.reshape(op.concatenate(parts, 0), call.shape)
    return [joined] + [None] * (len(call.targets) - 1)


@lowers("fsdp.split_with_sizes_copy")
def _split_with_sizes_copy(
    call: Call, all_gather_output: Any, all_gather_input_split_sizes: Any, dim: int = 0, **_: Any
) -> Any:
    return split_along(call, all_gather_output, all_gather_input_split_sizes, dim)


@lowers("fsdp.chunk_cat")
def _copy_out(call: Call, tensors: Any, dim: int, num_chunks: int, **_: Any) -> Value:
    return chunk_cat(call, tensors, dim, num_chunks)


@lowers("fsdp.copy")
def _copy(call: Call, _tensor: Any, data: Any, **_: Any) -> Value:
    return value_at(data, call.shape, call.dtype)
