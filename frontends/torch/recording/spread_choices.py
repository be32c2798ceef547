"""Choices of rows, spread over items as ``flint.graph.routing`` says.

spread(torch.Size((6, 2)), dim=-1, items=4)     # two of four items for each of six rows
"""

from __future__ import annotations

import math

import torch

from flint.frontends.torch.context import capture


def spread(shape: torch.Size, dim: int, items: int) -> torch.Tensor:
    """Chosen items by row: along ``dim`` no item stands twice.

    If all items are chosen alike, each of ``items`` rows chooses the same random ones, moved on by
    one item a row: so a row's choices are on as many ranks as random choices are, and every rank
    gets the same number. In all other rows each item is chosen by consecutive ones; it has no more
    choices than there are rows, so no row is met again.
    """
    each, routing = shape[dim], capture().routing
    rows = math.prod(shape) // max(each, 1)
    counts = torch.tensor(routing.counts(rows * each, items, most=rows))
    turns = rows // items if routing.is_balanced else 0
    rest = rows - turns * items
    chosen = torch.repeat_interleave(torch.arange(items), counts - turns * each).view(each, rest).T
    chosen = torch.cat([_turned(turns, each, items), chosen])
    moved = [*(size for at, size in enumerate(shape) if at != dim % len(shape)), each]
    return chosen.reshape(moved).movedim(-1, dim)


def _turned(turns: int, each: int, items: int) -> torch.Tensor:
    """Choices of ``turns * items`` rows, shape [turns * items, each]."""
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(turns, 1, items, generator=generator).argsort(-1)[..., :each]
    return ((first + torch.arange(items)[:, None]) % items).reshape(-1, each)
