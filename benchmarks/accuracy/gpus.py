"""Published runs on GPUs, as our PyTorch Llama expresses them.

The idea: torchtitan's Llama is ours: FSDP2, selective activation checkpointing, attention by the
flash kernel.  torch.compile fuses, so that its runs are captured with composites opened.

    case = case_of(run)            # a Case, or the reason why there is none
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cases_of_runs import Case, NoCase
from published import Run

GRAND_TETON = str(Path(__file__).with_name("grand-teton.toml"))


def case_of(run: Run) -> Case | NoCase:
    """How the model expresses a run, or why it does not."""
    if "MoE" in run.model or run.model.startswith(("GPT OSS", "Qwen", "DeepSeek")):
        return NoCase("mixture of experts with FP8 or a pipeline: no such recipe here")
    if run.precision.upper().startswith(("FLOAT8", "FP8")):
        return NoCase("FP8: the PyTorch model multiplies in bf16 only")
    if run.source.startswith("torchtitan"):
        return _torchtitan(run)
    if run.model == "megatron-22B":
        return _megatron(run)
    if run.source.startswith("Megatron seq-par"):
        return NoCase(
            "a pipeline of 64 or more microbatches over 96 or more layers: recording its stages "
            "takes more than four minutes for eight of the microbatches"
        )
    return NoCase("how the model is split, or its batch, is not published with the row")


def _torchtitan(run: Run) -> Case | NoCase:
    compiled = "compile" in run.parallelism
    ranks = int(run.gpus)

    def capture() -> Any:
        from flint.models.torch.llama3 import LLAMA3_8B, training

        config = replace(LLAMA3_8B, sequences=2, checkpoint="selective")
        step = training(config, mesh=(ranks,), axes=("dp",))
        return step.capture(options={"fuse": compiled})

    measured = run.step_seconds(2 * 8192)
    assert measured is not None
    return Case(
        run=run,
        measured=measured,
        system=GRAND_TETON,
        accelerator="h100-500w",
        key=f"torchtitan-8b-{ranks}-{compiled}",
        expressed=f"{ranks} dp, selective checkpointing" + (", opened" if compiled else ""),
        note="" if compiled else "eager attention is counted without its causal mask",
        capture=capture,
    )


def _megatron(run: Run) -> Case | NoCase:
    """Korthikanti et al., "Reducing Activation Recomputation", 2022, table 3: 22B."""

    def capture() -> Any:
        import torch

        from flint.models.torch.layers import Heads
        from flint.models.torch.llama3 import Config, training

        config = Config(
            layers=48, width=6144, heads=Heads(queries=64, keys=64, size=96), hidden=16384,
            vocabulary=51200, sequence=2048, sequences=4, dtype=torch.float16,
        )  # fmt: skip
        return training(config, mesh=(8,), axes=("tp",)).capture()

    measured = run.step_seconds(4 * 2048)
    assert measured is not None
    return Case(
        run=run,
        measured=measured,
        system="dgx-a100",
        accelerator="a100-sxm",
        key="megatron-22b",
        expressed="8 tp with sequence parallelism, flash attention",
        note="a gated network of as many FLOPs; flash attention in the place of an unfused one "
        "that is computed again",
        capture=capture,
    )
