"""A training step of one of timm's models, as timm's own benchmark times it: FP16 autocast, SGD.

    flint run --world 1 -o out/ -- python benchmarks/accuracy/vision.py resnet50 512 224
    flint simulate out/ --system benchmarks/accuracy/rtx3090.toml

The idea: what timm published for 14 models on one RTX 3090 (``vision.csv``) is compared with the
captures of this program, which needs timm and torchvision.  Nothing is fitted to these times.
"""

import argparse

import timm
import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", help="as timm names it")
parser.add_argument("batch", type=int, help="images")
parser.add_argument("size", type=int, help="pixels along each side")
options = parser.parse_args()

model = timm.create_model(options.model, num_classes=1000).cuda()
model = model.to(memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
shape = (options.batch, 3, options.size, options.size)
images = torch.randn(shape, device="cuda").contiguous(memory_format=torch.channels_last)
labels = torch.randint(0, 1000, (options.batch,), device="cuda")
for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
