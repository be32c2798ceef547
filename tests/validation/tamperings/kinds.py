"""Every kind of wrong capture that is tried, and what happens to it: ``docs/tamperings.md``.

A kind is a step that differs in one thing from the one that ran.  ``CAUGHT``: the report differs,
or nothing is concluded.  Otherwise the report says what it could not check: a fact of ``unrecorded`` or
one of the texts of ``not_compared``.
"""

# ruff: noqa: E501  (a kind is a line)

from __future__ import annotations

from typing import NamedTuple

from flint.validation.matching.unrecorded import (
    COUNTS,
    GROUP,
    LIGHTER,
    PEER,
    REDUCTION,
    VALUES,
)

CAUGHT = "caught"


class Kind(NamedTuple):
    """What is captured in the place of what ran.

    Attributes:
        base: the module of the step that ran.
        name: of the kind, in words.
        changes: options of the captured step, as text that the module evaluates.
        told: what happens.
    """

    base: str
    name: str
    changes: str
    told: str = CAUGHT

    @property
    def row(self) -> str:
        """Its line in the document."""
        outcome, _, why = self.told.partition(": ")
        if self.told in _WHY:
            outcome, why = "not checked", _WHY[self.told]
        return f"| {_SHOWN[self.base]} | {self.name} | {outcome} | {why} |"


_SHOWN = {
    "trained": "PyTorch, DDP", "sharded": "PyTorch, FSDP2", "exchanged": "PyTorch, collectives",
    "jax_trained": "JAX",
}  # fmt: skip
_WHY = {
    VALUES: "values: a workload does not contain them",
    COUNTS: "how many lighter ops: XLA fuses and repeats them",
    GROUP: "group: the trace does not record the ranks of c10d's own ops",
    REDUCTION: "reduce op: c10d's own ops hold it in an object that profilers do not read",
    PEER: "sender or receiver: recorded within a group that the trace does not name",
    LIGHTER: "why lighter ops differ: backends also copy, so copies alone decide nothing",
}


def _kinds(base: str, rows: str, told: str = CAUGHT) -> tuple[Kind, ...]:
    """Kinds of "name = changes" lines."""
    lines = (line.partition(" = ") for line in rows.strip().splitlines())
    return tuple(Kind(base, name.strip(), changes.strip(), told) for name, _, changes in lines)


