"""Tiny models whose training steps are recorded on real tensors: transformer, MoE, ResNet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.size = dim // heads
        self.wq = nn.Linear(dim, heads * self.size, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wo = nn.Linear(heads * self.size, dim, bias=False)

    def forward(self, x, turns):
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.size).transpose(1, 2)
            for layer in (self.wq, self.wk, self.wv)
        )
        q, k = turned(q, turns), turned(k, turns)
        repeats = q.shape[1] // k.shape[1]
        k, v = (
            item[:, :, None].expand(-1, -1, repeats, -1, -1).reshape(q.shape) for item in (k, v)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


def turned(x, turns):
    cos, sin = turns
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class SwiGlu(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """Top-2 of 4 experts, every expert on every token, weighted by what was routed to it."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.router = nn.Linear(dim, 4, bias=False)
        self.experts = nn.ModuleList([SwiGlu(dim, hidden) for _ in range(4)])

    def forward(self, x):
        scores, chosen = torch.topk(F.softmax(self.router(x), -1), 2, dim=-1)
        weights = torch.zeros(*x.shape[:-1], 4).scatter(-1, chosen, scores)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + expert(x) * weights[..., number : number + 1]
        return out


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, mlp):
        super().__init__()
        self.norm1 = nn.RMSNorm(dim, eps=1e-5)
        self.attention = Attention(dim, heads, kv_heads)
        self.norm2 = nn.RMSNorm(dim, eps=1e-5)
        self.mlp = mlp(dim, 2 * dim)

    def forward(self, x, turns):
        x = x + self.attention(self.norm1(x), turns)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, dim=32, layers=2, heads=8, kv_heads=4, vocab=64, length=16, mlp=SwiGlu):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Block(dim, heads, kv_heads, mlp) for _ in range(layers)])
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, vocab, bias=False)
        half = torch.arange(0, dim // heads, 2).float() / (dim // heads)
        turn = torch.outer(torch.arange(length).float(), 1 / 1e4**half)
        turn = torch.cat([turn, turn], -1)
        self.register_buffer("cos", turn.cos(), persistent=False)
        self.register_buffer("sin", turn.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, (self.cos, self.sin))
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.short = nn.Conv2d(channels, channels, 1, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, channels=8, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(Bottleneck(channels, 1), Bottleneck(channels, 2))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


def token_batch(vocab=64, batch=4, length=16):
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(0, vocab, (batch, length), generator=generator) for _ in range(2))


def image_batch(classes=5, batch=4, size=17):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn((batch, 3, size, size), generator=generator)
    return images, torch.randint(0, classes, (batch,), generator=generator)


def trainer(model, optimizer, clip=None, autocast=False):
    """A training step that returns the loss and the gradients."""

    def step(data, labels):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = model(data)
        loss = F.cross_entropy(out.float().flatten(0, -2), labels.flatten())
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return [loss, *(parameter.grad for parameter in model.parameters())]

    return step
