"""What trainers' recipes leave open: tables by how ids, accelerators or frameworks begin.

first(DEVICES, recipe.id)              # the entry of the longest beginning
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recipes import HERE, Recipe

#: Beginning of a row's accelerator -> system, accelerator.
SYSTEMS: Mapping[str, tuple[str, str]] = {
    "H100 96GB": (str(HERE.parent / "grand-teton.toml"), "h100-500w"),
    "H100": ("dgx-h100", "h100-sxm"),
    "H200": ("hgx-h200", "h200-sxm"),
    "B200": ("dgx-b200", "b200"),
    "B200 750W": (str(HERE.parent / "b200-750w.toml"), "b200"),
    "B300": ("dgx-b300", "b300"),
    "GB200": ("gb200-nvl72", "gb200"),
    "GB300": ("gb300-nvl72", "gb300"),
    "MI300X": ("mi300x-8", "mi300x"),
    "MI355X": ("mi355x-8", "mi355x"),
    "MI350X": ("mi350x-8", "mi350x"),
    "MI325X": ("mi325x-8", "mi325x"),
    "A100": ("dgx-a100", "a100-sxm"),
    "A100 40GB": (str(HERE.parent / "a100-40gb.toml"), "a100-40gb"),
    "A100 80GB (400": (str(HERE.parent / "a100-400gbps.toml"), "a100-sxm"),
}
#: Beginning of a row's remat -> the word for it; "none" and likely none have no entry.
CHECKPOINTS: Mapping[str, str] = {
    "selective": "SAC",
    "full": "full AC",
    "every 2nd": "every 2nd block AC",
    "not stated (torchtitan": "SAC",
    "not stated (recipe": "",
    "not stated (none": "",
    "not stated": "full AC",
    "none": "",
    "": "",
}
#: Beginning of a row's element types -> scaling of its products.
NARROW: Mapping[str, str] = {
    "float8 tensorwise, kernels of its own": "eager",
    "float8 tensorwise": "tensorwise",
    "float8 rowwise linears with": "rowwise_gw_hp",
    "float8 rowwise": "rowwise",
    "mxfp8 linears": "mxfp8",
    "NVFP4": "nvfp4",
    "MXFP4": "mxfp4",
    "fp8": "delayed",
}
#: Frameworks whose elementwise kernels are fused, though no compiler does it.
FUSED = (
    "Megatron",
    "NeMo",
    "Primus",
    "BioNeMo",
    "PyTorch FSDP + Transformer",
    "DeepSpeed",
    "PyTorch + Transformer",
    "llm.c",
    "flash-attention training",
)
#: How ids of other rows begin whose optimizer is PyTorch's fused AdamW: torchtitan's since 24
#: February 2025 (6e4988550), that of nanoGPT and of what descends from it.
FUSED_ADAMW = ("ttp-", "ttpa-", "tt-", "ao-", "te72-", "mn-")
#: Frameworks whose products add weights' gradients to their sums.
ACCUMULATING = ("Megatron", "NeMo (Megatron", "NeMo + Megatron", "llm.c")
#: Beginnings of ids of rows whose Triton kernels fuse norms, rotation and loss.
LIGER = ("fa-mistral-1-b8-foak", "fa-mistral-4-b16-foak", "fa-llama8b-4-b16-liger", "sw-7b-16k")
#: Beginning of an id -> how a row makes its loss, where not of all scores at once.
LOSSES: Mapping[str, str] = {
    "tune-3b-chunked": "chunked",
    "tune-3b-ac": "chunked",
    "fa-llama8b-4-b16-liger": "fused",
    "fa-mistral-1-b8-foak": "in place",
    "fa-mistral-4-b16-foak": "in place",
    "sw-7b-16k": "fused",
    "trl-8b-1m": "chunked",
    "rlprime-": "by vocabulary",
    "prl-": "by vocabulary",
}
#: Beginnings of ids of rows whose head's weight is the embedding's, which they do not say:
#: ``tie_word_embeddings`` of Qwen3-0.6B's and Qwen3-4B's ``config.json``.
TIED = ("rlprime-q06b", "rlprime-q4b")
#: Tokens of such a part of the vocabulary: ``auto_setup_fused_lm_head_chunk_size`` of prime-rl's
#: ``trainer/rl/config.py`` at 8718eb14.
PART = 2048
#: Beginnings of ids of rows of which only the blocks are compiled, not the loss: prime-rl's
#: ``apply_compile`` (``trainer/model.py`` at 8718eb14).
BLOCKS = ("rlprime-", "prl-")
#: Beginnings of ids of rows whose blocks are checkpointed and, before that, compiled in vain: their
#: attention, Transformers 4.56.1's, branches on a value that it reads (``_is_packed_sequence``),
#: and PyTorch compiles no part of a checkpointed block that breaks (``test_blind_qwen3.py``).
EAGER = ("prime-", "rlprime-q06b", "rlprime-q4b")
#: Beginning of an id -> seconds of its host per token of a rank, whose positions it reads from the
#: device one by one after each forward pass: ``get_response_lengths`` of prime-rl's
#: ``trainer/utils.py``, until its commit fa21395a of June 2026.  Reading a scalar takes 9 us (nine
#: in 80.75 us on an A6000: HyperGAN, pull request 344); indexing and comparing, an op of which the
#: read waits, are assumed to take 11.
READ: Mapping[str, float] = dict.fromkeys(("rlprime-", "prl-"), 20e-6)
#: Beginnings of ids of rows without a fused kernel for attention: Transformer Engine for ROCm left
#: it out by a mistake that its pull request 81 mended, after these figures (its issue 72);
#: Megatron-DeepSpeed of 2022 had none.
PLAIN = ("te72-mi300x-fp8", "bs-")
#: From when until when torchtitan compiled its loss of all scores: its pull request 1033 of April
#: 2025 ("Compiling the loss function"; off since December 2024), and 2937 of April 2026.
LOSS_COMPILED = ("2025-04-02", "2026-04-27")
#: Beginnings of ids of rows whose loop still has a batch's scores, as cast to float32, in the
#: backward pass: prime-rl's dict of outputs (``sft/train.py`` of 2026-01-15).
CAST = ("prime-",)
#: Beginnings of ids of rows whose parameters and optimizer states are in bf16.
BF16 = ("fa-mistral-1", "fa-mistral-2", "tune-", "lg-", "fs-")
#: Beginnings of ids of rows whose models are Hugging Face's, an operation a kernel, or LitGPT's,
#: whose norm and rotation (``RMSNorm`` and ``apply_rope`` of ``litgpt/model.py``) are spelled out.
WRITTEN = ("fs-", "me-", "fa-mistral-1-b4", "fa-mistral-2-b4", "trl-", "lg-")
#: Beginnings of ids of those whose attention reads a mask: Transformers 4.54 to 4.57 write one out
#: where a batch has none (``find_packed_sequence_indices`` of ``masking_utils.py``: "it would be
#: nice to return None if we did not detect packed sequence format"), unless attention is Flash's.
MASKED = ("fs-",)
#: Beginnings of ids of rows of Hugging Face's Qwen3, whose norms of queries and keys are expressed.
NORMED = EAGER
#: Since when PyTorch's norm is one kernel: its pull request 153666, merged in July 2025.
NORM_KERNEL = "2025-07"
#: Until when torchtitan's models copied keys and values for each of their queries' heads.
REPEATED_UNTIL = "2026"
#: Beginnings of ids of rows whose gradients are reduced in bf16.
REDUCED = ("bs-", "lg-", "fs-", "sw-7b-16k", "m6-", "mlp-g", "mlp-b", "mlp-h", "m51-b", "m51-h")
#: Beginnings of ids of rows whose keys and values go from rank to rank.
ROTATES = ("trl-",)
#: Beginnings of ids of rows whose weights are kept in the type of their products.
KEPT = ("ml4-", "ml5-", "m51-", "m6-")
#: Beginnings of ids of rows whose pipelines are recorded, or of which one rank is.
PIPELINES = ("mg-7b-pp4", "ml4-", "ml5-", "m6-", "primus-dsv2", "bs-", "mz-")
#: Beginnings of ids of rows whose mixtures ``moe_rows.py`` expresses.
MEGATRON = ("m6-", "primus-dsv2", "mz-")
#: Beginnings of ids of Megatron's runs whose products do not add to their sums: deterministic ones,
#: and those before the kernel for it.
APART = ("mg-7b", "bs-")
#: Beginning of an id -> evidence that a row's GPUs differ from those that it names.
DEVICES: Mapping[str, tuple[str, str]] = dict.fromkeys(
    ("ao-h100", "aonc-"),
    (
        "H100 96GB",
        "torchao's logs (its pull request 1802) tell GPUs of 95 GiB: those of 500 W",
    ),
) | dict.fromkeys(
    ("ao-b200",),
    (
        "B200 750W",
        "PyTorch's developers have B200s of 750 W (torchao's pull request 3566)",
    ),
)
#: Beginning of an id -> why no model expresses the row.
REASONS: Mapping[str, str] = {
    "me-8b-h200-64k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-h200-256k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-b200-64k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-b200-256k": "the optimizer runs on the CPU, whose speed is not stated",
    "rn50-": "no such recipe here",
    "ml4-h100-sd": "a UNet: no such model here",
    "mcore-gb200-dsv3": "how its FLOPs are counted is not stated",
    "mg-moe": "a second predicted token, tensor parallelism of a mixture: no such recipe here",
    "mg-t5": "an encoder and a decoder that attends to it: no such PyTorch model here",
    "sw-7b-32k": "packed documents of unpublished lengths: attention to the whole sequence would "
    "be a third of the work",
}
#: FlashAttention 2's share of the peak, forward and backward.  H100: Shah et al., FlashAttention-3
#: (2024), section 1.  B200: it has no kernels for it; 350 TFLOP/s (tritonbench, pull request 171).
FLASH2: Mapping[str, float] = {"H100": 0.35, "H200": 0.35, "B200": 0.155, "GB200": 0.14}
#: How ids begin of rows whose library chose FlashAttention 2: on Blackwell, cuDNN's backward pass
#: is not deterministic with dropout (Transformer Engine, pull request 2584), which Megatron's tests
#: ask for.
CHOSE2 = ("mg-7b-tp4-gb200", "mg-7b-pp4-gb200")
#: How ids begin -> share of the causal scores that windows leave: 19 of 26 blocks see 1,024 of
#: 2,048 positions, which is 3 quarters of them (nanochat's ``window_pattern``).
WINDOWS: Mapping[str, float] = {"nanochat-": (19 * 0.75 + 7) / 26}
#: How ids begin -> samples of a packed sequence that do not see each other (``cu_seqlens`` of
#: InternEvo's ``PackedDatasetWithoutCuSeqlen``; mended after the figures were opened).
PACKED: Mapping[str, int] = {"ie-": 8}
#: Layers that are captured of deeper models.
FEW = (2, 4)
#: Beginnings of ids of rows without a memory to predict, of which that many layers are enough.
SHALLOW = ("ml4-", "ml5-", "m6-", "mg-7b-tp4", "trl-", "bs-")
#: Beginning of an id -> what the row leaves open: batches of a step.
ACCUMULATED: Mapping[str, int] = {"primus-mi325x-8b": 8, "nemo-b200-llama3-8b-8k": 64,
    "nemo-b200-llama3-8b-16k": 16}  # fmt: skip
#: Element types of mixtures -> which products are narrow: of the experts, others, both.
GROUPED: Mapping[str, bool | None] = {
    "mxfp8 linears, bf16 grouped products": False,
    "mxfp8 grouped products of the experts, bf16 linears": True,
    "mxfp8 linears and grouped products": None,
    "mxfp8 linears and grouped products of the experts; head, router, key and value projections "
    "bf16": None,
}
#: Mixtures whose checkpointing is expressed, or left out.
MIXED = (
    "am-",
    "primus-mi355x-qwen30b",
    "rlprime-",
    "kf-",
    "prl-",
    "tt-h100-dsv3",
    "tt-gb300-dsv3",
    "mz-",
)
WITHOUT = ("primus-mi355x-qwen30b-8",)
#: Beginning of an id -> the published mixture that it ran, with tokens sent to all experts in turn
#: (AutoModel's ``fake_balanced_gate``).
PUBLISHED: Mapping[str, str] = {
    "am-qwen30b": "qwen3-30b",
    "am-oss20b": "gpt-oss-20b",
    "am-oss120b": "gpt-oss-120b",
    "tt-h100-dsv3-16b": "deepseek-v2-lite",
    "tt-gb300-dsv3-16b": "deepseek-v2-lite",
}
#: Beginnings of ids of published mixtures whose router chose.
ROUTED = ("tt-",)
#: Beginnings of ids of rows with asynchronous tensor parallelism; NeMo's configurations of these
#: models say ``ub_tp_comm_overlap``.
ASYNCHRONOUS = ("ttpa-", "n24-gpt20b", "n24-nemotron8b", "ml4-h100-gpt3", "ml4-b200-gpt3",
    "ml5-h200-405b", "ml5-h200-lora", "ml4-h100-lora", "ml4-h200-lora-8-tp2", "kr-h200-lora",
    "m51-h100-8b-128", "m6-gb200-8b-1024", "ml41-h100-lora-8", "ml41-h100-lora-64",
    "ml41-h100-lora-1", "ml41-h100-lora-5", "ml41-h200-lora-8-tp2", "ml41-h200-lora-512",
)  # fmt: skip
#: How ids of mixtures begin -> how rows get to experts: once to each rank (DeepEP), or as in
#: torchtitan's code, which prime-rl calls, too.
SENT = {"am-": "once", "tt-gb300-dsv3": "once", "tt-h100-dsv3": "padded", "rlprime-": "padded"}
SENT |= {"ao-": "padded", "prl-q30b": "padded"}
#: How ids of mixtures begin whose rows Transformer Engine's kernels permute and sum, without atomic
#: additions (AutoModel's dispatcher: ``moe_permute_fusion=True``).
PERMUTED = ("am-",)
#: Words in a row's element types by which its parameters are gathered in 8 bits: shards are cast.
GATHERED = re.compile("gathered in fp8|float8 all-gather")


def first(table: Mapping[str, Any], text: str, default: Any = None) -> Any:
    """The entry whose key ``text`` begins with, the longest one."""
    keys = sorted((key for key in table if text.startswith(key)), key=len)
    return table[keys[-1]] if keys else default


def how_lost(recipe: Recipe, mesh: Mapping[str, int]) -> dict[str, Any]:
    """How a row's loss is made, and what its loop holds of it: settings of ``Config``."""
    titan = recipe.framework.startswith("torchtitan") and recipe.compiled
    compiled = titan and LOSS_COMPILED[0] <= recipe.date < LOSS_COMPILED[1]
    usual = "compiled" if compiled and not {"pp", "tp"} & {*mesh} else "whole"
    held: dict[str, Any] = {"hold": "cast"} if recipe.id.startswith(CAST) else {}
    found = first(LOSSES, recipe.id, usual)
    if found == "by vocabulary":
        held |= {"chunks": -(-recipe.sizes["vocabulary"] // PART)}
    return {"loss": found, **held}
