"""How each recipe of a JAX trainer is run: what rows leave open, and what our models lack.

ENTRIES["iw-llama70-64-fp8"].remat          # what is kept for the backward pass
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """How a row is run.

    Attributes:
        remat: our policy.
        differs: what differs from the published run.
        context: chips that a sequence is split over.
        slice: chips of a slice; 0: all.
        experts: ranks of expert parallelism.
        tensor: ranks of tensor parallelism.
        scaling: of the products, where they are narrow.
        memory: whether what is kept is kept as published.
        accumulated: batches of a step.
        attention: share of the peak that its kernel reaches, if that is not the system's.
        blocks: of queries and keys in the attention kernel, forward and backward, where a window is
            narrower; 0: as wide as the window.
        biases: experts add them.
    """

    remat: str
    differs: str = ""
    context: int = 1
    slice: int = 0
    experts: int = 1
    tensor: int = 1
    scaling: str = ""
    memory: bool = True
    accumulated: int = 1
    attention: float = 0.0
    blocks: tuple[int, int] = (0, 0)
    biases: bool = False


_ADAM = "AdamW, not Adafactor; f32 weights"
_QWIX = "casts as narrow.py says"
_MOMENT = "first moment f32, not bf16"
_GPT_OSS = Entry(
    "offloaded experts", "no sinks, no biases of attention", blocks=(1024, 2048), biases=True
)
_SHARED = "as the row says"
_GEMMA = "global heads of 256, twice as many, with values of their own"
_TIED = "embedding and head are two matrices"
#: Share of the peak of JAX's first Pallas kernel, which AXLearn called until October 2024 (its pull
#: request 722): from 40 to 140 heads, attention and its gradients take 16.6 ms more on a TPU v4
#: (tpu_attention_benchmark.py: two sequences of 2,048, heads of 128, blocks of 512, with a bias).
_FIRST_KERNEL = 0.206
_WAN = "cross attention with the weights of self-attention; no modulation, f32 weights"
#: Row -> how it is run.
ENTRIES: Mapping[str, Entry] = {
    "iw-llama70-64-fp8": Entry("context", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama70-256-fp8": Entry("context", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama405-256-fp8": Entry("offloaded", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama70-256-128k-fp8": Entry(
        "context", f"{_QWIX}; half of the keys for every query, as a balanced split has in the "
        "mean; parameters split over 64 chips", context=4, scaling="static",
        memory=False,
    ),
    "iw-gemma4-31b-64": Entry(
        "outputs", "global heads of 256, twice as many, with values of their own; embedding and "
        "head are two matrices", memory=False,
    ),
    "v6e-gemma3-12b-1024": Entry(
        "full", "embedding and head are two matrices", slice=256, memory=False,
    ),
    "v6e-gpt3-int8-256": Entry("full", f"{_QWIX}; all products int8", scaling="int8"),
    **dict.fromkeys(
        (f"ml41-v6e-gpt3-{chips}" for chips in (512, 1024, 2048)),
        Entry("full", f"{_QWIX}; all products int8", scaling="int8", slice=256, memory=False),
    ),
    "ml41-v5p-gpt3-2048": Entry(
        "narrow", f"{_QWIX}; all products int8", scaling="int8", tensor=8, memory=False
    ),
    "iw-gptoss120-64": _GPT_OSS,
    "iw-gptoss120-256": _GPT_OSS,
    "iw-qwen235-256-bf16": Entry("offloaded"),
    "iw-qwen235-256-fp8": Entry("offloaded", _QWIX, scaling="static"),
    "v5p-mixtral7b-128": Entry("full", "f32 weights", memory=False),
    "iw-dsv3-128-bf16": Entry("offloaded", _MOMENT),
    "iw-dsv3-256-bf16": Entry("offloaded", _MOMENT),
    "iw-dsv3-128-fp8": Entry("offloaded", f"{_MOMENT}; {_QWIX}", scaling="static"),
    "iw-dsv3-256-fp8": Entry("offloaded", f"{_MOMENT}; {_QWIX}", scaling="static"),
    "iw-gemma4-26b-64": Entry("offloaded", _GEMMA, memory=False),
    "iw-gemma4-26b-256": Entry("full", _GEMMA, memory=False),
    "v5p-maverick-128": Entry("offloaded attention", _SHARED, tensor=4, memory=False),
    "v5p-scout": Entry("offloaded", _SHARED, memory=False),
    "iw-wan21-64": Entry("full", _WAN, context=2, memory=False),
    "v5p-wan21-4": Entry("full", _WAN, context=4, memory=False),
    "v5p-flux-4": Entry(
        "none", "one stream of blocks with as many FLOPs; no modulation, f32 weights; remat is "
        "not published", memory=False,
    ),
    "px-llama31-405b-v6e-512": Entry("full", _ADAM, slice=256, tensor=4, memory=False),
    **dict.fromkeys(
        (f"px-{row}" for row in ("llama3-8b-v6e-256", "llama3-70b-v6e-256", "mixtral-v6e-256",
        "mixtral-v5p-128")), Entry("full", _ADAM, memory=False),
    ),
    "ax-7b1-v4-512": Entry("attention", _TIED, memory=False),
    "ax-7b1-v5e-1024": Entry("attention", _TIED, slice=256, memory=False),
    "ax-7b1-v5p-256": Entry("attention", _TIED, memory=False),
    "ax-7b2-v5e-1024": Entry("dots", _TIED, slice=256, memory=False, attention=_FIRST_KERNEL),
    "ax-70b2-v6e-1024": Entry("offloaded attention", slice=256),
    "ax-70b2-v6e-256": Entry(
        "offloaded attention", "four steps of a quarter: the optimizer counts four times",
        accumulated=4, memory=False,
    ),
    **dict.fromkeys(
        (f"ax-hc3b-v5p-{chips}" for chips in (512, 1024, 2048)),
        Entry("dots", _TIED, memory=False, attention=_FIRST_KERNEL),
    ),
    "tp-8b-v6e-256": Entry("offloaded", _ADAM, memory=False),
    "tp-70b-v6e-256": Entry("offloaded", _ADAM, memory=False),
    "tp-405b-v6e-256": Entry("offloaded", _ADAM, tensor=4, memory=False),
    "tp-405b-v6e-512": Entry(
        "offloaded", f"{_ADAM}; slices are replicas", slice=256, tensor=4, memory=False
    ),
    "mt-dsv2lite-v5p-4": Entry("full", "", memory=False),
    "mt-900b-v6e-256": Entry("offloaded attention", "AdamW, f32 weights", tensor=16, memory=False),
    **dict.fromkeys(
        ("v6e-moe700b-init", "v6e-moe700b-final", "mt-moe700b-exp-v6e-256"),
        Entry("offloaded attention", "AdamW, f32 weights", experts=16, memory=False),
    ),
    "mt-8b-v6e-64": Entry("offloaded attention"),
    "mar-moe-v4": Entry(
        "full", "no compilation, no norms every tenth step; dispatch is not published", memory=False
    ),
}  # fmt: skip
#: Why other rows are not expressed, by the beginning of their ids.
REASONS: Mapping[str, str] = {
    "iw-gemma4-2b": "embeddings per layer and shared keys: no such model here",
    "iw-gemma4-4b": "embeddings per layer and shared keys: no such model here",
    "ml4-v5p-sd": "a UNet: no such model here",
    "ml5-v6e-sd": "a UNet: no such model here",
    "": "no such recipe here",
}
KINDS: Mapping[str, str] = {
    "TPU v7x (Ironwood)": "v7x", "TPU v6e": "v6e", "TPU v5p": "v5p", "TPU v5e": "v5e",
    "TPU v4": "v4",
}  # fmt: skip
#: Rows on GPUs -> what is kept for the backward pass, whether attention is cuDNN's kernel.
ON_GPUS: Mapping[str, tuple[str, bool]] = {
    "jt-llama2-7b-h100-8": ("dots", True),
    "ax-7b1-h100-256": ("attention", False),
    "ax-7b1-h100-512": ("attention", False),
    "ax-7b2-h100-256": ("attention", True),
    "ax-70b2-h100-512": ("attention", False),
    **dict.fromkeys(
        (f"dgxc-70b-fp8-{devices}" for devices in (64, 128, 256, 512, 1024, 2048)),
        ("projections", True),
    ),
}
#: Beginning of an accelerator's name -> system, accelerator.
GPUS: Mapping[str, tuple[str, str]] = {
    "H100": ("dgx-h100", "h100-sxm"),
    "H200": ("hgx-h200", "h200-sxm"),
    "A100": ("dgx-a100", "a100-sxm"),
}
