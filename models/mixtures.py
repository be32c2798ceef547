"""Published mixtures of experts, for whichever framework: a table of sizes, as their configurations
state them.

The idea: a model is a ``Mixture``: attention in some ``Form``, ``Experts``, and a period of layers
that repeats.  ``models/jax/moe_sizes.py`` and ``models/torch/moe_sizes.py`` train them.

Left out: DeepSeek-V3's module that predicts a second token, vision encoders of Llama 4, and what
only inference uses (stretched rotary embeddings, attention temperatures).

model         sizes from
mixtral-...   "Mixtral of Experts" (2024), table 1; config.json of the two; experts' capacity 1.25
deepseek-v2.. "DeepSeek-V2" (2024), section 3.1.2 and appendix B; config.json of the two
deepseek-v3   "DeepSeek-V3 Technical Report" (2024), section 4.2
qwen3-...     "Qwen3 Technical Report" (2025), table 2; config.json
gpt-oss-...   "gpt-oss-120b & gpt-oss-20b Model Card" (2025), table 1; config.json
llama4-...    config.json of Llama-4-Scout-17B-16E and Llama-4-Maverick-17B-128E
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of grouped-query attention (Ainslie et al., 2023).

    Attributes:
        queries: number of query heads.
        keys: number of key and value heads; divides ``queries``.
        size: elements of a head.
        theta: base of the rotary embedding's wavelengths.
    """

    queries: int
    keys: int
    size: int
    theta: float = 500000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Sizes of multi-head latent attention (DeepSeek-V2, 2024, section 2.1).

    Attributes:
        queries, keys: elements of the latents; queries 0: they come from one matrix, without a
            latent.
        rotated: elements of a head that carry positions; keys share them.
        values: elements of a value's head.
    """

    queries: int
    keys: int
    rotated: int
    values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a model's attention has beyond Llama's.

    Attributes:
        latent: queries, keys and values come from latents; ``Heads.size`` is then what a head has
            without its rotated elements, and ``Heads.keys`` is not used.
        bias: projections add biases.
        sinks: every head has a learned score that no value belongs to (Xiao et al., 2023).
        norm: of queries and keys: "" none, "learned" by a weight per element, "unit" without.
        fused: by a kernel where the framework has one, else spelled out.
    """

    latent: Latent | None = None
    bias: bool = False
    sinks: bool = False
    norm: str = ""
    fused: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a layer's queries see.

    Attributes:
        window: number of last positions, the query's own among them; 0: all.
        chunk: number of positions in a chunk, of which a query sees its own; 0: all.
        rotated: queries and keys carry their positions.
    """

    window: int = 0
    chunk: int = 0
    rotated: bool = True


#: What Llama's layers see.
EVERYTHING = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of a period.

    Attributes:
        span: what its attention sees.
        sparse: it has experts, else one feed-forward network.
    """

    span: Span = EVERYTHING
    sparse: bool = True


