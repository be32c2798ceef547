"""Mixtures of experts in PyTorch: the model, with the experts of one rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from flint.models import mixtures
from flint.models.mixtures import DENSE, Layer
from flint.models.torch.layers import FeedForward, rotary_table
from flint.models.torch.moe_attention import attention_of, rotated_size
from flint.models.torch.moe_dispatch import DISPATCHES
from flint.models.torch.moe_experts import GATES, Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        model: its sizes.
        sequence: tokens of a training sequence.
        sequences: sequences of a rank's batch; in a pipeline, of a microbatch.
        dispatch: a key of ``moe_dispatch.DISPATCHES``.
        products: a key of ``moe_experts.PRODUCTS``.
        checkpoint: as of ``llama3.Config``: False, True, every n-th block, "selective".
        forced: tokens go to all experts in turn and the router is ignored (a setting of
            frameworks for measurements).
        rate: by how much the gate "sigmoid" changes its bias after a step (DeepSeek-V3: 0.001).
        schedule, microbatches, stages: of a pipeline, as of ``llama3.Config``.
        dtype: of activations, and of weights in products; parameters are float32.
        reduce_dtype: that FSDP reduces gradients in.
        fused: the optimizer updates all of a parameter in one kernel, in place; else with one
            kernel for each operation, over all parameters.
    """

    model: mixtures.Mixture
    sequence: int = 4096
    sequences: int = 1
    dispatch: str = "dropless"
    products: str = "grouped"
    checkpoint: bool | int | str = False
    forced: bool = False
    rate: float = 0.001
    schedule: str = "1F1B"
    microbatches: int = 4
    stages: int = 1
    dtype: torch.dtype = torch.bfloat16
    reduce_dtype: torch.dtype = torch.float32
    fused: bool = False


class Mixture(nn.Module):
    """Router and experts, with those of other ranks.

    Args:
        config: the model.
        group: the ranks that together have all experts, in equal numbers.
    """

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        width, sizes = config.model.width, config.model.experts
        self.config, self.sizes, self.group = config, sizes, group
        self.router = nn.Linear(width, sizes.count, bias=sizes.biases)
        self.experts = Experts(sizes.count // group.size(), width, sizes, config.products)
        self.shared = FeedForward(width, sizes.shared) if sizes.shared else None
        balanced = sizes.gate == "sigmoid"
        self.register_buffer("correction", torch.zeros(sizes.count) if balanced else None)
        load = torch.zeros(sizes.count) if balanced else None
        self.register_buffer("load", load, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        tokens, sizes = x.flatten(0, 1), self.sizes
        weights, choices = GATES[sizes.gate](self.router(tokens).float(), self.correction, sizes)
        if self.config.forced:
            turn = torch.arange(choices.numel(), device=x.device) % sizes.count
            choices = turn.view_as(choices)
        if self.load is not None:
            with torch.no_grad():
                self.load += torch.histc(choices.float(), sizes.count, min=0, max=sizes.count)
        sent = tokens
        if sizes.gate == "input":  # the input is weighted; a token has one expert
            sent, weights = tokens * weights.type_as(tokens), torch.ones_like(weights)
        dispatch = DISPATCHES[self.config.dispatch]
        mixed = dispatch(sent, weights, choices, self.experts, sizes, self.group)
        if self.shared is not None:
            mixed = mixed + self.shared(tokens)
        return mixed.view_as(x)


class Block(nn.Module):
    """Attention, and a mixture or a feed-forward network, each behind a norm and beside a
    residual."""

    def __init__(self, config: Config, kind: Layer, group: dist.ProcessGroup) -> None:
        super().__init__()
        model = config.model
        self.attention_norm = nn.RMSNorm(model.width, eps=1e-5)
        self.attention = attention_of(model.width, model.heads, model.form, kind.span)
        self.moe_norm = nn.RMSNorm(model.width, eps=1e-5)
        self.moe = Mixture(config, group) if kind.sparse else None
        self.mlp = None if kind.sparse else FeedForward(model.width, model.hidden)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = x + self.attention(self.attention_norm(x), table)
        return x + (self.moe or self.mlp)(self.moe_norm(x))  # type: ignore[misc]  # one exists


def kinds(model: mixtures.Mixture) -> list[Layer]:
    """What each layer is."""
    times, rest = divmod(model.layers - model.dense, len(model.period))
    if rest:
        raise ValueError(f"{model.layers} layers: no whole periods of {len(model.period)}")
    return [DENSE] * model.dense + list(model.period) * times


class Model(nn.Module):
    """The model with the experts of one rank, or a pipeline stage of it.

    Args:
        config: the whole model's.
        group: the ranks among which the experts are split.
        layers: numbers of the blocks; default: all.
        first: takes tokens (B, S); otherwise what the stage before returns.
        last: returns scores (B, S, V); otherwise the residual stream (B, S, D).
    """

    def __init__(
        self,
        config: Config,
        group: dist.ProcessGroup,
        layers: range | None = None,
        first: bool = True,
        last: bool = True,
    ) -> None:
        super().__init__()
        self.config, model = config, config.model
        chosen = range(model.layers) if layers is None else layers
        all_kinds = kinds(model)
        self.embedding = nn.Embedding(model.vocabulary, model.width) if first else None
        self.layers = nn.ModuleDict(
            {str(number): Block(config, all_kinds[number], group) for number in chosen}
        )
        self.norm = nn.RMSNorm(model.width, eps=1e-5) if last else None
        self.head = nn.Linear(model.width, model.vocabulary, bias=False) if last else None
        self.register_buffer("rotary", self._rotary(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, or what the next stage takes."""
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.layers.values():
            x = block(x, self.rotary)
        return x if self.head is None or self.norm is None else self.head(self.norm(x))

    def initialise(self) -> None:
        """Initialise every parameter and buffer in place."""
        for name, parameter in self.named_parameters():
            if name.endswith(("bias", "sinks")):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.ones_(parameter)
        for buffer in self.buffers():
            buffer.zero_()
        self.rotary = self._rotary(self.rotary.device)

    def _rotary(self, device: torch.device | None = None) -> torch.Tensor:
        model = self.config.model
        size = rotated_size(model.heads, model.form)
        return rotary_table(self.config.sequence, size, model.heads.theta, device)
