"""Recipes of convolutional networks, as torchvision has them.

expressed(recipe)              # Expressed, or the reason why it is not
"""

from __future__ import annotations

import re
from typing import Any

import torch
from cases_of_runs import Case, NoCase
from expressed import Expressed, Part, as_run
from recipes import Recipe
from torch import nn
from torch_models import each_of
from trainers import SYSTEMS, first

import flint

_DIFFERS = "torchvision's network; images that are there already; SGD with momentum"


def network(name: str) -> nn.Module:
    """A network by the name in a row.

    Raises:
        KeyError: there is no such network here.
    """
    import torchvision.models as models
    from torchvision.models.resnet import Bottleneck, ResNet

    made = {
        "ResNeXt-101 32x4d": lambda: ResNet(
            Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4
        ),
        "EfficientNet-B4": models.efficientnet_b4,
    }
    return made[name]()


def training(name: str, images: int, size: int, classes: int, count: int) -> Any:
    """A step of ``count`` batches in mixed precision, channels last, on one GPU."""

    def setup(mesh: Any) -> tuple[Any, ...]:
        with torch.device(mesh.device_type):
            model = network(name)
            pixels = torch.randn(count, images, 3, size, size)
            labels = torch.randint(classes, (count, images))
        model = model.to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        batches = [item.contiguous(memory_format=torch.channels_last) for item in pixels]
        return model, optimizer, batches, list(labels)

    def step(model: nn.Module, optimizer: Any, batches: Any, labels: Any) -> torch.Tensor:
        optimizer.zero_grad()
        for pixels, goals in zip(batches, labels, strict=True):
            with torch.autocast(pixels.device.type, dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(pixels), goals, label_smoothing=0.1)
            loss.backward()
        optimizer.step()
        return loss

    return flint.capture(step, mesh=(1,), axes=("dp",), setup=setup, framework="torch")


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A row of a network on one GPU, without its memory."""
    sizes = recipe.sizes
    found = re.search(r"(\d+) accumulation", recipe.microbatches)
    batches, each = int(found[1]) if found else 1, each_of(recipe, {"dp": 1}, 1)
    system, accelerator = first(SYSTEMS, recipe.accelerator)

    def capture(count: int) -> Any:
        step = training(sizes["network"], each, sizes["image"], sizes["classes"], count)
        return step.capture()

    case = Case(
        run=as_run(recipe),
        measured=float("nan"),
        system=system,
        accelerator=accelerator,
        key=f"vision-{sizes['network']}-{each}-{sizes['image']}",
        expressed=f"one device, {batches} batches",
        note=_DIFFERS,
        capture=capture,
        batches=batches,
        recorded=(1, 2),
    )
    differs = f"{case.expressed}; {case.note}"
    return Expressed((Part(1.0, case),), each * batches, differs, memory=False)
