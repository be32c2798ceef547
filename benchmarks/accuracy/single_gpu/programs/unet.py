"""A step of a diffusion model: UNet with group norms and attention, TF32, averaged weights."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--width", type=int, default=192)
parser.add_argument("--pixels", type=int, default=64)
parser.add_argument("--autocast", action="store_true")
args = parser.parse_args()
if args.tiny:
    args.batch, args.width, args.pixels = 2, 32, 16
device = "cuda" if torch.cuda.is_available() else "cpu"


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, 2 * outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.norm2(y) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(y))


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, -1, 32, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        sizes = [width, 2 * width, 3 * width]
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        before = width
        for i, size in enumerate(sizes):
            self.down.append(
                nn.ModuleList(
                    [
                        Residual(before, size, time),
                        Residual(size, size, time),
                        Attention(size) if i else nn.Identity(),
                        nn.Conv2d(size, size, 3, stride=2, padding=1),
                    ]
                )
            )
            before = size
        self.middle = nn.ModuleList([Residual(before, before, time), Attention(before)])
        for i, size in reversed(list(enumerate(sizes))):
            self.up.append(
                nn.ModuleList(
                    [
                        Residual(before + size, size, time),
                        Residual(size, size, time),
                        Attention(size) if i else nn.Identity(),
                    ]
                )
            )
            before = size
        self.last = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)
        )
        self.width = width

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(
            torch.arange(self.width // 2, device=x.device) * (-9.2 / (self.width // 2))
        )
        angles = t[:, None] * rates
        time = self.time(torch.cat((angles.sin(), angles.cos()), dim=1))
        x, kept = self.first(x), []
        for one, two, attention, smaller in self.down:
            x = attention(two(one(x, time), time))
            kept.append(x)
            x = smaller(x)
        x = self.middle[1](self.middle[0](x, time))
        for one, two, attention in self.up:
            x = torch.cat((F.interpolate(x, scale_factor=2.0), kept.pop()), dim=1)
            x = attention(two(one(x, time), time))
        return self.last(x)


torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
model = UNet(args.width).to(device)
average = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9999)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), dim=0)
data = torch.randn(2, args.batch, 4, args.pixels, args.pixels, device=device)
for step in range(args.steps):
    images = data[step % 2]
    noise = torch.randn_like(images)
    t = torch.randint(0, 1000, (args.batch,), device=device)
    a = alphas[t][:, None, None, None]
    with torch.autocast(device, torch.bfloat16, enabled=args.autocast):
        loss = F.mse_loss(model(a.sqrt() * images + (1 - a).sqrt() * noise, t).float(), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    if step % 10 == 0:
        print(step, loss.item())
