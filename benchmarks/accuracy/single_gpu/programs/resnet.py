"""ResNet-50 (torchvision) in channels_last, float16 autocast with a scaler, SGD."""

import argparse

import torch
import torchvision
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--pixels", type=int, default=224)
args = parser.parse_args()
if args.tiny:
    args.model, args.batch, args.pixels = "resnet18", 2, 32
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
model: nn.Module = getattr(torchvision.models, args.model)()
model = model.to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
scaler = torch.amp.GradScaler(device)
if args.compile:
    model = torch.compile(model)
images = torch.randn(2, args.batch, 3, args.pixels, args.pixels, device=device)
labels = torch.randint(0, 1000, (2, args.batch), device=device)
for step in range(args.steps):
    x = images[step % 2].contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.float16):
        loss = loss_of(model(x), labels[step % 2])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, loss.item())
