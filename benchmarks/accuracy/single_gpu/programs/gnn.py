"""A graph network: four layers of sums over neighbours on 200,000 nodes and 3 million edges; float32 (TF32), Adam."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--nodes", type=int, default=200_000)
parser.add_argument("--edges", type=int, default=3_000_000)
parser.add_argument("--width", type=int, default=256)
args = parser.parse_args()
if args.tiny:
    args.nodes, args.edges, args.width = 100, 500, 32
device = "cuda" if torch.cuda.is_available() else "cpu"


class Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
        sent = self.others(x).index_select(0, edges[0])
        sums = torch.zeros(x.shape[0], sent.shape[1], device=x.device).index_add_(0, edges[1], sent)
        return F.relu(self.norm(self.own(x) + sums / degrees))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [128, args.width, args.width, args.width, args.width]
        self.layers = nn.ModuleList(Layer(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(args.width, 47)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.dropout(layer(x, edges, degrees), 0.5)
        return self.head(x)


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = Network().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
x = torch.randn(args.nodes, 128, device=device)
edges = torch.randint(0, args.nodes, (2, args.edges), device=device)
degrees = torch.full((args.nodes, 1), args.edges / args.nodes, device=device)
labels = torch.randint(0, 47, (args.nodes,), device=device)
for step in range(args.steps):
    loss = F.cross_entropy(model(x, edges, degrees), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
