"""Mixture of experts in PyTorch: Mixtral's training step, and a tiny one.

The idea: ``llama3.py``'s blocks with experts in place of the feed-forward network.  Every rank has
some of the experts; the ranks along the mesh axis "ep" together have all of them, and exchange rows
of tokens by two all-to-alls, there and back.  How many rows go where is what the router chose: the
counts are read on the host, as such programs do.  A capture has no values and takes the counts from
its routing model (``@flint.capture(..., routing=...)``), which it reports.

    ("dp", "ep")     every rank has sequences of its own; experts are split over ep and, by FSDP,
                     over dp; everything else by FSDP over all ranks

    flint capture models/torch/moe.py:train_mixtral --mesh 64,8 -o out/

Sizes: "Mixtral of Experts" (2024), table 1.  No token is dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import flint
from flint.models.torch.layers import Attention, Heads, rotary_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers: number of blocks.
        width: elements of the residual stream.
        heads: sizes of the attention.
        experts: experts of a block.
        chosen: experts of a token.
        hidden: width of an expert's feed-forward network.
        vocabulary: number of tokens.
        sequence: tokens of a training sequence.
        sequences: sequences of a rank's batch.
        dtype: of activations, and of weights in products; parameters are float32.
    """

    layers: int
    width: int
    heads: Heads
    experts: int
    chosen: int
    hidden: int
    vocabulary: int = 32000
    sequence: int = 4096
    sequences: int = 1
    dtype: torch.dtype = torch.bfloat16


TINY = Config(
    layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), experts=8, chosen=2, hidden=128,
    vocabulary=256, sequence=32,
)  # fmt: skip
MIXTRAL_8X7B = Config(
    layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128, theta=1e6), experts=8,
    chosen=2, hidden=14336,
)  # fmt: skip


