"""Llama 3 in PyTorch: training steps for clusters of any size.

The idea: ordinary modules and an ordinary training loop's body; the names of the mesh's axes say
how they are split (``parallel.py``):

    ("dp",)                          FSDP2
    ("dp", "tp")                     FSDP2, tensor and sequence parallel
    ("dp_replicate", "dp")           HSDP: replicas of FSDP's groups
    ("pp", "dp", "cp", "tp")         everything, in a pipeline

    flint capture models/torch/llama3.py:train_8b --mesh 64,8 -o out/

Sizes: "The Llama 3 Herd of Models" (2024), table 3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import flint
from flint.models.torch import parallel
from flint.models.torch.batches import batch_of, loss_of
from flint.models.torch.layers import STYLES, Heads
from flint.models.torch.llama3_model import Config, Llama
from flint.models.torch.losses import LOSSES
from flint.models.torch.low_precision import move_on, narrow
from flint.models.torch.pipelines import pipeline, pipeline_stages, run_schedule

TINY = Config(
    layers=4, width=64, heads=Heads(queries=8, keys=4, size=8), hidden=128, vocabulary=256,
    sequence=32,
)  # fmt: skip
LLAMA3_8B = Config(layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128), hidden=14336)
LLAMA3_70B = Config(
    layers=80, width=8192, heads=Heads(queries=64, keys=8, size=128), hidden=28672, checkpoint=True
)
LLAMA3_405B = Config(
    layers=126, width=16384, heads=Heads(queries=128, keys=8, size=128), hidden=53248,
    checkpoint=True,
)  # fmt: skip


def tables_of(models: Sequence[Llama]) -> list[torch.Tensor]:
    """Rotary tables of a pipeline's stages, or of one model; none where positions are learned."""
    return [model.rotary for model in models if model.rotary is not None]


def check(config: Config, mesh: DeviceMesh) -> None:
    """Refuse a mesh that the model cannot be split over.

    Raises:
        ValueError: names the sizes that do not divide.
    """
    parallel.check_axes(mesh)
    parts = parallel.size(mesh, "tp")
    split = [axis for axis in ("pp", "tp") if parallel.size(mesh, axis) > 1]
    if split and (config.tied or LOSSES[config.loss] is not None):
        raise ValueError(
            f"the head's weight is split over the axis {split[0]}: it can neither be the "
            "embedding's nor give a loss in chunks"
        )
    sharded = parallel.sharding_mesh(mesh) is not None
    if config.tied and sharded and not parallel.ENDS[config.ends].together:
        raise ValueError('tied: embedding and head have one weight, in one group: ends="together"')
    if STYLES[config.style].learned_positions:
        for axis in ("tp", "cp"):
            if parallel.size(mesh, axis) > 1:
                raise ValueError(f'learned positions are not split over the axis "{axis}"')
    for what, count in (
        ("key heads", config.heads.keys),
        ("hidden width", config.hidden),
        ("tokens of the vocabulary", config.vocabulary),
        ("positions of the sequence", config.sequence),
    ):
        if count % parts:
            raise ValueError(f'{count} {what} cannot be split over {parts} ranks of the axis "tp"')
    ring = 2 * parallel.size(mesh, "cp")  # every rank has one part of the front and one of the back
    if ring > 2 and config.sequence % (ring * parts):
        raise ValueError(
            f"{config.sequence} positions of the sequence cannot be split into {ring} parts of the "
            f'axis "cp", {parts} of the axis "tp" each'
        )


def finished(model: Llama, mesh: DeviceMesh) -> Llama:
    """A model that was made on the meta device, split, on the mesh's devices, initialised."""
    config = model.config
    if config.fp8:
        if parallel.size(mesh, "tp") > 1:
            raise ValueError(
                "fp8: weights that are split over the axis tp have no FP8 product here"
            )
        narrow(model.layers, delayed=config.fp8 == "delayed")
    model.to(config.kept_dtype)
    parallel.parallelise(
        model,
        mesh,
        config.dtype,
        config.reduce_dtype,
        checkpoint=config.checkpoint,
        keep=config.keep in (True, "weights"),
        ends=config.ends,
    )
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    return model


