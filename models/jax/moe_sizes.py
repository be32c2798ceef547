"""Published mixtures of experts: a table of sizes, as their configurations state them.

The idea: every model is a ``Config`` of ``moe.py``; its step is ``training(SIZES["qwen3-30b"],
mesh=(8, 8))``, or one of the steps below.  All of them drop nothing and balance the load without a
loss where theirs does; ``replace(..., dispatch=...)`` has other ways.

    flint capture models/jax/moe_sizes.py:train_gpt_oss_20b --mesh 8,8 -o out/

Left out: DeepSeek-V3's module that predicts a second token, vision encoders of Llama 4, and what
only inference uses (stretched rotary embeddings, attention temperatures).

model         sizes from
mixtral-...   "Mixtral of Experts" (2024), table 1; config.json of the two; experts' capacity 1.25
deepseek-v3   "DeepSeek-V3 Technical Report" (2024), section 4.2
qwen3-...     "Qwen3 Technical Report" (2025), table 2; config.json
gpt-oss-...   "gpt-oss-120b & gpt-oss-20b Model Card" (2025), table 1; config.json
llama4-...    config.json of Llama-4-Scout-17B-16E and Llama-4-Maverick-17B-128E
"""

from __future__ import annotations

from dataclasses import replace

from flint.models.jax.layers import Heads, attention
from flint.models.jax.moe import MIXTRAL_8X7B, Config, Layer, training
from flint.models.jax.moe_attention import Form, Latent, Span
from flint.models.jax.moe_routing import Experts

_QWEN3 = Config(
    layers=48, width=2048, heads=Heads(queries=32, keys=4, size=128, theta=1e6),
    experts=Experts(count=128, chosen=8, hidden=768), form=Form(norm="learned"), dispatch="ragged",
    balance=0.001, vocabulary=151936,
)  # fmt: skip
_GPT_OSS = Config(
    layers=24, width=2880, heads=Heads(queries=64, keys=8, size=64, theta=150000.0),
    experts=Experts(count=32, chosen=4, hidden=2880, biases=True),
    form=Form(bias=True, sinks=True), period=(Layer(span=Span(window=128)), Layer()),
    dispatch="ragged", vocabulary=201088,
)  # fmt: skip
#: Three layers of chunks with positions, one of everything without.
_CHUNKED, _WHOLE = Span(chunk=8192), Span(rotated=False)
_LLAMA4 = Config(
    layers=48, width=5120, heads=Heads(queries=40, keys=8, size=128),
    experts=Experts(count=16, chosen=1, hidden=8192, gate="input", shared=8192),
    form=Form(norm="unit"), hidden=16384, dispatch="ragged", balance=0.001, vocabulary=202048,
    period=(Layer(span=_CHUNKED),) * 3 + (Layer(span=_WHOLE),),
)  # fmt: skip
_MAVERICK = tuple(
    Layer(span=_WHOLE if number % 4 == 3 else _CHUNKED, sparse=number % 2 == 1)
    for number in range(4)
)

SIZES: dict[str, Config] = {
    "mixtral-8x7b": MIXTRAL_8X7B,
    "mixtral-8x22b": replace(
        MIXTRAL_8X7B, layers=56, width=6144, heads=Heads(queries=48, keys=8, size=128, theta=1e6),
        experts=Experts(count=8, chosen=2, hidden=16384),
    ),
    "deepseek-v3": Config(
        layers=61, dense=3, width=7168, hidden=18432, vocabulary=129280, balance=0.0,
        heads=Heads(queries=128, keys=128, size=128, theta=10000.0), dispatch="ragged",
        form=Form(latent=Latent(queries=1536, keys=512, rotated=64, values=128)),
        experts=Experts(
            count=256, chosen=8, hidden=2048, gate="sigmoid", groups=8, kept_groups=4, scale=2.5,
            shared=2048,
        ),
    ),
    "qwen3-30b": _QWEN3,
    "qwen3-235b": replace(
        _QWEN3, layers=94, width=4096, heads=Heads(queries=64, keys=4, size=128, theta=1e6),
        experts=replace(_QWEN3.experts, hidden=1536),
    ),
    "gpt-oss-20b": _GPT_OSS,
    "gpt-oss-120b": replace(
        _GPT_OSS, layers=36, experts=replace(_GPT_OSS.experts, count=128)
    ),
    "llama4-scout": _LLAMA4,
    "llama4-maverick": replace(
        _LLAMA4, experts=replace(_LLAMA4.experts, count=128), form=Form(), period=_MAVERICK
    ),
}  # fmt: skip


def tiny(name: str) -> Config:
    """A model of the same kind that a laptop runs: narrow, few layers and experts, short spans."""
    config = SIZES[name]
    keys = 4 if config.heads.keys < config.heads.queries else 8
    form = config.form
    if form is not None:
        latent = form.latent and Latent(queries=24, keys=16, rotated=4, values=8)
        form = replace(form, latent=latent, fused=False)
    period = tuple(
        replace(each, span=replace(each.span, window=min(each.span.window, 5),
                                   chunk=min(each.span.chunk, 8)))
        for each in config.period
    )  # fmt: skip
    count = max(8, config.experts.groups)
    experts = replace(
        config.experts, count=count, chosen=min(config.experts.chosen, 2), hidden=48,
        groups=min(config.experts.groups, 4), kept_groups=min(config.experts.kept_groups, 2),
        shared=min(config.experts.shared, 32),
    )  # fmt: skip
    return replace(
        config, layers=min(config.dense, 1) + 2 * len(period), dense=min(config.dense, 1),
        width=64, hidden=min(config.hidden, 96), vocabulary=256, sequence=16, form=form,
        heads=replace(config.heads, queries=8, keys=keys, size=8), period=period, experts=experts,
        mixer=attention,
    )  # fmt: skip


train_deepseek_v3 = training(SIZES["deepseek-v3"], mesh=(32, 64))
train_qwen3_30b = training(SIZES["qwen3-30b"], mesh=(8, 8))
train_qwen3_235b = training(SIZES["qwen3-235b"], mesh=(16, 16))
train_gpt_oss_20b = training(SIZES["gpt-oss-20b"], mesh=(8, 8))
train_gpt_oss_120b = training(SIZES["gpt-oss-120b"], mesh=(16, 16))
train_llama4_scout = training(SIZES["llama4-scout"], mesh=(32, 16))
train_llama4_maverick = training(SIZES["llama4-maverick"], mesh=(32, 32))
