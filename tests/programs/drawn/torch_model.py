"""The model of a program drawn from a number: attention, convolutions, mixtures, shared blocks."""

from functools import partial

import torch
from drawing import pick
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, WORDS, LENGTH = (
    pick([16, 32, 48]), pick([2, 4]), pick([40, 64, 96]), pick([8, 12])
)  # fmt: skip
TIED = pick([True, False, False])


class Feedforward(nn.Module):
    def __init__(self):
        super().__init__()
        inner, bias = pick([2, 3, 4]) * WIDTH, pick([True, False])
        self.act = pick([functional.gelu, functional.silu, torch.tanh])
        self.up, self.down = nn.Linear(WIDTH, inner, bias), nn.Linear(inner, WIDTH, bias)
        self.gate = nn.Linear(WIDTH, inner, bias) if pick([True, False]) else None

    def forward(self, x):
        hidden = self.act(self.up(x))
        return self.down(hidden if self.gate is None else hidden * self.gate(x))


class Mixture(nn.Module):
    """Every expert for every row."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        shares = self.router(x).softmax(-1).unsqueeze(-1).unbind(-2)
        return sum(share * expert(x) for share, expert in zip(shares, self.experts, strict=True))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = pick(["written", "grouped", "module"])
        self.pairs = HEADS // 2 if self.kind == "grouped" else HEADS
        size = WIDTH // HEADS
        self.sizes = [WIDTH, self.pairs * size, self.pairs * size]
        if self.kind == "module":
            self.whole = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        else:
            self.read, self.out = nn.Linear(WIDTH, sum(self.sizes)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        if self.kind == "module":
            return self.whole(x, x, x, need_weights=True)[0]
        parts = self.read(x).split(self.sizes, -1)
        q, k, v = (item.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for item in parts)
        k, v = (item.repeat_interleave(HEADS // self.pairs, 1) for item in (k, v))
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = (q @ k.transpose(-1, -2)).masked_fill(mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=pick([1, 2]))
        self.norm = pick([nn.BatchNorm1d, partial(nn.GroupNorm, 2)])(WIDTH)

    def forward(self, x):
        return self.norm(self.filter(x.transpose(1, 2))).relu().transpose(1, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = pick([nn.LayerNorm, nn.RMSNorm])(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = pick([Attention, Attention, Convolution])()
        self.feed = pick([Feedforward, Feedforward, Mixture])()

    def forward(self, x):
        x = x + self.mix(self.first(x))
        return x + self.feed(self.second(x))


class Model(nn.Module):
    """Args:
    kept: how every second block is checkpointed: "reentrant", "not reentrant", or not at all.
    """

    def __init__(self, kept):
        super().__init__()
        self.kept = kept
        count, one = pick([1, 2, 3]), pick([True, False, False, False])
        blocks = [Block()] * count if one else [Block() for _ in range(count)]
        self.words, self.places = (
            nn.Embedding(WORDS, WIDTH),
            nn.Parameter(torch.zeros(LENGTH, WIDTH)),
        )
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("scale", torch.ones(()))
        if TIED:
            self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words) + self.places
        for number, block in enumerate(self.blocks):
            if self.kept and number % 2 == 0 and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=self.kept == "reentrant")
            else:
                x = block(x)
        return self.head(self.norm(x)) * self.scale
