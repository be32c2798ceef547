"""A recommender like DLRM: 26 embedding bags, pairwise products, two perceptrons; float32, Adagrad."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=16384)
parser.add_argument("--rows", type=int, default=200000)
parser.add_argument("--optimizer", choices=["Adagrad", "SGD"], default="Adagrad")
args = parser.parse_args()
if args.tiny:
    args.batch, args.rows = 16, 100
device = "cuda" if torch.cuda.is_available() else "cpu"
TABLES, WIDTH, PER_BAG = 26, 128, 4


def perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(args.rows, WIDTH, mode="sum") for _ in range(TABLES)
        )
        self.bottom = perceptron(13, 512, 256, WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.top = perceptron(pairs + WIDTH, 1024, 1024, 512, 256, 1)
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = [table(sparse[i]) for i, table in enumerate(self.tables)]
        y = torch.stack([x, *rows], dim=1)
        products = torch.bmm(y, y.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((x, products), dim=1)).squeeze(1)


torch.manual_seed(0)
model = DLRM().to(device)
optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.01)
loss_of = nn.BCEWithLogitsLoss()
dense = torch.randn(2, args.batch, 13, device=device)
sparse = torch.randint(0, args.rows, (2, TABLES, args.batch, PER_BAG), device=device)
labels = torch.randint(0, 2, (2, args.batch), device=device).float()
for step in range(args.steps):
    loss = loss_of(model(dense[step % 2], sparse[step % 2]), labels[step % 2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
