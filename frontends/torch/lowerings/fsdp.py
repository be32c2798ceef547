"""FSDP2's own kernel before a gather; those that are copies of ATen's have its lowerings."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
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