SPARSE, DENSE = Layer(), Layer(sparse=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Sizes of a mixture of experts.

    Attributes:
        count: number of experts; a multiple of the devices that they are split over.
        chosen: experts of a token.
        hidden: width of an expert's feed-forward network.
        capacity_factor: an expert's places, over those that it would need if all experts got
            equally many tokens; ``count / chosen`` or more drops nothing.
        gate: what is made of the scores, see the routers: "softmax", "sigmoid", "input",
            "probability".
        groups: into which the gates "sigmoid" and "probability" divide the experts.
        kept_groups: of these that a token may choose from.
        scale: of the weights of these two gates.
        shared: width of a feed-forward network that every token goes through as well; 0: none.
        room: of JAX's dispatch "ragged": rows that a device has room for, over those that it sends;
            results beyond that are undefined.  0: room for all that could come.
        biases: router and experts add biases, and the experts' activation is GPT-OSS's.
    """

    count: int
    chosen: int
    hidden: int
    capacity_factor: float = 1.25
    gate: str = "softmax"
    groups: int = 1
    kept_groups: int = 1
    scale: float = 1.0
    shared: int = 0
    room: float = 0.0
    biases: bool = False

    def capacity(self, length: int) -> int:
        """Places of one expert for a number of tokens; never more than the tokens."""
        even = length * self.chosen / self.count
        return min(length, math.ceil(self.capacity_factor * even))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A model.

    Attributes:
        layers: number of blocks.
        width: elements of the residual stream.
        heads: sizes of the attention.
        experts: sizes of the mixture.
        period: layers that repeat.
        dense: layers before all others that have a feed-forward network and no experts.
        hidden: width of the feed-forward network of layers without experts.
        form: what the attention has beyond Llama's; None: nothing.
        balance: weight of the load-balancing loss; 0: none.
        vocabulary: number of tokens.
    """

    layers: int
    width: int
    heads: Heads
    experts: Experts
    period: tuple[Layer, ...] = (SPARSE,)
    dense: int = 0
    hidden: int = 0
    form: Form | None = None
    balance: float = 0.02
    vocabulary: int = 32000


_MIXTRAL = Mixture(
    layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128, theta=1e6),
    experts=Experts(count=8, chosen=2, hidden=14336),
)  # fmt: skip
_QWEN3 = Mixture(
    layers=48, width=2048, heads=Heads(queries=32, keys=4, size=128, theta=1e6),
    experts=Experts(count=128, chosen=8, hidden=768), form=Form(norm="learned"), balance=0.001,
    vocabulary=151936,
)  # fmt: skip
_GPT_OSS = Mixture(
    layers=24, width=2880, heads=Heads(queries=64, keys=8, size=64, theta=150000.0),
    experts=Experts(count=32, chosen=4, hidden=2880, biases=True),
    form=Form(bias=True, sinks=True), period=(Layer(span=Span(window=128)), Layer()),
    vocabulary=201088,
)  # fmt: skip
#: Three layers of chunks with positions, one of everything without.
_CHUNKED, _WHOLE = Span(chunk=8192), Span(rotated=False)
_LLAMA4 = Mixture(
    layers=48, width=5120, heads=Heads(queries=40, keys=8, size=128),
    experts=Experts(count=16, chosen=1, hidden=8192, gate="input", shared=8192),
    form=Form(norm="unit"), hidden=16384, balance=0.001, vocabulary=202048,
    period=(Layer(span=_CHUNKED),) * 3 + (Layer(span=_WHOLE),),
)  # fmt: skip
_MAVERICK = tuple(
    Layer(span=_WHOLE if number % 4 == 3 else _CHUNKED, sparse=number % 2 == 1)
    for number in range(4)
)
_LATENT = Latent(queries=1536, keys=512, rotated=64, values=128)

MIXTURES: dict[str, Mixture] = {
    "mixtral-8x7b": _MIXTRAL,
    "mixtral-8x22b": replace(
        _MIXTRAL, layers=56, width=6144, heads=Heads(queries=48, keys=8, size=128, theta=1e6),
        experts=Experts(count=8, chosen=2, hidden=16384),
    ),
    "deepseek-v2": Mixture(
        layers=60, dense=1, width=5120, hidden=12288, vocabulary=102400, balance=0.003,
        heads=Heads(queries=128, keys=128, size=128, theta=10000.0), form=Form(latent=_LATENT),
        experts=Experts(
            count=160, chosen=6, hidden=1536, gate="probability", groups=8, kept_groups=3,
            scale=16.0, shared=3072,
        ),
    ),
    "deepseek-v2-lite": Mixture(
        layers=27, dense=1, width=2048, hidden=10944, vocabulary=102400, balance=0.001,
        heads=Heads(queries=16, keys=16, size=128, theta=10000.0),
        form=Form(latent=replace(_LATENT, queries=0)),
        experts=Experts(count=64, chosen=6, hidden=1408, gate="probability", shared=2816),
    ),
    "deepseek-v3": Mixture(
        layers=61, dense=3, width=7168, hidden=18432, vocabulary=129280, balance=0.0,
        heads=Heads(queries=128, keys=128, size=128, theta=10000.0), form=Form(latent=_LATENT),
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


def tiny(name: str) -> Mixture:
    """A model of the same kind that a laptop runs: narrow, few layers and experts, short spans."""
    model = MIXTURES[name]
    keys = 4 if model.heads.keys < model.heads.queries else 8
    form = model.form
    if form is not None and form.latent is not None:
        queries = min(24, form.latent.queries)
        form = replace(form, latent=Latent(queries=queries, keys=16, rotated=8, values=8))
    period = tuple(
        replace(each, span=replace(each.span, window=min(each.span.window, 5),
                                   chunk=min(each.span.chunk, 8)))
        for each in model.period
    )  # fmt: skip
    experts = replace(
        model.experts, count=max(8, model.experts.groups), chosen=min(model.experts.chosen, 2),
        hidden=48, groups=min(model.experts.groups, 4),
        kept_groups=min(model.experts.kept_groups, 2), shared=min(model.experts.shared, 32),
    )  # fmt: skip
    return replace(
        model, layers=min(model.dense, 1) + 2 * len(period), dense=min(model.dense, 1), width=64,
        hidden=min(model.hidden, 96), vocabulary=256, form=form, period=period, experts=experts,
        heads=replace(model.heads, queries=8, keys=keys, size=8),
    )  # fmt: skip
