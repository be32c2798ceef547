"""Published mixtures of experts (``flint.models.mixtures``) as training steps in PyTorch.

The idea: every model is a ``Config`` of ``moe.py``, trained without dropping tokens, all blocks
checkpointed; ``replace(..., dispatch=...)`` gives other ways.

    flint capture models/torch/moe_sizes.py:train_gpt_oss_20b --mesh 8,8 -o out/
"""

from __future__ import annotations

from dataclasses import replace

from flint.models import mixtures
from flint.models.mixtures import MIXTURES
from flint.models.torch.moe import training
from flint.models.torch.moe_model import Config

SIZES: dict[str, Config] = {
    name: Config(model=model, checkpoint=True) for name, model in MIXTURES.items()
}


def tiny(name: str) -> Config:
    """A model of the same kind that a laptop runs."""
    return Config(model=mixtures.tiny(name), sequence=16)


train_mixtral_8x22b = training(SIZES["mixtral-8x22b"], mesh=(32, 8))
train_deepseek_v2 = training(SIZES["deepseek-v2"], mesh=(16, 16))
train_deepseek_v2_lite = training(SIZES["deepseek-v2-lite"], mesh=(8, 8))
train_deepseek_v3 = training(SIZES["deepseek-v3"], mesh=(32, 64))
train_deepseek_v3_pipeline = training(
    replace(SIZES["deepseek-v3"], microbatches=64), mesh=(16, 2, 64), axes=("pp", "dp", "ep")
)
train_qwen3_30b = training(SIZES["qwen3-30b"], mesh=(8, 8))
train_qwen3_235b = training(SIZES["qwen3-235b"], mesh=(16, 16))
train_gpt_oss_20b = training(SIZES["gpt-oss-20b"], mesh=(8, 8))
train_gpt_oss_120b = training(SIZES["gpt-oss-120b"], mesh=(16, 16))
train_llama4_scout = training(SIZES["llama4-scout"], mesh=(32, 16))
train_llama4_maverick = training(SIZES["llama4-maverick"], mesh=(32, 32))
