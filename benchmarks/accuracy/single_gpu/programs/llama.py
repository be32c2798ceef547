"""Llama of about 1B parameters in bfloat16: grouped queries, SwiGLU, rotary embedding."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=16)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--inner", type=int, default=8192)
parser.add_argument("--heads", type=int, default=32)
parser.add_argument("--kv", type=int, default=8)
parser.add_argument("--vocabulary", type=int, default=32000)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width, args.inner = 2, 64, 2, 64, 128
    args.heads, args.kv, args.vocabulary = 4, 2, 256
device = "cuda" if torch.cuda.is_available() else "cpu"


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = args.width // args.heads
        self.norm1, self.norm2 = nn.RMSNorm(args.width), nn.RMSNorm(args.width)
        self.q = nn.Linear(args.width, args.heads * size, bias=False)
        self.k = nn.Linear(args.width, args.kv * size, bias=False)
        self.v = nn.Linear(args.width, args.kv * size, bias=False)
        self.o = nn.Linear(args.heads * size, args.width, bias=False)
        self.gate = nn.Linear(args.width, args.inner, bias=False)
        self.up = nn.Linear(args.width, args.inner, bias=False)
        self.down = nn.Linear(args.inner, args.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (
            f(y).view(b, t, -1, args.width // args.heads).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(args.vocabulary, args.width)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.width)
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)
        size = args.width // args.heads
        angles = torch.outer(torch.arange(args.length), 1e4 ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            if args.checkpoint:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        scores = self.head(self.norm(x)).float()
        return F.cross_entropy(scores.view(-1, args.vocabulary), targets.view(-1))


torch.manual_seed(0)
with torch.device(device):
    model: nn.Module = Llama().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
if args.compile:
    model = torch.compile(model)
data = torch.randint(0, args.vocabulary, (8, args.batch, args.length + 1))
for step in range(args.steps):
    batch = data[step % 8].to(device)
    loss = model(batch[:, :-1], batch[:, 1:].contiguous())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