KINDS: tuple[Kind, ...] = (
    *_kinds(
        "trained",
        """
        silu for gelu = act=F.silu
        relu for gelu = act=F.relu
        tanh for gelu = act=torch.tanh
        sigmoid for gelu = act=torch.sigmoid
        elu for gelu = act=F.elu
        mish for gelu = act=F.mish
        squared relu for gelu = act=squared
        no activation = act=lambda x: x
        a convolution's stride = convolution={"padding": 1, "stride": 2}
        a convolution without padding = convolution={"padding": 0}
        a convolution with more padding = convolution={"padding": 2}
        circular padding = convolution={"padding": 1, "padding_mode": "circular"}
        an RMS norm for a layer norm = norm=nn.RMSNorm
        no norm = norm=lambda size: nn.Identity()
        a layer norm without weights = norm=lambda size: nn.LayerNorm(size, elementwise_affine=False)
        a group norm of more groups = group_norm=lambda: nn.GroupNorm(8, CHANNELS)
        a batch norm for a group norm = group_norm=lambda: nn.BatchNorm2d(CHANNELS)
        an instance norm for a group norm = group_norm=lambda: nn.InstanceNorm2d(CHANNELS, affine=True)
        max pooling for average pooling = pool=lambda: nn.AdaptiveMaxPool2d(2)
        fixed windows for adaptive pooling = pool=lambda: nn.AvgPool2d(4)
        a resize that keeps the size = pool=lambda: nn.Sequential(nn.Upsample(size=SIZE), nn.AdaptiveAvgPool2d(2))
        wider layers = hidden=48
        one more layer = depth=2
        a larger batch = batch=8
        larger images = size=12
        no biases = bias=False
        no dropout = dropout=0.0
        no residual = residual=False
        a norm before and not behind the blocks = swapped=True
        activation checkpointing = checkpointed=True
        a frozen convolution = frozen="convolution"
        frozen blocks = frozen="blocks"
        a frozen norm = frozen="norm"
        a frozen head = frozen="leave"
        bfloat16 parameters = dtype=torch.bfloat16
        float64 parameters = dtype=torch.float64
        autocast = autocast=torch.bfloat16
        softly capped scores = scores=lambda x: torch.tanh(x / 30) * 30
        a temperature = scores=lambda x: x / 2
        a squared error = loss=lambda x, y: x.square().mean()
        label smoothing = loss=lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)
        a scaled loss = loss=lambda x, y: F.cross_entropy(x, y) * 0.5
        a loss on the normaliser = loss=lambda x, y: F.cross_entropy(x, y) + x.logsumexp(-1).square().mean()
        a binary loss = loss=lambda x, y: F.binary_cross_entropy_with_logits(x, F.one_hot(y, CLASSES).float())
        a penalty on the weights = penalty=True
        SGD for AdamW = optimizer=torch.optim.SGD
        SGD with momentum for AdamW = optimizer=torch.optim.SGD, settings={"momentum": 0.9}
        Adam for AdamW = optimizer=torch.optim.Adam
        Adam with weight decay for AdamW = optimizer=torch.optim.Adam, settings={"weight_decay": 0.1}
        Adagrad for AdamW = optimizer=torch.optim.Adagrad
        RMSprop for AdamW = optimizer=torch.optim.RMSprop
        NAdam for AdamW = optimizer=torch.optim.NAdam
        RAdam for AdamW = optimizer=torch.optim.RAdam
        Adamax for AdamW = optimizer=torch.optim.Adamax
        averaged SGD for AdamW = optimizer=torch.optim.ASGD
        AMSGrad = settings={"amsgrad": True}
        ascent for descent = settings={"maximize": True}
        no weight decay = settings={"weight_decay": 0.0}
        a fused optimizer = settings={"foreach": False, "fused": True}
        parameters one by one = settings={"foreach": False}
        a capturable optimizer = settings={"capturable": True}
        no clipping = clip=None
        gradients unscaled = clip=unscaled
        clipping by value = clip=clip_by_value
        an averaged model = ema=True
        no optimizer step = steps=False
        gradients that are never reset = zero=False
        gradients set to zero = none=False
        two microbatches = forwards=2, backwards=2
        a second forward pass = forwards=2
        no backward pass = backwards=0
        a logged loss, summed = logged=log_loss
        a logged loss, its maximum = logged=log_maximum
        a barrier = logged=log_barrier
        smaller buckets = buckets=0.001
        no data parallelism = wrapped=False
        gradients in bfloat16 = hook=compressed
        a buffer that is broadcast = buffers=True
        """,
    ),
    *_kinds(
        "trained",
        """
        gelu by tanh = act=lambda x: F.gelu(x, approximate="tanh")
        a dilation that keeps the sizes = convolution={"padding": 2, "dilation": 2}
        another eps of a norm = norm=lambda size: nn.LayerNorm(size, eps=1e-3)
        another share of dropout = dropout=0.5
        a summed loss = loss=lambda x, y: F.cross_entropy(x, y, reduction="sum")
        other betas = settings={"betas": (0.5, 0.9)}
        another learning rate = settings={"lr": 0.5}
        another eps of the optimizer = settings={"eps": 1e-4}
        more weight decay = settings={"weight_decay": 0.5}
        clipping at another norm = clip=lambda some: nn.utils.clip_grad_norm_(some, 5.0, foreach=True)
        clipping by the largest value = clip=lambda some: nn.utils.clip_grad_norm_(some, 1.0, float("inf"), foreach=True)
        """,
        VALUES,
    ),
    *_kinds("trained", "transposed images = transposed=True", LIGHTER),
    *_kinds(
        "sharded",
        """
        products in float32 = computed=torch.float32
        products in float16 = computed=torch.float16
        gradients reduced in bfloat16 = reduced=torch.bfloat16
        parameters kept after the forward pass = kept=True
        all layers sharded at once = at_once=True
        no sharding = unsharded=True
        DDP for FSDP = replicated=True
        gradients accumulated = accumulated=True
        wider layers = width=48
        one more layer = layers=3
        activation checkpointing = checkpointed=True
        no clipping = clipped=False
        """,
    ),
    *_kinds(
        "exchanged",
        """
        another group for a gather, a scatter and messages = second="data"
        float64 = dtype=torch.float64
        a gather of bfloat16 = sent=torch.bfloat16
        a gather of integers, as many bytes = sent=torch.int32
        a scatter of float16 = scattered=torch.float16
        a scatter of integers, as many bytes = scattered=torch.int32
        a larger gather = gathered=32
        the other sender = turned=True
        one more broadcast = reordered=True
        no all-reduce = reduces=False
        no all-gather = gathers=False
        an all-gather twice = doubled=True
        a sum divided by hand = scaled=True
        the other root of a broadcast = root=1
        """,
    ),
    *_kinds(
        "exchanged",
        """
        the other group of an all-reduce = first="model"
        an all-reduce over all ranks = whole=True
        the other group of an all-to-all = exchanged="data"
        """,
        GROUP,
    ),
    *_kinds(
        "exchanged",
        """
        a maximum for a sum = reduction=dist.ReduceOp.MAX
        an average for a sum = reduction=dist.ReduceOp.AVG
        """,
        REDUCTION,
    ),
    *_kinds("exchanged", 'a functional average for a sum = functional="avg"', VALUES),
    *_kinds(
        "jax_trained",
        """
        silu for gelu = act=jax.nn.silu
        relu for gelu = act=jax.nn.relu
        the exact gelu = act=lambda x: jax.nn.gelu(x, approximate=False)
        sigmoid for gelu = act=jax.nn.sigmoid
        softplus for gelu = act=jax.nn.softplus
        hard swish for gelu = act=jax.nn.hard_swish
        squared relu for gelu = act=lambda x: jnp.square(jax.nn.relu(x))
        the absolute value for gelu = act=jnp.abs
        no activation = act=lambda x: x
        a norm by the maximum = norm=maximum_norm
        no norm = norm=unnormalised
        wider layers = hidden=96
        a larger batch = batch=32
        one more layer = depth=3
        rematerialisation = remat=True
        a squared error = loss=squared_error
        an absolute error = loss=absolute_error
        a sigmoid loss = loss=sigmoid_error
        a loss on the normaliser = loss=lambda s, y: cross_entropy(s, y) + (jax.nn.logsumexp(s, -1) ** 2).mean()
        softly capped scores = scores=lambda s: 30 * jnp.tanh(s / 30)
        Adamax for Adam = optimizer=adamax
        Lion for Adam = optimizer=lion
        momentum for Adam = optimizer=momentum
        SGD for Adam = optimizer=plain
        no update = optimizer=no_update
        no clipping = clip=None
        clipping by value = clip=by_value
        clipping by the largest value = clip=by_largest
        bfloat16 parameters = dtype=jnp.bfloat16
        products in bfloat16 = computed=jnp.bfloat16
        products in float16 = computed=jnp.float16
        a stopped gradient = stopped=True
        a convolution's stride = strides=2
        a convolution without padding = padding="VALID"
        an RMS norm for a layer norm = norm=rms_norm
        no residual = residual=False
        tanh for gelu by tanh = act=jnp.tanh
        a summed loss = loss=lambda s, y: -(jax.nn.log_softmax(s) * y).sum()
        """,
    ),
    *_kinds(
        "jax_trained",
        """
        a temperature = scores=lambda s: s / 2
        weight decay = optimizer=decayed
        a frozen convolution = frozen=True
        label smoothing = loss=lambda s, y: cross_entropy(s, y * 0.9 + 0.1 / CLASSES)
        """,
        COUNTS,
    ),
    *_kinds(
        "jax_trained",
        """
        other betas, eps and learning rate = optimizer=adam_of_other_numbers
        """,
        VALUES,
    ),
)  # fmt: skip