def optimizer_of(parameters: Any, fused: bool = False) -> torch.optim.Optimizer:
    """AdamW with the paper's settings; one kernel for many tensors, or for all operations too."""
    way = {"fused": True} if fused else {"foreach": True}
    return torch.optim.AdamW(parameters, lr=8e-5, betas=(0.9, 0.95), weight_decay=0.1, **way)


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``step`` on a rank of a mesh without an axis "pp"."""
    check(config, mesh)
    with torch.device("meta"):
        model = Llama(config)
    finished(model, mesh)
    shape = config.sequences * config.accumulation, config.sequence
    batch = batch_of(config.vocabulary, shape, mesh.device_type)
    return model, optimizer_of(model.parameters(), config.fused), batch, mesh


def step(
    model: Llama, optimizer: torch.optim.Optimizer, batch: Sequence[torch.Tensor], mesh: DeviceMesh
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One training step; returns this rank's loss, of the last batch that was accumulated, and the
    scores that it was made of if the loop holds them."""
    config, count = model.config, model.config.accumulation
    split = parallel.split_sequence(mesh, batch, tables_of([model]), config.rotate)
    with split, parallel.parallel_loss(mesh, config.ends):
        parts = zip(*(item.chunk(count) for item in batch), strict=True)
        for number, (tokens, targets) in enumerate(parts):
            if config.keep:
                last = config.keep == "weights" or number == count - 1
                kept = {True: not last, "weights": True}.get(config.keep)
                parallel.exchange_gradients(model, mesh, last, kept)
            if LOSSES[config.loss] is None:
                scores = model(tokens)
                if config.hold == "cast":
                    scores = scores.to(config.loss_dtype)
                loss = loss_of(scores, targets, config.loss_dtype)
                if not config.hold:
                    scores = None
            else:
                loss, scores = model(tokens, targets), None
            (loss / count if count > 1 else loss).backward()
    parameters = [item for group in optimizer.param_groups for item in group["params"]]
    parallel.clip_gradients(parameters, mesh, 1.0)
    move_on([model], dist.group.WORLD)
    optimizer.step()
    optimizer.zero_grad()
    if config.keep == "weights":
        parallel.free_gathered(model)
    return loss, scores


def build_pipeline(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``pipeline_step`` on a rank of a mesh with an axis "pp"."""
    check(config, mesh)
    with torch.device("meta"):
        make = functools.partial(Llama, config)
        stages = pipeline_stages(make, config.layers, mesh, config.stages)
    models = nn.ModuleList(finished(part, mesh) for _, part in stages)
    loss = functools.partial(loss_of, dtype=config.loss_dtype)
    schedule = pipeline(stages, mesh, config.schedule, config.microbatches, loss)
    shape = config.sequences * config.microbatches, config.sequence
    batch = batch_of(config.vocabulary, shape, mesh.device_type)
    optimizer = optimizer_of(models.parameters(), config.fused)
    return models, schedule, optimizer, batch, mesh


def pipeline_step(
    models: Sequence[Llama],
    schedule: Any,
    optimizer: torch.optim.Optimizer,
    batch: Sequence[torch.Tensor],
    mesh: DeviceMesh,
) -> None:
    """One training step of a pipeline's rank."""
    tables, rotate = tables_of(models), models[0].config.rotate
    split = parallel.split_sequence(mesh, batch, tables, rotate)
    with split, parallel.parallel_loss(mesh, models[0].config.ends):
        run_schedule(schedule, models, batch)
    parallel.clip_gradients(models.parameters(), mesh, 1.0)
    move_on(models, mesh.get_group("dp") if parallel.size(mesh, "dp") > 1 else None)
    optimizer.step()
    optimizer.zero_grad()


def training(config: Config, mesh: tuple[int, ...], axes: tuple[str, ...] = ("dp", "tp")) -> Any:
    """A training step of a model: ``training(LLAMA3_8B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: devices per axis.
        axes: their names, of those in ``parallel.AXES``.

    Returns:
        ``step``, or ``pipeline_step`` if there is an axis "pp", with its setup.
    """
    setup, run = (build_pipeline, pipeline_step) if "pp" in axes else (build, step)
    setup = functools.partial(setup, config)
    return flint.capture(run, mesh=mesh, axes=axes, setup=setup, framework="torch")


train_tiny = training(TINY, mesh=(4, 2))
train_8b = training(LLAMA3_8B, mesh=(64, 8))
train_70b = training(LLAMA3_70B, mesh=(64, 8))
train_405b = training(LLAMA3_405B, mesh=(256, 8))
train_8b_hsdp = training(LLAMA3_8B, mesh=(8, 64), axes=("dp_replicate", "dp"))
train_8b_pipeline = training(
    replace(LLAMA3_8B, microbatches=8), mesh=(4, 16, 8), axes=("pp", "dp", "tp")
)
