"""Batches of a language model, and its loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def batch_of(
    vocabulary: int, shape: tuple[int, int], device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens and targets, (sequences, S) each."""
    tokens = torch.randint(0, vocabulary, shape, device=device)
    targets = torch.randint(0, vocabulary, shape, device=device)
    return tokens, targets


def loss_of(
    scores: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Mean cross entropy of the next token, in a dtype; scores (B, S, V), targets (B, S)."""
    return F.cross_entropy(scores.flatten(0, 1).to(dtype), targets.flatten(0, 1))
