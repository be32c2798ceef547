"""Small work for a large device: a GPT of 10M parameters on short sequences; the loss is read each step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=384)
args = parser.parse_args()
if args.tiny:
    args.layers, args.width, args.length = 2, 64, 16
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(
    args.width,
    6 if not args.tiny else 2,
    4 * args.width,
    dropout=0.1,
    activation="gelu",
    batch_first=True,
    norm_first=True,
)
model: nn.Module = nn.Sequential(
    nn.Embedding(256, args.width),
    nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False),
    nn.Linear(args.width, 256),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
if args.compile:
    model = torch.compile(model)
data = torch.randint(0, 256, (8, args.batch, args.length + 1))
losses = []
for step in range(args.steps):
    batch = data[step % 8].to(device)
    with torch.autocast(device, torch.bfloat16):
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
