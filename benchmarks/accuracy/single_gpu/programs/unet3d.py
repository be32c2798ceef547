"""Segmentation of volumes: a 3D UNet with instance norms, float16 autocast with a scaler, SGD."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--size", type=int, default=128)
parser.add_argument("--width", type=int, default=32)
args = parser.parse_args()
if args.tiny:
    args.size, args.width = 32, 4
device = "cuda" if torch.cuda.is_available() else "cpu"


def pair(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (inputs, outputs):
        layers += [
            nn.Conv3d(before, outputs, 3, padding=1, bias=False),
            nn.InstanceNorm3d(outputs, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width, 10 * width]
        self.down = nn.ModuleList(pair(a, b) for a, b in zip([4, *sizes], sizes))
        self.larger = nn.ModuleList(
            nn.ConvTranspose3d(b, a, 2, stride=2) for a, b in zip(sizes, sizes[1:])
        )
        self.up = nn.ModuleList(pair(2 * a, a) for a in sizes[:-1])
        self.last = nn.Conv3d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool3d(x, 2) if i else x)
            kept.append(x)
        kept.pop()
        for larger, block in zip(reversed(self.larger), reversed(self.up)):
            x = block(torch.cat((larger(x), kept.pop()), dim=1))
        return self.last(x)


torch.manual_seed(0)
model = UNet(args.width).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.99, nesterov=True)
scaler = torch.amp.GradScaler(device)
volumes = torch.randn(2, args.batch, 4, args.size, args.size, args.size, device=device)
labels = torch.randint(0, 4, (2, args.batch, args.size, args.size, args.size), device=device)
for step in range(args.steps):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, torch.float16):
        loss = F.cross_entropy(model(volumes[step % 2]), labels[step % 2])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 12)
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, loss.item())
