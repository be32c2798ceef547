"""Attention over a long sequence: causal, or a sliding window by FlexAttention; bfloat16."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--flex", action="store_true")
parser.add_argument("--length", type=int, default=16384)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--window", type=int, default=1024)
args = parser.parse_args()
if args.tiny:
    args.length, args.layers, args.width, args.window = 256, 2, 128, 128
device = "cuda" if torch.cuda.is_available() else "cpu"
attend = torch.compile(flex_attention) if device == "cuda" else flex_attention


def near(b, h, q, k):
    return (q >= k) & (q - k < args.window)


mask = (
    create_block_mask(near, None, None, args.length, args.length, device=device)
    if args.flex
    else None
)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, d // 128, 128).permute(2, 0, 3, 1, 4)
        if args.flex:
            y = attend(q, k, v, block_mask=mask)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


torch.manual_seed(0)
model = nn.Sequential(*(Block(args.width) for _ in range(args.layers))).to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(2, 1, args.length, args.width, device=device, dtype=torch.bfloat16)
for step in range(args.steps):
    loss = model(inputs[step % 2]).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
