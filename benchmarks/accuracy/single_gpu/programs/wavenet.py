"""Audio: thirty dilated, gated convolutions over samples; float16 autocast with a scaler, Adam."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--samples", type=int, default=16384)
parser.add_argument("--width", type=int, default=128)
args = parser.parse_args()
layers = 30
if args.tiny:
    args.batch, args.samples, args.width, layers = 2, 256, 16, 4
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.gated = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.out, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.gated(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        y = torch.tanh(a) * torch.sigmoid(b)
        return x + self.out(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, 2 ** (i % 10)) for i in range(layers))
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv1d(2 * width, 2 * width, 1), nn.ReLU(), nn.Conv1d(2 * width, 256, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).transpose(1, 2)
        total = 0
        for block in self.blocks:
            y, skip = block(y)
            total = total + skip
        return self.head(total)


torch.manual_seed(0)
model = WaveNet(args.width).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
sound = torch.randint(0, 256, (2, args.batch, args.samples + 1), device=device)
for step in range(args.steps):
    optimizer.zero_grad()
    with torch.autocast(device, torch.float16):
        loss = F.cross_entropy(model(sound[step % 2, :, :-1]), sound[step % 2, :, 1:])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, loss.item())
