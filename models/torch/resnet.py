"""ResNet-50 v1.5 in PyTorch, data parallel: DistributedDataParallel, SGD with momentum.

The idea: the published network in plain ``torch.nn``, its modules registered in the order in which
they run; DDP does the rest.  Every rank has all weights and its own images; gradients are
all-reduced in buckets while the backward pass runs, and batch norm's running statistics are those
of the group's first rank, broadcast before every forward pass.

    flint capture models/torch/resnet.py:train_resnet50 --mesh 512 -o out/

Sources: He et al., "Deep Residual Learning for Image Recognition", 2015 (table 1); v1.5 has a
bottleneck's stride in its 3x3 convolution.  Training: Goyal et al., "Accurate, Large Minibatch
SGD", 2017.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import flint

#: Channels of a bottleneck's result over those of its 3x3 convolution.
EXPANSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        blocks: bottlenecks of each stage; each stage but the first halves height and width.
        width: channels of the stem and of the first stage's 3x3 convolutions; doubled per stage.
        classes: number of classes.
        size: height and width of an image.
        images: images of a rank's batch.
        soft: targets are probabilities of all classes (mixed or smoothed labels), not a class.
        autocast: type of convolutions' and the classifier's arguments; None: float32 throughout.
        rate, momentum, decay: of stochastic gradient descent.
        bucket: limit of a bucket of gradients, 2**20 bytes (DDP's ``bucket_cap_mb``); None: DDP's
            own, 1 for the first bucket and 25 for the others.
        bucket_view: gradients are views of the buckets, which saves their copies.
        buffers: running statistics are broadcast before every forward pass.
        unused: look for parameters that got no gradient (DDP's ``find_unused_parameters``).
    """

    blocks: tuple[int, ...]
    width: int = 64
    classes: int = 1000
    size: int = 224
    images: int = 32
    soft: bool = False
    autocast: torch.dtype | None = None
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4
    bucket: int | None = None
    bucket_view: bool = False
    buffers: bool = True
    unused: bool = False


TINY = Config(blocks=(1, 1), width=8, classes=16, size=32, images=2)
RESNET50 = Config(blocks=(3, 4, 6, 3))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` (N, C, H, W)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        # Last in the forward pass, thus first in the backward pass: DDP's buckets depend on it.
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """Stem, four stages of bottlenecks, average, classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, config.width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(config.width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        stages, channels = [], config.width
        for number, count in enumerate(config.blocks):
            width = config.width << number
            strides = [1 if number == 0 else 2] + [1] * (count - 1)
            blocks = []
            for stride in strides:
                blocks.append(Bottleneck(channels, width, stride))
                channels = width * EXPANSION
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, config.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (N, classes) of ``images`` (N, 3, H, W)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.avgpool(self.stages(x))
        scores: torch.Tensor = self.fc(x.flatten(1))
        return scores


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer, batch and config for a one-axis mesh of data-parallel ranks."""
    device = mesh.device_type
    with torch.device(device):
        model = ResNet(config)
        images = torch.randn(config.images, 3, config.size, config.size)
        if config.soft:
            targets = torch.softmax(torch.randn(config.images, config.classes), -1)
        else:
            targets = torch.randint(config.classes, (config.images,))
    parallel = DistributedDataParallel(
        model,
        process_group=mesh.get_group(),
        bucket_cap_mb=config.bucket,
        gradient_as_bucket_view=config.bucket_view,
        broadcast_buffers=config.buffers,
        find_unused_parameters=config.unused,
    )
    optimizer = torch.optim.SGD(
        parallel.parameters(), config.rate, config.momentum, weight_decay=config.decay
    )
    return parallel, optimizer, (images, targets), config


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    config: Config,
) -> torch.Tensor:
    """One training step; returns the loss of the rank's images."""
    images, targets = batch
    optimizer.zero_grad()
    with torch.autocast(images.device.type, config.autocast, enabled=config.autocast is not None):
        scores = model(images)
        loss = F.cross_entropy(scores, targets)
    loss.backward()
    optimizer.step()
    return loss


def training(config: Config) -> Callable[..., Any]:
    """The step of a config, ready for capture; any number of ranks with ``.at(mesh=...)``."""
    capture: Callable[..., Any] = flint.capture(
        mesh=(2,), axes=("dp",), setup=functools.partial(build, config)
    )(step)
    return capture


train_resnet50 = training(RESNET50)
train_tiny = training(TINY)
