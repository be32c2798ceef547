"""A diffusion transformer: modulated blocks on patches of latents, bfloat16 autocast, averaged weights."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=1024)
args = parser.parse_args()
if args.tiny:
    args.batch, args.layers, args.width = 2, 2, 64
device = "cuda" if torch.cuda.is_available() else "cpu"


def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        a1, b1, g1, a2, b2, g2 = self.modulation(c).chunk(6, dim=1)
        q, k, v = (
            self.qkv(modulate(self.norm1(x), a1, b1))
            .view(b, t, 3, -1, 64)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + g1[:, None] * self.out(y)
        return x + g2[:, None] * self.network(modulate(self.norm2(x), a2, b2))


class DiT(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(4, width, 2, stride=2)
        self.position = nn.Parameter(torch.zeros(1, 256, width))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(args.layers))
        self.norm, self.last = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 32)

    def forward(self, x: torch.Tensor, t: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        angles = t[:, None] * torch.exp(torch.arange(128, device=t.device) * (-9.2 / 128))
        c = self.time(torch.cat((angles.cos(), angles.sin()), dim=1)) + self.label(label)
        for block in self.blocks:
            x = block(x, c)
        return self.last(self.norm(x))


torch.manual_seed(0)
model: nn.Module = DiT(args.width).to(device)
average = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=device == "cuda")
parameters = list(model.parameters())
if args.compile:
    model = torch.compile(model)
latents = torch.randn(2, args.batch, 4, 32, 32, device=device)
for step in range(args.steps):
    x = latents[step % 2]
    t = torch.rand(args.batch, device=device)
    label = torch.randint(0, 1000, (args.batch,), device=device)
    noise = torch.randn_like(x)
    with torch.autocast(device, torch.bfloat16):
        out = model((1 - t)[:, None, None, None] * x + t[:, None, None, None] * noise, t, label)
        loss = out.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(average, parameters, 1e-4)
    if step % 10 == 0:
        print(step, loss.item())
