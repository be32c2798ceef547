"""Published runs of JAX on GPUs, as our JAX Llama expresses them: NVIDIA's DGX Cloud recipes.

Both recipes run cuDNN's attention (MaxText's ``cudnn_flash_te``, PaxML's through Transformer
Engine), which the models call.

case = case_of(run)            # a Case, or the reason why there is none
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cases_of_runs import Case, NoCase
from maxtext import MODELS
from published import Run
from torch_cases import number

from flint.models.jax.layers import Heads, cudnn_attention
from flint.models.jax.llama3 import Config, training

#: praxis's Synthetic5B (its sizes: the recipe's notes).
GPT3_5B = Config(
    layers=24, width=4096, heads=Heads(queries=32, keys=32, size=128), hidden=16384,
    vocabulary=51200, sequence=2048, gated=False, mixer=cudnn_attention,
)  # fmt: skip


def case_of(run: Run) -> Case | NoCase:
    """How the model expresses a run, or the reason why it does not."""
    devices = int(run.gpus)
    if "(MaxText)" in run.source:
        shards = devices if devices <= 256 else 128
        return case_of_model(run, MODELS[run.model], "projections", {"data": shards}, devices)
    return case_of_model(run, GPT3_5B, "dots", {"data": 8}, devices)


def case_of_model(
    run: Run, model: Config, remat: str, sizes: dict[str, int], devices: int
) -> Case | NoCase:
    """A case of our JAX Llama.

    Args:
        run: what is published.
        model, remat: its sizes and policy.
        sizes: devices by axis; "data" at least.
        devices: of the run.
    """
    config = replace(model, sequence=number(run, "seq"), sequences=number(run, "mbs"), remat=remat)
    replicas = devices // sizes["data"]
    if replicas > 1:
        sizes = {"replica": replicas, **sizes}
    measured = run.step_seconds(config.sequence * config.sequences)
    if measured is None:
        return NoCase("no figure that says how long a step took")

    def capture(_: int) -> Any:
        return training(config, mesh=tuple(sizes.values()), axes=tuple(sizes)).capture()

    return Case(
        run=run,
        measured=measured,
        system="dgx-h100",
        accelerator="h100-sxm",
        key=f"maxtext-{config}-{sizes}",
        expressed=" x ".join(f"{count} {axis}" for axis, count in sizes.items())
        + f", remat {remat}, cuDNN's attention",
        note="",
        capture=capture,
    )
