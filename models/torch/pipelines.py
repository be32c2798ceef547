"""Pipelines over the mesh axis "pp": stages and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class


def pipeline_stages(
    make: Any, layers: int, mesh: DeviceMesh, per_rank: int
) -> list[tuple[int, nn.Module]]:
    """This rank's stages of a model that is split into runs of consecutive layers.

    Args:
        make: ``make(range of layers, is first, is last)`` -> module.
        layers: of the whole model; the first stages have one more if the division has a remainder.
        mesh: with an axis "pp" of P ranks.
        per_rank: stages of a rank: i, i + P, i + 2 P ... of the rank i.

    Returns:
        Number and module of each stage.

    Raises:
        ValueError: more stages than layers.
    """
    ranks, here = mesh["pp"].size(), mesh["pp"].get_local_rank()
    count = ranks * per_rank
    if count > layers:
        raise ValueError(f"{count} pipeline stages for {layers} layers")
    base, more = divmod(layers, count)
    starts = [stage * base + min(stage, more) for stage in range(count + 1)]
    return [
        (stage, make(range(starts[stage], starts[stage + 1]), stage == 0, stage == count - 1))
        for stage in range(here, count, ranks)
    ]


def pipeline(
    stages: Sequence[tuple[int, nn.Module]],
    mesh: DeviceMesh,
    schedule: str,
    microbatches: int,
    loss: Any,
) -> Any:
    """A pipeline schedule over the axis "pp".

    Args:
        stages: of this rank: number and module, on their device.
        mesh: of the cluster.
        schedule: "GPipe", "1F1B", "Interleaved1F1B", as PyTorch names them.
        microbatches: that a batch is split into.
        loss: ``loss(output, target)`` -> scalar.
    """
    count = len(stages) * mesh["pp"].size()
    device = next(stages[0][1].parameters()).device
    group = mesh.get_group("pp")
    made = [PipelineStage(part, stage, count, device, group=group) for stage, part in stages]
    kind = get_schedule_class(schedule)
    return kind(made[0] if len(made) == 1 else made, microbatches, loss_fn=loss)


def run_schedule(schedule: Any, models: Sequence[nn.Module], batch: Sequence[torch.Tensor]) -> None:
    """Pass a batch through a pipeline: its first and last stage take tokens and targets,
    (sequences, S) each.

    Args:
        schedule: of this rank.
        models: its stages, which have an ``embedding`` or a ``head`` where they are the ends.
        batch: tokens and targets.
    """
    tokens, targets = batch
    given = [tokens] if models[0].embedding is not None else []
    schedule.step(*given, target=targets if models[-1].head is not None else None)
