"""Rows that unknown places pick from numbers in order, as the graphs that nodes belong to.

The idea: a graph network that pools keeps some nodes of each graph, and looks up in a vector, known
and in order, which graph each of them is of.  Sizes follow from that: how many graphs there are,
and how many nodes the next pooling finds in each.  Which nodes are kept is data; they are taken
evenly from all of them, so that each graph keeps its share.

    batch = torch.tensor([0, 0, 0, 0, 1, 1])        # known
    batch[scores.topk(3).indices]                   # [0, 0, 1], and their origin
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import (
    MOST,
    Known,
    all_known,
    follow,
    known_of,
)
from flint.frontends.torch.user_lines import at_user_line


def picked(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """Note the value of ``rows[places]``."""
    known = all_known(values, op, args, kwargs)
    follow(values, op, args, kwargs, result, known)
    if known or not capture().begins_group:
        return
    rows = args[0]
    places = args[1] if op is torch.ops.aten.index.Tensor else [args[2]]
    is_picked = rows.dim() == 1 and len(places) == 1 and result.dim() == 1
    whole = not (rows.is_floating_point() or rows.dtype is torch.bool)
    source = known_of(values, rows) if is_picked and whole and result.numel() <= MOST else None
    if source is None or not rows.numel() or not result.numel():
        return
    with unset_fake_temporarily():
        if not bool((source.value.diff() >= 0).all()):
            return
        taken = torch.arange(result.numel()) * rows.numel() // result.numel()
        value = source.value[taken]
    origin = f"rows{at_user_line()} picked evenly from {rows.numel():,} in order"
    values[result] = Known(value, source.origin or origin, source.alike)
