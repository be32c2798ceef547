"""Mixtures of experts in PyTorch: training steps of any of ``flint.models.mixtures``.

The idea: ``llama3.py``'s blocks with experts in place of the feed-forward network.  Every rank has
some of the experts; the ranks along the mesh axis "ep" together have all of them, and exchange rows
of tokens by all-to-alls, there and back (``moe_dispatch.py``).  Where counts depend on what the
router chose, a capture has no values and takes them from its routing model (``@flint.capture(...,
routing=...)``), which it reports.

    ("dp", "ep")        every rank has sequences of its own; experts are split over ep and, by FSDP,
                        over dp; everything else by FSDP over all ranks
    ("pp", "dp", "ep")  the same in every stage of a pipeline

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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import flint
from flint.models import mixtures
from flint.models.mixtures import MIXTURES, Heads
from flint.models.torch.batches import batch_of, loss_of
from flint.models.torch.checkpointing import checkpoint_blocks
from flint.models.torch.moe_model import Config, Mixture, Model
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


def shard(model: Model, mesh: DeviceMesh, keep: bool = False) -> None:
    """FSDP: experts over "dp", everything else over all ranks of "dp" and "ep".

    Args:
        model: on the meta device.
        mesh: of the cluster.
        keep: do not free gathered parameters after the forward pass, as in a pipeline.
    """
    config = model.config
    policy = MixedPrecisionPolicy(param_dtype=config.dtype, reduce_dtype=config.reduce_dtype)
    everyone = _everyone(mesh)
    options: dict[str, Any] = {"mp_policy": policy, "reshard_after_forward": not keep}
    evenly = functools.partial(evenly_placed, everyone.size())
    for block in model.layers.values():
        if block.moe is not None:
            experts, data = block.moe.experts, mesh["dp"]
            placed = functools.partial(evenly_placed, data.size())
            fully_shard(experts, mesh=data, shard_placement_fn=placed, **options)
            # Tokens of all ranks come to an expert, and the loss is the mean over all ranks.
            experts.set_gradient_divide_factor(everyone.size())
        fully_shard(block, mesh=everyone, shard_placement_fn=evenly, **options)
    fully_shard(model, mesh=everyone, mp_policy=policy, shard_placement_fn=evenly)


def _everyone(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that have sequences of their own for the same layers."""
    return mesh["dp", "ep"]._flatten("dp_ep")


def evenly_placed(ranks: int, parameter: nn.Parameter) -> Shard:
    """Split a parameter along its first dim that divides among the ranks, else along the first.

    A router has fewer rows than there are ranks, a rank one expert: split by these, most ranks
    would have none and gather what is mostly padding.
    """
    even = (dim for dim, size in enumerate(parameter.shape) if size % ranks == 0)
    return Shard(next(even, 0))


def check(config: Config, mesh: DeviceMesh) -> None:
    """Refuse a mesh that the model cannot be split over.

    Raises:
        ValueError: experts that do not divide among the ranks of "ep".
    """
    count, ranks = config.model.experts.count, mesh["ep"].size()
    if count % ranks:
        raise ValueError(f"{count} experts do not divide among {ranks} ranks")


def finished(model: Model, mesh: DeviceMesh, keep: bool = False) -> Model:
    """A model that was made on the meta device, split, on the mesh's devices, initialised."""
    checkpoint_blocks(model, model.config.checkpoint)
    shard(model, mesh, keep)
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    return model


def optimizer_of(parameters: Iterable[nn.Parameter], fused: bool = False) -> torch.optim.Optimizer:
    """AdamW; ``fused`` as of ``Config``."""
    way = {"fused": True} if fused else {}
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, **way)


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer, batch and mesh, of a mesh ("dp", "ep").

    Raises:
        ValueError: as of ``check``.
    """
    check(config, mesh)
    with torch.device("meta"):
        model = Model(config, mesh["ep"].get_group())
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
    dist.all_reduce(loads, group=_everyone(mesh).get_group())
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
    loss = loss_of(model(tokens), targets)
    loss.backward()
    balance([model], mesh)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def build_pipeline(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``pipeline_step`` on a rank of a mesh ("pp", "dp", "ep")."""
    check(config, mesh)
    with torch.device("meta"):
        make = functools.partial(Model, config, mesh["ep"].get_group())
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
        axes: "dp" and "ep", and "pp" for a pipeline.
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
