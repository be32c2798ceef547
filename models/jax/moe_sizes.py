"""Published mixtures of experts (``flint.models.mixtures``) as training steps.

The idea: every model is a ``Config`` of ``moe.py``; its step is ``training(SIZES["qwen3-30b"],
mesh=(8, 8))``, or one of the steps below.  All but Mixtral drop nothing, and balance the load
without a loss where the published model does; ``replace(..., dispatch=...)`` gives other ways.

    flint capture models/jax/moe_sizes.py:train_gpt_oss_20b --mesh 8,8 -o out/
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from flint.models import mixtures
from flint.models.jax.layers import attention
from flint.models.jax.moe import MIXTRAL_8X7B, Config, training
from flint.models.mixtures import MIXTURES, Mixture


def _of(model: Mixture) -> dict[str, Any]:
    return {each.name: getattr(model, each.name) for each in fields(model)}


def _config(name: str, model: Mixture) -> Config:
    if name.startswith("mixtral"):  # an expert has a capacity, attention is cuDNN's
        return replace(MIXTRAL_8X7B, **_of(model))
    return Config(**_of(model), dispatch="ragged")


SIZES: dict[str, Config] = {name: _config(name, model) for name, model in MIXTURES.items()}


def tiny(name: str) -> Config:
    """A model of the same kind that a laptop runs: narrow, few layers and experts, short spans;
    attention is spelled out."""
    model = mixtures.tiny(name)
    form = model.form and replace(model.form, fused=False)
    sizes = {**_of(model), "form": form}
    return replace(SIZES[name], **sizes, sequence=16, mixer=attention)


train_deepseek_v3 = training(SIZES["deepseek-v3"], mesh=(32, 64))
train_qwen3_30b = training(SIZES["qwen3-30b"], mesh=(8, 8))
train_qwen3_235b = training(SIZES["qwen3-235b"], mesh=(16, 16))
train_gpt_oss_20b = training(SIZES["gpt-oss-20b"], mesh=(8, 8))
train_gpt_oss_120b = training(SIZES["gpt-oss-120b"], mesh=(16, 16))
train_llama4_scout = training(SIZES["llama4-scout"], mesh=(32, 16))
train_llama4_maverick = training(SIZES["llama4-maverick"], mesh=(32, 32))
