"""A small network on tables: linear layers, batch norms, dropout; the loss is read every step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=1024)
parser.add_argument("--layers", type=int, default=24)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.network(x)


model = nn.Sequential(
    nn.Linear(100, 512), *(Layer(512) for _ in range(args.layers)), nn.Linear(512, 10)
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
features = torch.randn(64 * args.batch, 100)
labels = torch.randint(0, 10, (64 * args.batch,))
total = 0.0
for step in range(args.steps):
    at = slice(step % 64 * args.batch, (step % 64 + 1) * args.batch)
    x, y = features[at].to(device), labels[at].to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total / args.steps)
