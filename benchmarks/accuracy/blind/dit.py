"""Recipes of diffusion transformers on GPUs, as fast-DiT runs them (``models.py``, ``train.py``).

The idea: mixed precision by autocast leaves the residual stream, norms and modulation in single
precision, each an operation a kernel; only what products read is cast. Its logs tell PyTorch 1.13
(a warning of line 554 of ``dataloader.py``, which is at 561 in 2.0), which has no fused attention.

expressed(recipe)              # Expressed, without the loss's scaling
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from cases_of_runs import Case, NoCase
from differing import DIFFERS
from expressed import Expressed, Part, as_run
from recipes import Recipe
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainers import SYSTEMS, first

import flint

#: Parts of the modulation of a block: shift, scale and gate of either half; of the last layer.
_BLOCK, _LAST = 6, 2
#: Frequencies of a time step's embedding, and classes with the one of dropped labels.
_FREQUENCIES, _CLASSES = 256, 1001


def modulated(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """(B, S, D), scaled and shifted by (B, D)."""
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    """Peebles and Xie, "Scalable Diffusion Models with Transformers" (2023), adaLN-Zero."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, _BLOCK * width))

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D), as timm's without a fused kernel."""
        batch, length, width = x.shape
        split = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """(B, S, D), (B, D) -> (B, S, D)."""
        one, two, gate, three, four, last = self.modulation(condition).chunk(_BLOCK, dim=1)
        x = x + gate.unsqueeze(1) * self.attention(modulated(self.norm(x), one, two))
        seen = modulated(self.norm(x), three, four)
        return x + last.unsqueeze(1) * self.down(F.gelu(self.up(seen), approximate="tanh"))


class Transformer(nn.Module):
    """Latent images (B, C, N, N), their times' frequencies, labels -> (B, S, parts of a patch)."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, latent: int, patch: int):
        super().__init__()
        self.patches = nn.Conv2d(latent, width, patch, patch)
        self.times = nn.Sequential(
            nn.Linear(_FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.labels = nn.Embedding(_CLASSES, width)
        self.layers = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, _LAST * width))
        self.last = nn.Linear(width, 2 * latent * patch**2)

    def forward(
        self, images: torch.Tensor, times: torch.Tensor, labels: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        """Noise and its variance, of each patch."""
        x = self.patches(images).flatten(2).transpose(1, 2) + places
        condition = self.times(times) + self.labels(labels)
        for block in self.layers:
            x = checkpoint(block, x, condition, use_reentrant=True)
        return self.last(modulated(self.norm(x), *self.modulation(condition).chunk(_LAST, dim=1)))


def training(sizes: dict[str, Any], images: int) -> Any:
    """A step of mixed precision on one GPU, with the average of parameters that follows it."""
    latent, side, _ = (int(item) for item in sizes["latent"].split("x"))
    width, patch = sizes["hidden"], sizes["patch"]

    def setup(mesh: Any) -> tuple[Any, ...]:
        with torch.device(mesh.device_type):
            model, average = (
                Transformer(sizes["layers"], width, sizes["heads"], sizes["ffn"], latent, patch)
                for _ in range(2)
            )
            batch = (
                torch.randn(images, latent, side, side),
                torch.randn(images, _FREQUENCIES),
                torch.randint(_CLASSES, (images,)),
                torch.randn(1, sizes["tokens"], width),
            )
            goal = torch.randn(images, sizes["tokens"], 2 * latent * patch**2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, foreach=True)
        return model, average.requires_grad_(False), optimizer, batch, goal

    def step(
        model: nn.Module, average: nn.Module, optimizer: Any, batch: Any, goal: torch.Tensor
    ) -> torch.Tensor:
        with torch.autocast(goal.device.type, dtype=torch.float16):
            made = model(*batch)
        loss = ((made.float() - goal) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9999).add_(new, alpha=1e-4)
        return loss

    return flint.capture(step, mesh=(1,), axes=("dp",), setup=setup, framework="torch")


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A row of a diffusion transformer on one GPU."""
    system, accelerator = first(SYSTEMS, recipe.accelerator)

    def capture(count: int) -> Any:
        return training(recipe.sizes, recipe.batch).capture()

    case = Case(
        run=as_run(recipe),
        measured=float("nan"),
        system=system,
        accelerator=accelerator,
        key=f"dit-plain-{recipe.sizes}-{recipe.batch}",
        expressed="one device, full checkpointing",
        note=first(DIFFERS, recipe.id, ""),
        capture=capture,
        batches=1,
        recorded=(1,),
        attention="as-written",
    )
    return Expressed((Part(1.0, case),), recipe.batch, f"{case.expressed}; {case.note}")
