"""Published runs on GPUs, as our models express them: which source is whose.

The idea: FSDP2, activation checkpointing and attention by the flash kernel are what the published
runs of PyTorch have too; sources differ in models, in networks and in what they leave open, which
is in each row's note.  Runs of JAX on GPUs are in ``jax_gpus.py``.

    case = case_of(run)            # a Case, or the reason why there is none
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax_gpus
from cases_of_runs import Case, NoCase
from published import Run
from torch_cases import ATTENTION, MODELS, flash_first, number, recipe, torch_case

from flint.models.torch.llama3 import training

HERE = Path(__file__).parent
GRAND_TETON = str(HERE / "grand-teton.toml")


def case_of(run: Run) -> Case | NoCase:
    """How the model expresses a run, or the reason why it does not."""
    if "MoE" in run.model or run.model.startswith(("GPT OSS", "Qwen", "DeepSeek")):
        return NoCase("models/jax has such models now, in FP8 too; not captured for this page")
    if run.precision.upper().startswith(("FLOAT8", "FP8")):
        return NoCase("FP8: blind/ expresses such runs; not captured for this page")
    for name, case in _SOURCES.items():
        if run.source.startswith(name):
            return case(run)
    return NoCase("how the model is split, or its batch, is not published with the row")


def _torchtitan(run: Run) -> Case | NoCase:
    words, compiled = run.parallelism.split(";")[0].split(), "compile" in run.parallelism
    if "PP" in words or "AsyncTP" in words:
        return NoCase("pipelines of 126 layers and asynchronous tensor parallelism: not recorded")
    axes = {"FSDP": "dp", "CP": "cp", "TP": "tp"}
    mesh = {axes[word]: int(size) for word, size in pairwise(words) if word in axes}
    config = replace(
        MODELS[run.model.replace("llama3.1", "llama3")],
        sequence=number(run, "seq", 8192),
        sequences=number(run, "LBS"),
        checkpoint=True if "full AC" in run.parallelism else "selective",
        ends="together",
        style="torchtitan, written",
    )

    def capture(_: int) -> Any:
        # As its run_llama_train.sh has it.
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        try:
            with flash_first():
                return training(config, tuple(mesh.values()), tuple(mesh)).capture(
                    options={"fuse": compiled, "audit": 0}
                )
        finally:
            del os.environ["PYTORCH_CUDA_ALLOC_CONF"]

    shared = mesh.get("cp", 1) * mesh.get("tp", 1)
    measured = run.step_seconds(config.sequences * config.sequence // shared)
    assert measured is not None
    kept = "full" if config.checkpoint is True else "selective"
    return Case(
        run=run,
        measured=measured,
        system=GRAND_TETON,
        accelerator="h100-500w",
        key=f"torchtitan-{config}-{mesh}-{compiled}-expandable",
        expressed=" x ".join(f"{count} {axis}" for axis, count in mesh.items())
        + f", {kept} checkpointing"
        + (", opened" if compiled else ""),
        note="",
        capture=capture,
        attention=ATTENTION[compiled],
    )


def _torchtitan_a100(run: Run) -> Case | NoCase:
    config = recipe(run, MODELS[run.model])
    note = "the network is not published"
    return torch_case(run, config, {"dp": int(run.gpus)}, "dgx-a100", "a100-sxm", note=note)


#: MPT's layers, width and heads (llm-foundry, scripts/train/yamls/pretrain).
_MPT = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
_MOSAIC = {
    "H100 80GB": ("dgx-h100", "h100-sxm"),
    "A100 80GB": ("dgx-a100", "a100-sxm"),
    "A100 40GB": (str(HERE / "a100-40gb.toml"), "a100-40gb"),
}


def _mosaic(run: Run) -> Case | NoCase:
    import torch

    from flint.models.torch.llama3 import Heads
    from flint.models.torch.llama3_model import Config

    layers, width, heads = _MPT[run.model.removeprefix("mpt-")]
    config = Config(
        layers=layers,
        width=width,
        heads=Heads(queries=heads, keys=heads, size=width // heads),
        hidden=4 * width,
        vocabulary=50368,
        style="gpt",
        # FSDP's "DEFAULT" and "PURE" reduce in the type of the parameters that are gathered.
        reduce_dtype=torch.bfloat16,
    )
    system, accelerator = _MOSAIC[run.gpu_type.split(" (")[0]]
    note = "embedding and head are two matrices"
    case = torch_case(
        run, recipe(run, config), {"dp": int(run.gpus)}, system, accelerator, note=note
    )
    # ``--attn_impl`` of its submit_benchmarks.py (061f2c7c) is triton, and sweep.sh keeps it.
    return replace(case, triton=True) if isinstance(case, Case) else case


_IBM = {
    "A100 80GB (400 Gb/s between nodes)": (str(HERE / "a100-400gbps.toml"), "a100-sxm", 312e12),
    "H100 80GB (800 Gb/s between nodes)": (str(HERE / "h100-800gbps.toml"), "h100-sxm", 989e12),
    "H100 80GB (3200 Gb/s between nodes)": ("dgx-h100", "h100-sxm", 989e12),
}
#: FLOPs of a token as these posts count them: MFU and tokens/s of the same runs (A100).
_IBM_FLOPS = {
    "llama2-7b": 0.57 * 312e12 / 3700,
    "llama2-13b": 0.51 * 312e12 / 1800,
    "llama2-34b": 0.47 * 312e12 / 700,
    "llama2-70b": 0.50 * 312e12 / 370,
}


def _ibm(run: Run) -> Case | NoCase:
    system, accelerator, peak = _IBM[run.gpu_type]
    ranks = int(run.gpus)
    hybrid = run.parallelism.startswith("HSDP")
    mesh = {"dp_replicate": ranks // 8, "dp": 8} if hybrid else {"dp": ranks}
    config = recipe(run, MODELS[run.model])
    flops = _IBM_FLOPS[run.model]
    return torch_case(run, config, mesh, system, accelerator, peak=peak, token_flops=flops)


def _kempner(run: Run) -> Case | NoCase:
    import torch

    words = run.parallelism.split(";")[0].split()
    sizes = dict(zip(words[::2], words[1::2], strict=True)) if "one" not in words else {}
    # Its mesh has an axis of FSDP, of one rank where nothing is sharded.
    mesh = {"dp": int(sizes.get("FSDP", 1))}
    if "TP" in sizes:
        mesh["tp"] = int(sizes["TP"])
    # mfu_bench.sh, scripts/train.py and kempnerforge/ at the row's commit.
    config = replace(
        recipe(run, MODELS[run.model]),
        kept_dtype=torch.bfloat16,
        loss_dtype=torch.bfloat16,
        fused=True,
        keep="gradients",
        ends="whole",
        hold=True,
    )
    case = torch_case(run, config, mesh, "hgx-h200", "h200-sxm", slice_=4)
    # Its uv.lock has PyTorch 2.11.
    return replace(case, cudnn=True) if isinstance(case, Case) else case


#: Nemotron-4 15B (Parmar et al., 2024, table 1); a gated network with as many weights.
_NEMO = {
    "llama3.1-8b": MODELS["llama3-8b"],
    "nemotron4-15b": replace(
        MODELS["llama3-8b"],
        width=6144,
        heads=replace(MODELS["llama3-8b"].heads, queries=48),
        hidden=16384,
        vocabulary=256000,
    ),
}


def _nemo(run: Run) -> Case | NoCase:
    """Megatron's data parallelism: the optimizer's states are sharded, weights are gathered and
    gradients reduced once per step.  Exchanges of tensor parallelism run beside their products
    (``tp_comm_overlap`` in the recipes' performance mode)."""
    if run.model not in _NEMO:
        return NoCase("a pipeline of 32 or 64 microbatches, several stages per rank")
    words = run.parallelism.split()
    sizes = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    inner = {"cp": sizes.get("CP", 1), "tp": sizes["TP"]}
    inner = {axis: count for axis, count in inner.items() if count > 1}
    mesh = {"dp": int(run.gpus) // max(inner.values()), **inner}
    config = replace(recipe(run, _NEMO[run.model]), keep=True)
    gated = "a gated network of as many FLOPs; " if "nemotron" in run.model else ""
    note = gated + "Transformer Engine's fused kernels as what torch.compile fuses"
    made = torch_case(
        run, config, mesh, "dgx-h100", "h100-sxm", note=note, fused=True, accumulates=True
    )
    beside = isinstance(made, Case) and "tp" in inner
    return replace(made, passes=("decompose",)) if beside else made


def _amd(run: Run) -> Case | NoCase:
    config = recipe(run, MODELS[run.model])
    note = "the sequence's length is assumed"
    return torch_case(run, config, {"dp": int(run.gpus)}, "mi300x-8", "mi300x", note=note)


#: Korthikanti et al., "Reducing Activation Recomputation", 2022, table 3: layers, width, heads, and
#: the microbatch's sequences; stages of a rank as the row says.
_MEGATRON: Mapping[str, tuple[int, int, int, int]] = {
    "megatron-22B": (48, 6144, 64, 4),
    "gpt3-175B": (96, 12288, 96, 1),
}


def _megatron(run: Run) -> Case | NoCase:
    """Selective recomputation is that of unfused attention's scores, which flash attention does."""
    if run.model not in _MEGATRON:
        return NoCase(
            "a pipeline of 35 ranks with 280 microbatches: recording its stages takes half an hour"
        )
    layers, width, heads, sequences = _MEGATRON[run.model]
    ranks, stages, batches = (8, 3, 64) if run.model == "gpt3-175B" else (1, 1, 1)

    def capture(microbatches: int) -> Any:
        import torch

        from flint.models.torch.layers import Heads
        from flint.models.torch.llama3_model import Config

        config = Config(
            layers=layers, width=width, heads=Heads(queries=heads, keys=heads, size=width // heads),
            hidden=width * 8 // 3, vocabulary=51200, sequence=2048,
            sequences=sequences, dtype=torch.float16,
            schedule="Interleaved1F1B" if stages > 1 else "1F1B", stages=stages,
            microbatches=microbatches,
        )  # fmt: skip
        mesh = {"pp": ranks, "tp": 8} if ranks > 1 else {"tp": 8}
        step = training(config, mesh=tuple(mesh.values()), axes=tuple(mesh))
        with flash_first():
            return step.capture(options={"audit": 0})

    measured = run.step_seconds(batches * sequences * 2048 // ranks)
    assert measured is not None
    split = f"{ranks} pp of {stages} stages x " if ranks > 1 else ""
    return Case(
        run=run,
        measured=measured,
        system="dgx-a100",
        accelerator="a100-sxm",
        key=run.model.lower(),
        expressed=f"{split}8 tp with sequence parallelism, flash attention",
        note="a gated network of as many FLOPs; flash attention in the place of an unfused one "
        "that is computed again",
        capture=capture,
        batches=batches,
        recorded=(ranks, 2 * ranks) if ranks > 1 else (1,),
    )


#: How a row's source begins -> its cases.
_SOURCES: Mapping[str, Callable[[Run], Case | NoCase]] = {
    "torchtitan benchmarks": _torchtitan,
    "PyTorch torchtitan performance": _torchtitan_a100,
    "llm-foundry": _mosaic,
    "PyTorch blog": _ibm,
    "KempnerForge": _kempner,
    "TransformerEngine": _amd,
    "Megatron seq-par": _megatron,
    "DGX Cloud benchmarking (NeMo)": _nemo,
    "DGX Cloud benchmarking": jax_gpus.case_of,
}
