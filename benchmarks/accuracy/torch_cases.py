"""A published run of PyTorch as a step of our PyTorch model: what all of them share.

The idea: rows say how they ran in words that can be read: "mbs=6 accum=2 seq=2048", "FSDP; full AC;
compile".  A run that was compiled is captured with composites opened, so that what fuses is fused.

    case = torch_case(run, config, {"dp": 8}, "dgx-h100", "h100-sxm")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cases_of_runs import Case, NoCase
from published import Run
from torch.nn.attention import SDPBackend, sdpa_kernel

from flint.models.torch.layers import Heads
from flint.models.torch.llama3 import LLAMA3_8B, LLAMA3_70B, training
from flint.models.torch.llama3_model import Config

#: What a row says of activation checkpointing.
CHECKPOINTS: Mapping[str, bool | int | str] = {
    "full AC": True,
    "every 2nd block AC": 2,
    "SAC": "selective",
}
#: Whether a capture is opened -> how attention is timed that it spells out: as a library's kernel.
ATTENTION = {False: "as-written", True: "fused"}
#: What the table says of it.
_KEPT = {False: "", True: ", full checkpointing", 2: ", every 2nd block checkpointed"}


def _llama2(layers: int, width: int, heads: int, keys: int, hidden: int) -> Config:
    return Config(
        layers=layers, width=width, heads=Heads(queries=heads, keys=keys, size=128),
        hidden=hidden, vocabulary=32000, sequence=4096,
    )  # fmt: skip


#: Llama 2 and Code Llama (34B): table of sizes in the papers; 13B of KempnerForge: its report.
MODELS: Mapping[str, Config] = {
    "llama2-7b": _llama2(32, 4096, 32, 32, 11008),
    "llama2-13b": _llama2(40, 5120, 40, 40, 13824),
    "llama2-34b": _llama2(48, 8192, 64, 8, 22016),
    "llama2-70b": _llama2(80, 8192, 64, 8, 28672),
    "llama3-7b": LLAMA3_8B,
    "llama3-8b": LLAMA3_8B,
    "llama3-13b": replace(_llama2(40, 5120, 40, 8, 17920), vocabulary=128256),
    "llama3-70b": replace(LLAMA3_70B, checkpoint=False),
}


def flash_first() -> Any:
    """Attention as PyTorch asked for it before 2.11, also on Hopper and Blackwell, within a
    ``with``: flash attention, then the memory-efficient kernel.  The published runs are older."""
    return sdpa_kernel(
        [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    )


def number(run: Run, name: str, default: int = 0) -> int:
    """What "mbs=6 accum=2 seq=2048" says of a name."""
    found = re.search(rf"\b{name}=(\d+)", run.batch_seq)
    return int(found[1]) if found else default


def recipe(run: Run, config: Config) -> Config:
    """The model with the row's sequence, batch and checkpointing."""
    kept = [CHECKPOINTS[word] for word in run.parallelism.split("; ") if word in CHECKPOINTS]
    return replace(
        config,
        sequence=number(run, "seq"),
        sequences=number(run, "mbs"),
        checkpoint=kept[0] if kept else False,
    )


def model_flops(config: Config) -> float:
    """FLOPs of a token as the PaLM paper (2022, appendix B) and nanoGPT count them:
    6 N + 12 L H Q T, attention without its mask."""
    heads = config.heads
    block = config.width * heads.size * (2 * heads.queries + 2 * heads.keys)
    block += 3 * config.width * config.hidden
    parameters = config.layers * block + 2 * config.vocabulary * config.width
    scores = 12 * config.layers * heads.queries * heads.size * config.sequence
    return 6.0 * parameters + scores


def torch_case(
    run: Run,
    config: Config,
    mesh: Mapping[str, int],
    system: str,
    accelerator: str,
    *,
    note: str = "",
    peak: float = 0.0,
    token_flops: float = 0.0,
    slice_: int = 0,
    fused: bool = False,
    accumulates: bool = False,
    plain: bool = False,
) -> Case | NoCase:
    """A case of our PyTorch model.

    Args:
        run: what is published.
        config: the model, with the row's sequence, batch and checkpointing.
        mesh: ranks by axis.
        system, accelerator, note: as ``Case``'s.
        peak: FLOP/s that the publisher's MFU refers to.
        token_flops: of a token as the publisher counts them; default: ``model_flops``.
        slice_: as ``Case``'s ``slice``.
        fused: elementwise ops are fused, though not by torch.compile.
        accumulates: as ``Case``'s.
        plain: the run had no fused kernel for attention.
    """
    batches = number(run, "accum", 1)
    # Of a device: what the ranks of a pipeline, a tensor- or a context-parallel group share is one
    # batch.
    stages = mesh.get("pp", 1)
    shared = stages * mesh.get("tp", 1) * mesh.get("cp", 1)
    tokens = config.sequences * batches * config.sequence / shared
    measured = run.step_seconds(round(tokens), (token_flops or model_flops(config)) * tokens, peak)
    if measured is None:
        return NoCase("no figure that says how long a step took")
    compiled = fused or "compile" in run.parallelism
    if stages > 1:
        recorded = (stages * config.stages, 2 * stages * config.stages)
    else:
        recorded = (batches,) if batches <= 2 else (2, 3) if config.keep else (1, 2)

    def capture(count: int) -> Any:
        many = {"microbatches" if stages > 1 else "accumulation": count}
        step = training(replace(config, **many), tuple(mesh.values()), tuple(mesh))
        kernel = sdpa_kernel(SDPBackend.MATH) if plain else flash_first()
        with kernel:  # The models' tests audit their ranks.
            return step.capture(options={"fuse": compiled, "audit": 0})

    split = " x ".join(f"{count} {axis}" for axis, count in mesh.items() if count > 1)
    kept = _KEPT.get(config.checkpoint, ", selective checkpointing")
    many = f", {batches} batches" if batches > 1 else ""
    return Case(
        run=run,
        measured=measured,
        system=system,
        accelerator=accelerator,
        key=f"torch-{config}-{dict(mesh)}-{compiled}" + ("-plain" if plain else ""),
        expressed=f"{split or 'one device'}{kept}{', opened' if compiled else ''}{many}"
        + (", attention as written" if plain else ""),
        note=note,
        capture=capture,
        slice=slice_,
        batches=batches,
        recorded=recorded,
        attention="as-written" if plain else ATTENTION[compiled],
        accumulates=accumulates,
    )
