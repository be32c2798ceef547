"""Lists of DTensors in foreach ops.

For every op DTensor derives a sharding for each tensor of the list, from all combinations of
placements: the optimizer's first step over hundreds of parameters takes longer than the model's.
If all tensors that an element-wise op combines have the same placements, and none is a partial sum,
the op is applied to the local shards, as DTensor does in the end.  All other cases are left to
DTensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

#: Element-wise foreach ops, by the name of their packet; all overloads.
_POINTWISE = (
    "add", "sub", "mul", "div", "addcdiv", "addcmul", "lerp", "sqrt", "pow", "reciprocal", "neg",
    "abs", "zero", "copy", "maximum", "minimum", "sign", "exp",
)  # fmt: skip


def apply() -> None:
    """Apply element-wise foreach ops of DTensors to their shards."""
    dispatcher: Any = DTensor._op_dispatcher
    for name in _POINTWISE:
        for packet in (f"_foreach_{name}", f"_foreach_{name}_"):
            found = getattr(torch.ops.aten, packet, None)
            for overload in found.overloads() if found is not None else ():
                if not overload.endswith("out"):
                    op = getattr(found, overload)
                    dispatcher._custom_op_handlers[op] = _handler(dispatcher)


def _handler(dispatcher: Any) -> Callable[..., Any]:
    def handle(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not _alike(args, kwargs):
            handlers = dispatcher._custom_op_handlers
            handler = handlers.pop(op)
            try:
                return op(*args, **kwargs)
            finally:
                handlers[op] = handler
        local = op(*(_local(item) for item in args), **kwargs)
        if op._schema.name.endswith("_"):
            return local
        return [_wrap(item, like) for item, like in zip(local, args[0], strict=True)]

    return handle


def _alike(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether shards can be combined pairwise without changes."""
    lists = [item for item in args if isinstance(item, list | tuple) and _has_tensors(item)]
    singles = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)]
    if not lists or any(_has_tensors(item) for item in kwargs.values()):
        return False
    first = lists[0]
    if not all(isinstance(item, DTensor) for item in first):
        return False
    mesh = first[0].device_mesh
    for item in first:
        if item.device_mesh != mesh or any(place.is_partial() for place in item.placements):
            return False
    for other in lists[1:]:
        if len(other) != len(first):
            return False
        for one, two in zip(first, other, strict=True):
            if not isinstance(two, DTensor) or two.device_mesh != mesh:
                return False
            if one.placements != two.placements or one.shape != two.shape:
                return False
    return all(
        item.dim() == 0
        and isinstance(item, DTensor)
        and item.device_mesh == mesh
        and all(place.is_replicate() for place in item.placements)
        for item in singles
    )


def _has_tensors(item: Any) -> bool:
    return isinstance(item, list | tuple) and any(isinstance(x, torch.Tensor) for x in item)


def _local(item: Any) -> Any:
    if isinstance(item, DTensor):
        return item._local_tensor
    if _has_tensors(item):
        return [_local(x) for x in item]
    return item


def _wrap(local: torch.Tensor, like: DTensor) -> DTensor:
    meta = TensorMeta(like.shape, like.stride(), local.dtype)
    spec = DTensorSpec(like.device_mesh, like.placements, tensor_meta=meta)
    made: Any = DTensor
    result: DTensor = made(local, spec, requires_grad=local.requires_grad)
    return result
