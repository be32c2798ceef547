"""Llama 3 in PyTorch: the model, whole or a stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from flint.models.torch.layers import STYLES, Block, Heads, before, rotary_table
from flint.models.torch.losses import Head
from flint.models.torch.low_precision import DelayedLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers: number of blocks.
        width: elements of the residual stream.
        heads: sizes of the attention.
        hidden: width of the feed-forward network.
        vocabulary: number of tokens.
        sequence: tokens of a training sequence.
        sequences: sequences of a batch per data-parallel rank; in a pipeline, of a microbatch.
        checkpoint: what blocks keep for the backward pass, as of ``checkpoint_blocks``.
        dtype: of activations, and of weights in products.  Parameters are ``kept_dtype`` where they
            are sharded (FSDP casts them as it gathers them), of this dtype where they are not.
        kept_dtype: of sharded parameters, their gradients and the optimizer's state.
        fused: the optimizer updates all of a parameter in one kernel, in place; else with one
            kernel an operation, each for many parameters (``foreach``).
        reduce_dtype: that FSDP reduces gradients in.
        style: a key of ``layers.STYLES``: "llama", "gpt", "huggingface", "huggingface, masked",
            "huggingface, normed", "torchtitan", "torchtitan, written", "torchtitan, normed",
            "torchtitan, repeated".
        accumulation: batches that go forward and backward before the optimizer's step.
        keep: gathered parameters are kept until the last of these batches, and gradients reduced
            with it (ZeRO-1: Rajbhandari et al., 2020); "gradients": only these wait for the last;
            "weights": gathered parameters are kept until the optimizer's step, and gradients
            reduced for each batch (ZeRO-2); otherwise FSDP gathers and reduces for each one.
        ends: a key of ``parallel.ENDS``: how embedding and head are split.
        loss: a key of ``losses.LOSSES``.
        chunks: parts of a batch's tokens or of the vocabulary, of losses that take them.
        loss_dtype: that scores are cast to for the loss.
        hold: a variable of the loop holds a batch's scores until the next batch has some, past
            what a compiler could free: as the model returns them, or as "cast" to the loss's dtype.
        tied: the head's weight is the embedding's.
        rotate: how keys and values come to other ranks of the axis "cp": "allgather" or
            "alltoall", as of ``parallel.split_sequence``.
        schedule: of a pipeline: "GPipe", "1F1B", "Interleaved1F1B".
        microbatches: of a pipeline, per step.
        stages: of a pipeline, per rank; more than one with "Interleaved1F1B" only.
        fp8: the blocks' linear layers compute in FP8 (``low_precision.py``); "delayed": by scales
            of earlier steps.
    """

    layers: int
    width: int
    heads: Heads
    hidden: int
    vocabulary: int = 128256
    sequence: int = 8192
    sequences: int = 1
    checkpoint: bool | int | str = False
    dtype: torch.dtype = torch.bfloat16
    kept_dtype: torch.dtype = torch.float32
    fused: bool = False
    reduce_dtype: torch.dtype = torch.float32
    style: str = "llama"
    accumulation: int = 1
    keep: bool | str = False
    ends: str = "split"
    loss: str = "whole"
    chunks: int = 8
    loss_dtype: torch.dtype = torch.float32
    hold: bool | str = False
    tied: bool = False
    rotate: str = "allgather"
    schedule: str = "1F1B"
    microbatches: int = 4
    stages: int = 1
    fp8: bool | str = False


class Llama(nn.Module):
    """The model, or a pipeline stage of it: some layers, the ends where it has them.

    Args:
        config: the whole model's.
        layers: numbers of the blocks; default: all.
        first: takes tokens (B, S); otherwise what the stage before returns.
        last: returns scores (B, S, V); otherwise the residual stream (B, S, D).
    """

    def __init__(
        self, config: Config, layers: range | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.config = config
        width, vocabulary, style = config.width, config.vocabulary, STYLES[config.style]
        self.embedding = nn.Embedding(vocabulary, width) if first else None
        learned = first and style.learned_positions
        self.positions = nn.Embedding(config.sequence, width) if learned else None
        self.layers = nn.ModuleDict(
            {
                str(number): Block(width, config.heads, config.hidden, config.style)
                for number in (range(config.layers) if layers is None else layers)
            }
        )
        self.norm = style.norm(width) if last else None
        self.head = (
            Head(width, vocabulary, config.loss, config.chunks, config.loss_dtype, tied=config.tied)
            if last
            else None
        )
        self.register_buffer("rotary", self._rotary(), persistent=False)

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Scores of the next token, or what the next stage takes; with ``targets``, as ``Head``."""
        if self.embedding is not None:
            x = self.embedding(x)
        if self.positions is not None:
            x = x + self.positions.weight
        # As an argument only where there is one: how blocks are split names those that they take.
        style = STYLES[self.config.style]
        mask = [before(x.shape[1], x.device)] if style.masked else []
        table = None if self.rotary is None else style.table(self.rotary, x.dtype)
        for block in self.layers.values():
            x = block(x, table, *mask)
        if self.head is None or self.norm is None:
            return x
        x = self.norm(x)
        if targets is None and not self.config.tied:
            return self.head(x)
        return self.head(x, targets, self.embedding.weight if self.config.tied else None)

    def initialise(self) -> None:
        """Give every parameter and buffer its first value, where it is."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding) and module.weight is not None:
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.RMSNorm | nn.LayerNorm):
                nn.init.ones_(module.weight)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, DelayedLinear):
                module.begin()
        if self.rotary is not None:
            self.rotary = self._rotary(self.rotary.device)

    def _rotary(self, device: torch.device | None = None) -> torch.Tensor | None:
        if STYLES[self.config.style].learned_positions:
            return None
        heads = self.config.heads
        return rotary_table(self.config.sequence, heads.size, heads.theta, device)
