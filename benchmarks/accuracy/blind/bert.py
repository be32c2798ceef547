"""BERT's pre-training (Devlin et al., 2019) in PyTorch, data parallel.

The idea: the published encoder (its section 3; norms behind the residuals); the scores of the
vocabulary are those of masked tokens only, whose rows are picked first.  Weights are kept in 16
bits with copies in float32 that the optimizer updates; gradients of all batches of a step are
reduced with the last.

    training(Config(layers=24, width=1024, heads=16, hidden=4096), ranks=8).capture()
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import flint

DROPOUT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers, width, heads, hidden, vocabulary: sizes.
        sequence, sequences: tokens of a sequence, sequences of a rank's batch.
        masked: tokens of a sequence whose words are predicted.
        fused: attention in one kernel; else products, softmax and dropout.
        dtype: of weights, activations and gradients.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    sequence: int
    sequences: int
    masked: int
    fused: bool
    dtype: torch.dtype


class Layer(nn.Module):
    """Attention to all tokens and feed-forward network, each in front of a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads, self.fused = config.heads, config.fused
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, config.hidden)
        self.down = nn.Linear(config.hidden, width)
        self.mlp_norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``x`` (B, S, D); ``mask`` (B, 1, 1, S) is added to unfused scores."""
        batch, length, width = x.shape
        made = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k, v = (item.transpose(1, 2) for item in made.unbind(2))
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
            mixed = F.dropout(scores.softmax(-1), DROPOUT) @ v
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = self.attention_norm(x + F.dropout(self.out(mixed), DROPOUT))
        return self.mlp_norm(x + F.dropout(self.down(F.gelu(self.up(x))), DROPOUT))


class Bert(nn.Module):
    """Encoder and both losses: of masked tokens, and of whether sentences follow each other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.words = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Embedding(config.sequence, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.pooler = nn.Linear(width, width)
        self.next = nn.Linear(width, 2)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss of a batch."""
        x = self.words(batch["tokens"]) + self.positions.weight + self.kinds(batch["kinds"])
        x = F.dropout(self.norm(x), DROPOUT)
        mask = ((1 - batch["seen"]) * -10000.0).to(x.dtype)[:, None, None]
        for layer in self.layers:
            x = layer(x, mask)
        rows = x.flatten(0, 1)[batch["places"].flatten()]
        rows = self.transform_norm(F.gelu(self.transform(rows)))
        scores = F.linear(rows, self.words.weight, self.bias)
        follows = self.next(torch.tanh(self.pooler(x[:, 0])))
        return F.cross_entropy(scores.float(), batch["targets"].flatten()) + F.cross_entropy(
            follows.float(), batch["follows"]
        )


def build(config: Config, count: int, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``step`` of ``count`` batches."""
    device = mesh.device_type
    with torch.device(device):
        model = Bert(config).to(config.dtype)
    shape = config.sequences, config.sequence
    masked = config.sequences, config.masked

    def batch() -> dict[str, torch.Tensor]:
        places = config.sequences * config.sequence
        return {
            "tokens": torch.randint(0, config.vocabulary, shape, device=device),
            "kinds": torch.randint(0, 2, shape, device=device),
            "seen": torch.ones(shape, device=device, dtype=torch.long),
            "places": torch.randint(0, places, masked, device=device),
            "targets": torch.randint(0, config.vocabulary, masked, device=device),
            "follows": torch.randint(0, 2, (config.sequences,), device=device),
        }

    parallel = DistributedDataParallel(model, process_group=mesh.get_group())
    masters = [item.detach().float() for item in model.parameters()]
    for item in masters:
        item.grad = torch.zeros_like(item)
    optimizer = torch.optim.AdamW(masters, fused=True)
    return parallel, masters, optimizer, [batch() for _ in range(count)]


def step(
    model: DistributedDataParallel,
    masters: list[torch.Tensor],
    optimizer: torch.optim.Optimizer,
    batches: list[dict[str, torch.Tensor]],
) -> torch.Tensor:
    """One training step."""
    for number, batch in enumerate(batches):
        last = number == len(batches) - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(batch) / len(batches)
            loss.backward()
    weights = list(model.parameters())
    with torch.no_grad():
        torch._foreach_copy_([item.grad for item in masters], [item.grad for item in weights])
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        torch._foreach_copy_(weights, masters)
    for item in weights:
        item.grad = None
    return loss


def training(config: Config, ranks: int, count: int) -> Any:
    """A step of ``count`` batches on so many ranks."""
    setup = functools.partial(build, config, count)
    return flint.capture(step, mesh=(ranks,), axes=("dp",), setup=setup, framework="torch")
