"""Ways of bringing tokens to their experts on other ranks, and results back.

The idea: the ranks of a group together have all experts: equal numbers, in the order of the ranks.

    "dropless"   rows sorted by expert, an all-to-all of exactly these rows, grouped products, and
                 the same way back; counts are read on the host, as in such programs
    "once"       as "dropless", but a token goes once to a rank that has some of its experts; the
                 rank returns the sum of their weighted results (DeepEP)
    "padded"     as "dropless", with every expert's rows filled up to a multiple of 8, which takes
                 two more copies of all rows each way, and weights in float32 (torchtitan)
    "dropped"    every expert takes the tokens with its best scores, as many as its capacity, and
                 drops the rest: all sizes are known (Megatron-LM calls it drop and pad)

    mixed = DISPATCHES["dropless"](tokens, weights, choices, experts, sizes, group)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

from flint.models import mixtures
from flint.models.torch.moe_experts import Experts

#: Rows of an expert that grouped products take, of which each begins at a multiple of 16 bytes in
#: the gradients of weights.
_MULTIPLE = 8

Dispatch = Callable[
    [
        torch.Tensor, torch.Tensor, torch.Tensor, Experts, mixtures.Experts, dist.ProcessGroup
    ], torch.Tensor,
]  # fmt: skip


def dropless(
    tokens: torch.Tensor,
    weights: torch.Tensor,
    choices: torch.Tensor,
    experts: Experts,
    sizes: mixtures.Experts,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Sums of the experts' weighted results (T, D).

    Args:
        tokens: (T, D).
        weights: (T, k) of the experts' results.
        choices: (T, k): each token's experts.
        experts: those of this rank.
        sizes: of all.
        group: the ranks among which they are split.
    """
    # Rows in the order of their experts, hence of the ranks that have them.
    order = torch.argsort(choices.flatten(), stable=True)
    token = order // sizes.chosen
    rows = tokens[token]
    counts = torch.histc(choices.float(), sizes.count, min=0, max=sizes.count).long()

    rows = exchange(rows, counts, experts, group)
    weighted = rows * weights.flatten()[order].type_as(rows)[:, None]
    return torch.zeros_like(tokens).index_add(0, token, weighted)


def exchange(
    rows: torch.Tensor, counts: torch.Tensor, experts: Experts, group: dist.ProcessGroup
) -> torch.Tensor:
    """Results (R, D) of the experts, on whichever rank they are, for ``rows`` (R, D), sorted by
    expert.

    ``counts`` (experts,) says how many rows each expert gets.
    """
    ranks = group.size()
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    ends = arriving.view(ranks, -1).sum(0).cumsum(0).int()
    # (ranks, experts of a rank): from here to each, and from each to here.
    there, here = (item.view(ranks, -1).tolist() for item in (counts, arriving))
    sent, received = [sum(part) for part in there], [sum(part) for part in here]

    rows = all_to_all_single_autograd(rows, received, sent, group)
    rows = regrouped(rows, here)
    rows = experts(rows, [sum(part) for part in zip(*here, strict=True)], ends)
    rows = regrouped(rows, [list(part) for part in zip(*here, strict=True)])
    return all_to_all_single_autograd(rows, sent, received, group)


def regrouped(rows: torch.Tensor, sizes: list[list[int]]) -> torch.Tensor:
    """Rows in runs (i, j), sorted by i then j, of ``sizes[i][j]``: sorted by j then i."""
    if len(sizes) == 1 or len(sizes[0]) == 1:
        return rows
    runs = rows.split([size for part in sizes for size in part])
    width = len(sizes[0])
    return torch.cat([runs[i * width + j] for j in range(width) for i in range(len(sizes))])


