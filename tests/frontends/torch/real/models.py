"""A transformer and a ResNet in a few lines, on whatever device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

DIM, HIDDEN, VOCAB, LENGTH, LAYERS, HEADS, KV_HEADS = 32, 64, 64, 16, 2, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = DIM // HEADS
        self.wq, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(DIM, KV_HEADS * self.size, bias=False) for _ in range(2))

    def forward(self, x, turns):
        batch, length, _ = x.shape
        q, k, v = (
            w(x).view(batch, length, -1, self.size).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        q, k = turned(q, turns), turned(k, turns)
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


def turned(x, turns):
    """Rotary positions: turns [length, size / 2, 2] of cosines and sines."""
    cos, sin = turns.to(x.dtype).unbind(-1)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class SwiGlu(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(DIM, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Norm(nn.Module):
    """Root mean square norm, op by op."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
        return x * scale.type_as(x) * self.weight


class Block(nn.Module):
    def __init__(self, norm=Norm):
        super().__init__()
        self.norm1, self.norm2 = norm(), norm()
        self.attention, self.mlp = Attention(), SwiGlu()

    def forward(self, x, turns):
        x = x + self.attention(self.norm1(x), turns)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, layers=range(LAYERS), first=True, last=True, norm=Norm):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM) if first else None
        self.layers = nn.ModuleDict({str(i): Block(norm) for i in layers})
        self.norm = norm() if last else None
        self.head = nn.Linear(DIM, VOCAB, bias=False) if last else None
        self.register_buffer("turns", torch.empty(LENGTH, DIM // HEADS // 2, 2), persistent=False)

    def start(self):
        """Values for what was made on the meta device."""
        with torch.no_grad():
            for item in (*self.parameters(), *self.buffers()):
                item.fill_(0.01)
        return self

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, self.turns)
        return x if self.head is None else self.head(self.norm(x))


class ResNet(nn.Module):
    def __init__(self, channels=8, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, 1, 1)
        self.norm2 = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.stem(x)), inplace=True), 3, 2, 1)
        x = F.relu(self.norm2(self.conv(x)) + x, inplace=True)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
