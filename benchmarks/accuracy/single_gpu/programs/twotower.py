"""Retrieval: two towers of embeddings and perceptrons, a softmax over the batch; TF32, Adam."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=8192)
parser.add_argument("--rows", type=int, default=2_000_000)
args = parser.parse_args()
if args.tiny:
    args.batch, args.rows = 16, 100
device = "cuda" if torch.cuda.is_available() else "cpu"
FIELDS, WIDTH = 8, 64


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(args.rows, WIDTH)
        self.network = nn.Sequential(
            nn.Linear(FIELDS * WIDTH, 1024),
            nn.BatchNorm1d(1024),
            nn.ReLU(),
            nn.Linear(1024, 512),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 128),
        )

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.network(self.rows(fields).flatten(1)), dim=1)


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
users, items = Tower().to(device), Tower().to(device)
optimizer = torch.optim.Adam(
    [*users.parameters(), *items.parameters()], lr=1e-3, fused=device == "cuda"
)
data = torch.randint(0, args.rows, (2, 2, args.batch, FIELDS), device=device)
labels = torch.arange(args.batch, device=device)
for step in range(args.steps):
    scores = users(data[step % 2, 0]) @ items(data[step % 2, 1]).T / 0.05
    loss = F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
