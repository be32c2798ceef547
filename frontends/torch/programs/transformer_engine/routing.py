"""The router's fused kernels, as the several of PyTorch that compute the same.

The idea: which experts tokens choose is data, which the recording follows through PyTorch's own ops
(``torch.topk``, ``scatter``).  So these are not one kernel each; they are small, [tokens, experts].

    probs, routing_map = fused_topk_with_score_function({"logits": logits, "topk": 2, ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from flint.errors import FlintError
from flint.frontends.torch.user_lines import at_user_line

_SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: torch.softmax(logits.float(), -1),
    "sigmoid": lambda logits: torch.sigmoid(logits.float()),
    "sqrtsoftplus": lambda logits: functional.softplus(logits.float()).sqrt(),
}


def fused_topk_with_score_function(given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Weights of the chosen experts, and which they are, both [tokens, experts].

    Args:
        given: the wrapper's arguments by name.
    """
    packed = given.get("routing_map_format", "bytemap")
    packed = "bitmap" in str(getattr(packed, "name", packed)).lower()
    if packed or given.get("topk_indices") is not None:
        raise FlintError(f"the fused router{at_user_line()} has no stand-in for packed choices")
    logits, each, kind = given["logits"], given["topk"], given["score_function"]
    after = kind == "softmax" and not given["use_pre_softmax"]
    scores = logits.float() if after else _SCORES[kind](logits)
    bias = given["expert_bias"]
    ranked = scores if bias is None else scores + bias
    if given["num_groups"] and given["group_topk"]:
        ranked = _within_groups(ranked, given["num_groups"], given["group_topk"], each)
    chosen = torch.topk(ranked, each, dim=-1).indices
    weights = scores.gather(-1, chosen)
    if after:
        weights = torch.softmax(weights, -1)
    elif kind != "softmax" and each > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    if given["scaling_factor"]:
        weights = weights * given["scaling_factor"]
    probs = torch.zeros_like(logits).scatter(-1, chosen, weights.to(logits.dtype))
    return probs, torch.zeros_like(logits).int().scatter(-1, chosen, 1).bool()


def _within_groups(scores: Tensor, groups: int, kept: int, each: int) -> Tensor:
    """Scores of experts in the best groups; others are out of reach."""
    by_group = scores.reshape(*scores.shape[:-1], groups, -1)
    totals = by_group.topk(each // kept, dim=-1).values.sum(-1)
    best = torch.topk(totals, kept, dim=-1, sorted=False).indices
    mask = torch.zeros_like(totals).scatter(-1, best, 1).bool()
    return by_group.masked_fill(~mask.unsqueeze(-1), float("-inf")).reshape(scores.shape)


def fused_compute_score_for_moe_aux_loss(given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Which experts are chosen, and the scores of all, [tokens, experts]."""
    kind = given["score_function"]
    scores = _SCORES[kind](given["logits"])
    if kind != "softmax":
        scores = scores / (scores.sum(-1, keepdim=True) + 1e-20)
    chosen = torch.topk(scores, given["topk"], dim=-1).indices
    return torch.zeros_like(scores).int().scatter(-1, chosen, 1).bool(), scores


def fused_moe_aux_loss(given: Mapping[str, Any]) -> Tensor:
    """The loss of an uneven choice (Switch Transformers, equation 4)."""
    share = given["num_experts"] * given["coeff"] / given["topk"] / given["total_num_tokens"] ** 2
    loss: Tensor = (given["probs"].sum(0) * given["tokens_per_expert"]).sum() * share
    return loss
