"""PyTorch's own transformer encoder in float32, with TF32 or without, Adam."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--tf32", action="store_true")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--length", type=int, default=256)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--width", type=int, default=1024)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width = 2, 16, 2, 64
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
layer = nn.TransformerEncoderLayer(args.width, args.width // 64, 4 * args.width, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, args.layers), nn.Linear(args.width, 1)).to(
    device
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
inputs = torch.randn(4, args.batch, args.length, args.width, device=device)
targets = torch.randn(4, args.batch, args.length, 1, device=device)
for step in range(args.steps):
    loss = nn.functional.mse_loss(model(inputs[step % 4]), targets[step % 4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
