"""Transformer blocks whose linear layers multiply in float8 with a scale per row (torch._scaled_mm)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=3072)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width = 2, 32, 2, 128
device = "cuda" if torch.cuda.is_available() else "cpu"


def rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / 448.0
    return (x / scale).to(torch.float8_e4m3fn), scale


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a [m, k] times b [n, k] transposed."""
    (a8, sa), (b8, sb) = rows(a), rows(b)
    if device == "cpu":
        return ((a8.float() * sa) @ (b8.float() * sb).t()).to(torch.bfloat16)
    return torch._scaled_mm(a8, b8.t(), scale_a=sa, scale_b=sb.t(), out_dtype=torch.bfloat16)


class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return product(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        by_input = product(gradient, weight.t().contiguous())
        by_weight = product(gradient.t().contiguous(), x.t().contiguous())
        return by_input, by_weight


class Linear(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Multiply.apply(x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = Linear(width, 3 * width, bias=False), Linear(width, width, bias=False)
        self.up, self.down = (
            Linear(width, 4 * width, bias=False),
            Linear(4 * width, width, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(b, t, 3, d // 128, 128).permute(2, 0, 3, 1, 4).unbind(0)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())


torch.manual_seed(0)
with torch.device(device):
    blocks = nn.ModuleList(Block(args.width) for _ in range(args.layers)).to(torch.bfloat16)
if args.compile:
    for block in blocks:
        block.compile()
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4, fused=device == "cuda")
inputs = torch.randn(args.batch, args.length, args.width, device=device, dtype=torch.bfloat16)
for step in range(args.steps):
    x = inputs
    for block in blocks:
        x = block(x)
    loss = x.float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
