"""A mixture of experts as grouped products: 64 experts, 6 of them a token, bfloat16, AdamW."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--inner", type=int, default=1024)
parser.add_argument("--experts", type=int, default=64)
parser.add_argument("--chosen", type=int, default=6)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width, args.inner, args.experts, args.chosen = (
        2,
        32,
        2,
        128,
        64,
        8,
        2,
    )
device = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 50304 if not args.tiny else 512


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        e, d, h = args.experts, args.width, args.inner
        self.router = nn.Linear(d, e, bias=False)
        self.up = nn.Parameter(torch.randn(e, d, 2 * h) * 0.02)
        self.down = nn.Parameter(torch.randn(e, h, d) * 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape, x = x.shape, x.reshape(-1, args.width)
        weights, chosen = self.router(x).float().softmax(-1).topk(args.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=args.experts)
        ends = counts.cumsum(0).to(torch.int32)
        rows = order // args.chosen
        gate, up = torch._grouped_mm(x[rows], self.up, offs=ends).chunk(2, dim=-1)
        y = torch._grouped_mm(F.silu(gate) * up, self.down, offs=ends)
        y = y * weights.flatten()[order, None].to(y.dtype)
        return torch.zeros_like(x).index_add(0, rows, y).view(shape)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(args.width), nn.RMSNorm(args.width)
        self.qkv = nn.Linear(args.width, 3 * args.width, bias=False)
        self.out = nn.Linear(args.width, args.width, bias=False)
        self.experts = Experts()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, -1, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.experts(self.norm2(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, args.width)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.width)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.view(-1, VOCABULARY).float(), targets.reshape(-1))


torch.manual_seed(0)
with torch.device(device):
    model = Model().to(torch.bfloat16)
    data = torch.randint(0, VOCABULARY, (8, args.batch, args.length + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(args.steps):
    loss = model(data[step % 8, :, :-1], data[step % 8, :, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
