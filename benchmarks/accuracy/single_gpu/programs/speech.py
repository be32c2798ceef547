"""Speech recognition: two convolutions over spectrograms, four bidirectional GRUs, a label for each frame; TF32."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--frames", type=int, default=600)
parser.add_argument("--width", type=int, default=800)
args = parser.parse_args()
if args.tiny:
    args.batch, args.frames, args.width = 2, 24, 32
device = "cuda" if torch.cuda.is_available() else "cpu"


class Recogniser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.layers = nn.GRU(
            32 * 40, args.width, num_layers=4, bidirectional=True, batch_first=True
        )
        self.norm = nn.LayerNorm(2 * args.width)
        self.head = nn.Linear(2 * args.width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolutions(x)
        x = x.flatten(1, 2).transpose(1, 2).contiguous()
        return self.head(self.norm(self.layers(x)[0]))


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = Recogniser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
spectra = torch.randn(2, args.batch, 1, 160, args.frames, device=device)
labels = torch.randint(0, 1000, (2, args.batch, args.frames // 2), device=device)
for step in range(args.steps):
    scores = model(spectra[step % 2])
    loss = F.cross_entropy(scores.flatten(0, 1), labels[step % 2].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 400)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