def once(
    tokens: torch.Tensor,
    weights: torch.Tensor,
    choices: torch.Tensor,
    experts: Experts,
    sizes: mixtures.Experts,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """As ``dropless``.  Each row brings its token's experts and weights along."""
    ranks, here = group.size(), sizes.count // group.size()
    goes = torch.zeros(len(tokens), ranks, dtype=torch.int64, device=tokens.device)
    goes = goes.scatter(1, choices // here, 1)
    chosen = torch.histc(choices.float(), sizes.count, min=0, max=sizes.count).long()
    # For every rank: its rows, and the choices of each of its experts.
    counts = torch.cat([goes.sum(0)[:, None], chosen.view(ranks, here)], 1)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    each = arriving[:, 1:].sum(0)
    sent, received, made = counts[:, 0].tolist(), arriving[:, 0].tolist(), each.tolist()

    token = torch.argsort(1 - goes.t().flatten(), stable=True)[: sum(sent)] % len(tokens)
    rows = all_to_all_single_autograd(tokens[token], received, sent, group)
    beside = torch.cat([weights.float(), choices.float()], 1)
    beside = all_to_all_single_autograd(beside[token], received, sent, group)
    weights, choices = beside.chunk(2, 1)
    expert = choices.detach().long() - group.rank() * here
    expert = torch.where((expert >= 0) & (expert < here), expert, here).flatten()
    order = torch.argsort(expert, stable=True)[: sum(made)]
    row = order // sizes.chosen

    results = experts(rows[row], made, each.cumsum(0).int())
    results = results * weights.flatten()[order].type_as(rows)[:, None]
    results = torch.zeros_like(rows).index_add(0, row, results)
    results = all_to_all_single_autograd(results, sent, received, group)
    return torch.zeros_like(tokens).index_add(0, token, results)


def padded(
    tokens: torch.Tensor,
    weights: torch.Tensor,
    choices: torch.Tensor,
    experts: Experts,
    sizes: mixtures.Experts,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """As ``dropless``, as torchtitan does it (``models/moe.py`` and ``expert_parallel.py``, 2025).

    Rows that fill up are zero: copies of one that is put behind all others.
    """
    ranks, width = group.size(), tokens.shape[1]
    order = torch.argsort(choices.flatten(), stable=True)
    token = (order // sizes.chosen)[:, None].expand(-1, width)
    rows = torch.gather(tokens, 0, token)
    counts = torch.histc(choices.float(), sizes.count, min=0, max=sizes.count).long()
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    there, here = (item.view(ranks, -1).tolist() for item in (counts, arriving))
    sent, received = [sum(part) for part in there], [sum(part) for part in here]

    rows = all_to_all_single_autograd(rows, received, sent, group)
    places, ends = _filled_up(arriving.view(ranks, -1), len(rows))
    rows = torch.vstack((rows, rows.new_zeros(width)))
    each = [-(-max(sum(part), 1) // _MULTIPLE) * _MULTIPLE for part in zip(*here, strict=True)]
    each[-1] += len(places) - sum(each)
    made = experts(rows[places], each, ends)
    rows = made.new_empty(rows.shape).index_put((places,), made)[:-1]
    rows = all_to_all_single_autograd(rows, sent, received, group)
    weighted = (rows.float() * weights.flatten()[order][:, None]).type_as(rows)
    return torch.zeros_like(tokens).scatter_add(0, token, weighted)


def _filled_up(arriving: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which row is at each place, expert after expert, and where each expert's rows end: the last
    one's with the places.

    Args:
        arriving: (ranks, experts) rows, in this order.
        rows: of them; the one behind them is zero.
    """
    each = arriving.sum(0).clamp(min=_MULTIPLE)
    each = (each + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE
    ends = each.cumsum(0)
    there = (ends - each) + arriving.cumsum(0) - arriving  # where a rank's rows of an expert begin
    flat = arriving.flatten()
    moved = (there.flatten() - (flat.cumsum(0) - flat)).repeat_interleave(flat, output_size=rows)
    row = torch.arange(rows, device=arriving.device)
    places = torch.full((rows + _MULTIPLE * len(each),), rows, device=arriving.device)
    ends[-1] = len(places)
    return places.index_put((row + moved,), row), ends.int()


def dropped(
    tokens: torch.Tensor,
    weights: torch.Tensor,
    choices: torch.Tensor,
    experts: Experts,
    sizes: mixtures.Experts,
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """As ``dropless``; a place that no token has chosen holds a token of weight 0."""
    count, places, ranks = sizes.count, sizes.capacity(len(tokens)), group.size()
    by_expert = weights.new_zeros(len(tokens), count).scatter(1, choices, weights).t()
    weight, token = by_expert.topk(places)  # (E, C)
    rows = tokens[token.flatten()]

    rows = _to_all(rows, group)
    rows = rows.view(ranks, -1, places, rows.shape[-1]).transpose(0, 1).flatten(0, 2)
    each = [ranks * places] * (count // ranks)
    ends = torch.arange(1, len(each) + 1, dtype=torch.int32, device=rows.device) * each[0]
    rows = experts(rows, each, ends)
    rows = rows.view(-1, ranks, places, rows.shape[-1]).transpose(0, 1).flatten(0, 2)
    rows = _to_all(rows, group)
    weighted = rows * weight.flatten().type_as(rows)[:, None]
    return torch.zeros_like(tokens).index_add(0, token.flatten(), weighted)


def _to_all(rows: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """An all-to-all of equal parts."""
    each = [len(rows) // group.size()] * group.size()
    return all_to_all_single_autograd(rows, each, each, group)


#: Name -> how tokens get to their experts and back.
DISPATCHES: dict[str, Dispatch] = {
    "dropless": dropless,
    "once": once,
    "padded": padded,
    "dropped": dropped,
}
