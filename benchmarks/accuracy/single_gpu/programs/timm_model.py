"""An image model of timm (ViT-B/16 by default), bfloat16 autocast, AdamW."""

import argparse

import timm
import timm.loss
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--model", default="vit_base_patch16_224")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--channels-last", action="store_true")
args = parser.parse_args()
if args.tiny:
    args.model, args.batch = {"vit": "vit_tiny_patch16_224"}.get(args.model[:3], args.model), 2
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
model = timm.create_model(args.model, num_classes=1000).to(device)
layout = torch.channels_last if args.channels_last else torch.contiguous_format
model = model.to(memory_format=layout)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
loss_of = timm.loss.LabelSmoothingCrossEntropy(0.1)
images = torch.randn(2, args.batch, 3, 224, 224)
labels = torch.randint(0, 1000, (2, args.batch))
if device == "cuda":
    images, labels = images.pin_memory(), labels.pin_memory()
for step in range(args.steps):
    x = images[step % 2].to(device, non_blocking=True).contiguous(memory_format=layout)
    y = labels[step % 2].to(device, non_blocking=True)
    with torch.autocast(device, torch.bfloat16):
        loss = loss_of(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
