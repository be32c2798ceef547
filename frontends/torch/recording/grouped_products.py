"""Grouped matrix products for which a GPU has no kernel: one product per group.

The idea: ``torch._grouped_mm`` is one kernel in bfloat16 on GPUs of compute capability 9 and 10.
Elsewhere the host reads where the groups end and starts a product of each
(aten/src/ATen/native/GroupedMMUtils.h, since torch 2.9); so does a capture.

    by_group = by_groups(torch.ops.aten._grouped_mm.default, (tokens, weights, ends), {})
    by_group(tokens, weights, ends)    # one aten.mm.out per group that has rows
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from flint.frontends.torch.cluster.device_module import DeviceModule

_OP = torch.ops.aten._grouped_mm.default
#: Compute capabilities of GPUs that have the kernel.
_WITH_KERNEL = (9, 10)


def by_groups(op: Any, args: Any, kwargs: Any) -> Callable[..., torch.Tensor] | None:
    """What a GPU without the kernel does; None for other ops and other GPUs.

    Args:
        op: that is dispatched.
        args, kwargs: its arguments; of ``_grouped_mm`` [m, k] or [g, m, k], [k, n] or [g, k, n],
            and the ends of the groups [g].

    Returns:
        A function of the same arguments.
    """
    if op is not _OP or args[0].device.type == "cpu":
        return None
    kinds = {args[0].dtype, args[1].dtype, kwargs.get("out_dtype") or args[0].dtype}
    major, _ = DeviceModule().get_device_capability()
    if kwargs.get("bias") is not None or (kinds == {torch.bfloat16} and major in _WITH_KERNEL):
        return None
    return _by_group


def _by_group(
    first: torch.Tensor, second: torch.Tensor, offs: torch.Tensor | None = None,
    bias: None = None, out_dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    ends, dtype = offs, out_dtype or first.dtype
    if ends is None or (first.dim() == 3 and second.dim() == 3):
        return torch.bmm(first, second)
    groups = list(enumerate(pairwise((0, *ends.cpu().tolist()))))
    rows, columns = first.shape[-2], second.shape[-1]
    if first.dim() == 2 and second.dim() == 2:
        out = first.new_empty((len(groups), rows, columns), dtype=dtype)
        triples = [(first[:, a:b], second[a:b], out[i]) for i, (a, b) in groups]
    elif first.dim() == 2:
        out = first.new_empty((rows, columns), dtype=dtype)
        triples = [(first[a:b], second[i], out[a:b]) for i, (a, b) in groups]
    else:
        out = first.new_empty((rows, columns), dtype=dtype)
        triples = [(first[i], second[:, a:b], out[:, a:b]) for i, (a, b) in groups]
    for one, other, into in triples:
        if into.numel():
            torch.mm(one, other, out=into)
    return out
