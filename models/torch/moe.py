"""Mixtures of experts in PyTorch: training steps of any of ``flint.models.mixtures``.

The idea: ``llama3.py``'s blocks with experts in place of the feed-forward network.  Every rank has
some of the experts; the ranks along the mesh axis "ep" together have all of them, and exchange rows
of tokens by all-to-alls, there and back (``moe_dispatch.py``).  Where counts depend on what the
router chose, a capture has no values and takes them from its routing model (``@flint.capture(...,
routing=...)``), which it reports.

    ("dp", "ep")        every rank has sequences of its own; experts are split over ep and, by FSDP,
                        over dp; everything else by FSDP over all ranks
    ("pp", "dp", "ep")  the same in every stage of a pipeline
    "cp", "tp" as well  a sequence is split over their ranks (``moe_parallel.py``)

    flint capture models/torch/moe.py:train_mixtral --mesh 64,8 -o out/

Published models are in ``moe_sizes.py``.  Losses that balance the load are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import flint
from flint.models import mixtures
from flint.models.mixtures import MIXTURES, Heads
from flint.models.torch.batches import batch_of, loss_of
from flint.models.torch.moe_model import Config, Mixture, Model
from flint.models.torch.moe_parallel import check, experts_mesh, parallelise, token_groups
from flint.models.torch.parallel import parallel_loss, split_sequence
from flint.models.torch.pipelines import pipeline, pipeline_stages, run_schedule

TINY = Config(
    model=mixtures.Mixture(
        layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), vocabulary=256,
        experts=mixtures.Experts(count=8, chosen=2, hidden=128),
    ),
    sequence=32,
)  # fmt: skip
#: "Mixtral of Experts" (2024), table 1.  No token is dropped.
MIXTRAL_8X7B = Config(model=MIXTURES["mixtral-8x7b"])


def finished(model: Model, mesh: DeviceMesh, keep: bool = False) -> Model:
    """A model that was made on the meta device, split, on the mesh's devices, initialised."""
    parallelise(model, mesh, keep)
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    return model


def optimizer_of(parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
    """AdamW; ``fused`` as of ``Config``."""
    way = {"fused": True} if fused else {}
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, **way)


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer, batch and mesh, of a mesh without an axis "pp".

    Raises:
        ValueError: as of ``check``.
    """
    check(config, mesh)
    with torch.device("meta"):
        model = Model(config, experts_mesh(mesh).get_group())
    finished(model, mesh)
    shape = config.sequences, config.sequence
    batch = batch_of(config.model.vocabulary, shape, mesh.device_type)
    return model, optimizer_of(model.parameters(), config.fused), batch, mesh


@torch.no_grad()
def balance(models: Iterable[Model], mesh: DeviceMesh) -> None:
    """Change the router's biases towards experts that got less than the mean (DeepSeek-V3)."""
    found = [m for model in models for m in model.modules() if isinstance(m, Mixture)]
    found = [mixture for mixture in found if mixture.load is not None]
    if not found:
        return
    loads = torch.stack([mixture.load for mixture in found])
    for group in token_groups(mesh):
        dist.all_reduce(loads, group=group)
    for mixture, load in zip(found, loads, strict=True):
        mixture.correction += mixture.config.rate * torch.sign(load.mean() - load)
        mixture.load.zero_()


def step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    mesh: DeviceMesh,
) -> torch.Tensor:
    """One training step; returns the loss of the rank's tokens."""
    tokens, targets = batch
    with split_sequence(mesh, batch, [model.rotary]), parallel_loss(mesh):
        loss = loss_of(model(tokens), targets)
        loss.backward()
    balance([model], mesh)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def build_pipeline(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``pipeline_step`` on a rank of a mesh with an axis "pp"."""
    check(config, mesh)
    with torch.device("meta"):
        make = functools.partial(Model, config, experts_mesh(mesh).get_group())
        stages = pipeline_stages(make, config.model.layers, mesh, config.stages)
    models = nn.ModuleList(finished(part, mesh, keep=True) for _, part in stages)  # type: ignore[arg-type]  # made here
    schedule = pipeline(stages, mesh, config.schedule, config.microbatches, loss_of)
    shape = config.sequences * config.microbatches, config.sequence
    batch = batch_of(config.model.vocabulary, shape, mesh.device_type)
    optimizer = optimizer_of(models.parameters(), config.fused)
    return models, schedule, optimizer, batch, mesh


def pipeline_step(
    models: nn.ModuleList,
    schedule: Any,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    mesh: DeviceMesh,
) -> None:
    """One training step of a pipeline's rank."""
    tables = [model.rotary for model in models]
    with split_sequence(mesh, batch, tables), parallel_loss(mesh):
        run_schedule(schedule, models, batch)
    balance(models, mesh)  # type: ignore[arg-type]  # Models
    optimizer.step()
    optimizer.zero_grad()


def training(
    config: Config,
    mesh: tuple[int, ...],
    axes: tuple[str, ...] = ("dp", "ep"),
    routing: Any = "balanced",
) -> Any:
    """A training step of a model: ``training(MIXTRAL_8X7B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: ranks along the axes.
        axes: "dp" and "ep"; "pp" for a pipeline, "cp" and "tp" in front of and behind "ep".
        routing: "balanced", "zipf:1.2", or relative loads of the experts.  Ranks whose experts
            together get unlike loads are programs of their own.
    """
    setup, run = (build_pipeline, pipeline_step) if "pp" in axes else (build, step)
    capture: Callable[..., Any] = flint.capture(
        mesh=mesh, axes=axes, setup=functools.partial(setup, config), routing=routing
    )
    return capture(run)


train_tiny = training(TINY, mesh=(2, 4))
train_tiny_pipeline = training(
    replace(TINY, model=replace(TINY.model, layers=4)), mesh=(2, 2, 2), axes=("pp", "dp", "ep")
)
train_mixtral = training(MIXTRAL_8X7B, mesh=(64, 8))