class Experts(nn.Module):
    """A rank's experts: gated feed-forward networks, as grouped products."""

    def __init__(self, count: int, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(count, width, hidden))
        self.up = nn.Parameter(torch.empty(count, width, hidden))
        self.down = nn.Parameter(torch.empty(count, hidden, width))

    def forward(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Rows (R, D), sorted by expert; ``ends`` (experts,) of int32: where each one's end."""
        hidden = F.silu(F.grouped_mm(rows, self.gate, offs=ends))
        hidden = hidden * F.grouped_mm(rows, self.up, offs=ends)
        return F.grouped_mm(hidden, self.down, offs=ends)


class Mixture(nn.Module):
    """Router and experts, those of other ranks too.

    Args:
        config: the model.
        group: the ranks that have all experts together, equally many each.
    """

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.count, self.chosen, self.group = config.experts, config.chosen, group
        self.ranks = group.size()
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.experts = Experts(config.experts // self.ranks, config.width, config.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        tokens = x.flatten(0, 1)
        weights, choices = torch.topk(F.softmax(self.router(tokens).float(), -1), self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)

        # Rows in the order of their experts, hence of the ranks that have them.
        order = torch.argsort(choices.flatten(), stable=True)
        token = order // self.chosen
        rows = tokens[token]
        counts = torch.histc(choices.float(), self.count, min=0, max=self.count).long()

        rows = self.exchange(rows, counts)
        mixed = torch.zeros_like(tokens).index_add(
            0, token, rows * weights.flatten()[order].type_as(rows)[:, None]
        )
        return mixed.view_as(x)

    def exchange(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Results (R, D) of the experts, wherever they are, for ``rows`` (R, D), sorted by expert.

        ``counts`` (experts,) says how many rows each expert gets.
        """
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        ends = arriving.view(self.ranks, -1).sum(0).cumsum(0).int()
        # (ranks, experts of a rank): from here to each, and from each to here.
        there, here = (item.view(self.ranks, -1).tolist() for item in (counts, arriving))
        sent, received = [sum(part) for part in there], [sum(part) for part in here]

        rows = all_to_all_single_autograd(rows, received, sent, self.group)
        rows = regrouped(rows, here)
        rows = self.experts(rows, ends)
        rows = regrouped(rows, [list(part) for part in zip(*here, strict=True)])
        return all_to_all_single_autograd(rows, sent, received, self.group)


def regrouped(rows: torch.Tensor, sizes: list[list[int]]) -> torch.Tensor:
    """Rows in runs (i, j), sorted by i then j, of ``sizes[i][j]``: sorted by j then i."""
    if len(sizes) == 1 or len(sizes[0]) == 1:
        return rows
    runs = rows.split([size for part in sizes for size in part])
    width = len(sizes[0])
    return torch.cat([runs[i * width + j] for j in range(width) for i in range(len(sizes))])


class Block(nn.Module):
    """Attention and mixture, each behind a norm and beside a residual."""

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config.width, config.heads)
        self.moe_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.moe = Mixture(config, group)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.moe(self.moe_norm(x))


class Mixtral(nn.Module):
    """The model, with the experts of one rank.

    Args:
        config: the whole model's.
        group: the ranks among which the experts are split.
    """

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList([Block(config, group) for _ in range(config.layers)])
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.register_buffer("rotary", self._rotary(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores (B, S, V) of the next token."""
        x = self.embedding(tokens)
        for block in self.layers:
            x = block(x, self.rotary)
        return self.head(self.norm(x))

    def initialise(self) -> None:
        """Give every parameter and buffer its first value, where it is."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.ones_(parameter)
        self.rotary = self._rotary(self.rotary.device)

    def _rotary(self, device: torch.device | None = None) -> torch.Tensor:
        heads = self.config.heads
        return rotary_table(self.config.sequence, heads.size, heads.theta, device)


def shard(model: Mixtral, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """FSDP: experts over "dp", everything else over all ranks."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    everyone = mesh["dp", "ep"]._flatten("dp_ep")
    evenly = functools.partial(evenly_placed, everyone.size())
    for block in model.layers:
        experts = block.moe.experts
        fully_shard(
            experts,
            mesh=mesh["dp"],
            mp_policy=policy,
            shard_placement_fn=functools.partial(evenly_placed, mesh["dp"].size()),
        )
        # Tokens of all ranks come to an expert, and the loss is the mean over all ranks.
        experts.set_gradient_divide_factor(mesh.size())
        fully_shard(block, mesh=everyone, mp_policy=policy, shard_placement_fn=evenly)
    fully_shard(model, mesh=everyone, mp_policy=policy, shard_placement_fn=evenly)


def evenly_placed(ranks: int, parameter: nn.Parameter) -> Shard:
    """Split a parameter along its first dim that divides among the ranks, else along the first.

    A router has fewer rows than there are ranks, a rank one expert: split by these, most ranks
    would have none and gather what is mostly padding.
    """
    even = (dim for dim, size in enumerate(parameter.shape) if size % ranks == 0)
    return Shard(next(even, 0))


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer and batch for a mesh ("dp", "ep").

    Raises:
        ValueError: experts that do not divide among the ranks of "ep".
    """
    if config.experts % mesh["ep"].size():
        raise ValueError(f"{config.experts} experts do not divide among {mesh['ep'].size()} ranks")
    with torch.device("meta"):
        model = Mixtral(config, mesh["ep"].get_group())
    shard(model, mesh, config.dtype)
    model.to_empty(device=mesh.device_type)
    model.initialise()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    shape = (config.sequences, config.sequence)
    tokens, targets = (
        torch.randint(config.vocabulary, shape, device=mesh.device_type) for _ in range(2)
    )
    return model, optimizer, (tokens, targets)


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """One training step; returns the loss of the rank's tokens."""
    tokens, targets = batch
    scores = model(tokens)
    loss = F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def training(config: Config, mesh: tuple[int, int], routing: Any = "balanced") -> Any:
    """A training step of a model: ``training(MIXTRAL_8X7B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: ranks along "dp" and "ep".
        routing: "balanced", "zipf:1.2", or relative loads of the experts.  Ranks whose experts
            together get unlike loads are programs of their own.
    """
    capture: Callable[..., Any] = flint.capture(
        mesh=mesh, axes=("dp", "ep"), setup=functools.partial(build, config), routing=routing
    )
    return capture(step)


train_tiny = training(TINY, mesh=(2, 4))
train_mixtral = training(MIXTRAL_8X7B, mesh=(64, 8))
