"""Routers and experts: which experts a token goes to, and what they compute.

The idea: a key of ``GATES`` turns a router's scores into choices and weights:

    "softmax"      the best of a softmax, normalised (Mixtral, Qwen3, GPT-OSS)
    "sigmoid"      sigmoids, chosen with a bias that balances the load without a loss and among the
                   best groups of experts only, then normalised (DeepSeek-V3, 2024, section 2.1.2)
    "input"        the sigmoid of a score, on what goes into the expert (Llama 4)
    "probability"  the best of a softmax among the best groups, not normalised (DeepSeek-V2, 2024)

Experts are gated feed-forward networks; their rows come expert after expert.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from flint.models import mixtures

#: GPT-OSS: activations are limited, and the gate's sigmoid is steeper.
_LIMIT, _STEEPNESS = 7.0, 1.702

#: What a gate returns: weights (T, k) of float32 and choices (T, k).
Chosen = tuple[torch.Tensor, torch.Tensor]


def _in_best_groups(scores: torch.Tensor, experts: mixtures.Experts, best: int) -> torch.Tensor:
    """``scores`` (T, E), minus infinity outside of the groups whose ``best`` experts score most
    together."""
    if experts.groups == experts.kept_groups:
        return scores
    grouped = scores.view(len(scores), experts.groups, -1)
    most = grouped.topk(best, -1).values.sum(-1)
    groups = most.topk(experts.kept_groups, -1, sorted=False).indices
    outside = torch.ones_like(most, dtype=torch.bool).scatter(1, groups, False)
    return grouped.masked_fill(outside[..., None], float("-inf")).flatten(1)


def _softmax(scores: torch.Tensor, bias: torch.Tensor | None, experts: mixtures.Experts) -> Chosen:
    weights, choices = torch.topk(F.softmax(scores, -1), experts.chosen)
    return weights / weights.sum(-1, keepdim=True), choices


def _sigmoid(scores: torch.Tensor, bias: torch.Tensor | None, experts: mixtures.Experts) -> Chosen:
    affinity = scores.sigmoid()
    wanted = _in_best_groups(affinity if bias is None else affinity + bias, experts, 2)
    choices = wanted.topk(experts.chosen, sorted=False).indices
    weights = affinity.gather(1, choices)
    return experts.scale * weights / (weights.sum(-1, keepdim=True) + 1e-20), choices


def _input(scores: torch.Tensor, bias: torch.Tensor | None, experts: mixtures.Experts) -> Chosen:
    best, choices = scores.topk(experts.chosen)
    return best.sigmoid(), choices


def _probability(
    scores: torch.Tensor, bias: torch.Tensor | None, experts: mixtures.Experts
) -> Chosen:
    wanted = _in_best_groups(F.softmax(scores, -1), experts, 1)
    weights, choices = wanted.topk(experts.chosen, sorted=False)
    return experts.scale * weights, choices


#: Name -> weights and choices from scores (T, E) of float32 and the bias added for the choice.
GATES: dict[str, Callable[[torch.Tensor, torch.Tensor | None, mixtures.Experts], Chosen]] = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "input": _input,
    "probability": _probability,
}


class Experts(nn.Module):
    """A rank's experts.

    Args:
        count: of them.
        width: elements of a row.
        sizes: of the whole mixture.
        products: "grouped", one kernel for all experts, or "loop", one after another.
    """

    def __init__(
        self, count: int, width: int, sizes: mixtures.Experts, products: str = "grouped"
    ) -> None:
        super().__init__()
        hidden, self.limited = sizes.hidden, sizes.biases
        self.product = PRODUCTS[products]
        self.gate = nn.Parameter(torch.empty(count, width, hidden))
        self.up = nn.Parameter(torch.empty(count, width, hidden))
        self.down = nn.Parameter(torch.empty(count, hidden, width))
        if sizes.biases:
            self.gate_bias = nn.Parameter(torch.empty(count, hidden))
            self.up_bias = nn.Parameter(torch.empty(count, hidden))
            self.down_bias = nn.Parameter(torch.empty(count, width))

    def forward(self, rows: torch.Tensor, counts: list[int], ends: torch.Tensor) -> torch.Tensor:
        """Results (R, D).

        Args:
            rows: (R, D), expert after expert.
            counts: rows of each.
            ends: (experts,) of int32: where each one's end.
        """

        def product(rows: torch.Tensor, name: str) -> torch.Tensor:
            made = self.product(rows, getattr(self, name), counts, ends)
            if not self.limited:
                return made
            each = torch.diff(ends, prepend=ends.new_zeros(1))
            bias = getattr(self, f"{name}_bias")
            return made + bias.repeat_interleave(each, 0, output_size=len(rows))

        hidden = self._gated(product(rows, "gate"), product(rows, "up"))
        return product(hidden, "down")

    def _gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """SwiGLU (Shazeer, 2020), or its limited form in GPT-OSS."""
        if not self.limited:
            return F.silu(gate) * up
        gate, up = gate.clamp(max=_LIMIT), up.clamp(-_LIMIT, _LIMIT)
        return (up + 1) * (gate * torch.sigmoid(_STEEPNESS * gate))


def _grouped(
    rows: torch.Tensor, weights: torch.Tensor, counts: list[int], ends: torch.Tensor
) -> torch.Tensor:
    return F.grouped_mm(rows, weights, offs=ends)


def _loop(
    rows: torch.Tensor, weights: torch.Tensor, counts: list[int], ends: torch.Tensor
) -> torch.Tensor:
    parts = zip(rows.split(counts), weights, strict=True)
    return torch.cat([part @ weight for part, weight in parts])


#: Name -> products of rows with their experts' weights (experts, K, N).
PRODUCTS = {"grouped": _grouped, "loop": _loop}
