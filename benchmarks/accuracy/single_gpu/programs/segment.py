"""A segmentation network of torchvision, float16 autocast with a scaler, polynomial decay."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--model", default="deeplabv3_resnet50")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--pixels", type=int, default=512)
args = parser.parse_args()
if args.tiny:
    args.batch, args.pixels = 2, 64
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torchvision.models.segmentation.__dict__[args.model](
    weights=None, weights_backbone=None, num_classes=21, aux_loss=True
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, 1000, 0.9)
scaler = torch.amp.GradScaler(device)
images = torch.randn(args.batch, 3, args.pixels, args.pixels, device=device)
labels = torch.randint(0, 21, (args.batch, args.pixels, args.pixels), device=device)
for step in range(args.steps):
    with torch.autocast(device, torch.float16):
        made = model(images)
        loss = torch.nn.functional.cross_entropy(made["out"], labels, ignore_index=255)
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(made["aux"], labels, ignore_index=255)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if step % 10 == 0:
        print(step, loss.item())
