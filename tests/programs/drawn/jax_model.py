"""The model of a JAX program drawn from a number: its mesh, its blocks, and how weights lie."""

import math

import jax
import jax.numpy as jnp
from drawing import pick
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, HEADS, WORDS, LENGTH, LAYERS, ROWS = (
    pick([32, 64]), pick([2, 4]), pick([64, 96]), pick([8, 16]), pick([1, 2, 3]), pick([16, 32])
)  # fmt: skip
STYLE = pick(["auto", "auto", "auto", "explicit", "parts", "parts", "copies"])
SIZES = {
    "auto": pick([(8,), (4, 2), (2, 4), (2, 2, 2)]), "explicit": pick([(8,), (4, 2)]),
    "parts": pick([(8,), (4, 2), (2, 4)]), "copies": (8,),
}[STYLE]  # fmt: skip
AXES = dict(zip(("data", "model", "sequence"), SIZES, strict=False))
TYPE = pick([jnp.float32, jnp.float32, jnp.bfloat16])
KIND = pick(["attention", "attention", "feedforward", "convolution", "recurrence", "mixture"])
SCANNED, KEPT = pick([True, False]), pick([None, None, "nothing", "products"])
SHARDED = pick([True, False]) and STYLE == "auto"  # weights also over "data"
CONSTRAINED, CAUSAL, ATTENTION = (
    pick([True, False]), pick([True, False]), pick(["written", "jax's", "capped"])
)  # fmt: skip
ASSOCIATIVE, BEST = pick([True, False]), pick([True, False])
#: Whether the parts of a shard_map have parts of weights, too.
TENSOR = STYLE == "parts" and "model" in AXES and KIND in ("attention", "feedforward")
ACT = pick([jax.nn.gelu, jax.nn.silu, jax.nn.relu])
axis_type = AxisType.Explicit if STYLE == "explicit" else AxisType.Auto
MESH = jax.make_mesh(SIZES, tuple(AXES), axis_types=(axis_type,) * len(AXES))
#: Weights of a layer: sizes, and the mesh axis of each dim.
WEIGHTS = {
    "first": ((WIDTH,), ()),
    "second": ((WIDTH,), ()),
    "up": ((WIDTH, 4 * WIDTH), (None, "model")),
    "down": ((4 * WIDTH, WIDTH), ("model", None)),
} | {
    "attention": {
        "read": ((WIDTH, 3, HEADS, WIDTH // HEADS), (None, None, "model", None)),
        "out": ((HEADS, WIDTH // HEADS, WIDTH), ("model", None, None)),
    },
    "feedforward": {},
    "convolution": {"filter": ((3, WIDTH, WIDTH), (None, None, "model"))},
    "recurrence": {"decay": ((WIDTH,), ()), "into": ((WIDTH, WIDTH), (None, "model"))},
    "mixture": {
        "router": ((WIDTH, 4), ()),
        "expert_up": ((4, WIDTH, 4 * WIDTH), ("model", None, None)),
        "expert_down": ((4, 4 * WIDTH, WIDTH), ("model", None, None)),
    },
}[KIND]
ENDS = {
    "words": ((WORDS, WIDTH), ("model", None)),
    "head": ((WIDTH, WORDS), (None, "model")),
    "norm": ((WIDTH,), ()),
}


def init(key):
    def weights(table, key):
        keys = dict(zip(table, jax.random.split(key, len(table)), strict=True))
        return {name: jax.random.normal(keys[name], table[name][0]) * 0.02 for name in table}

    ends, *keys = jax.random.split(key, LAYERS + 1)
    layers = [weights(WEIGHTS, each) for each in keys]
    stacked = jax.tree.map(lambda *all: jnp.stack(all), *layers) if SCANNED else layers
    return weights(ENDS, ends) | {"layers": stacked}


def placed():
    """The ``PartitionSpec`` of each weight."""

    def spec(sizes, axes):
        names = [*axes, *[None] * len(sizes)][: len(sizes)]
        fits = STYLE == "auto" or TENSOR
        names = [
            name if name in AXES and fits and size % AXES[name] == 0 else None
            for name, size in zip(names, sizes, strict=True)
        ]
        for dim, size in enumerate(sizes if SHARDED else ()):
            if names[dim] is None and size > 16 and size % AXES["data"] == 0:
                names[dim] = "data"
                break
        return names

    def of(table, *before):
        return {name: P(*before, *spec(*item)) for name, item in table.items()}

    ends = {name: P() for name in ENDS} if TENSOR else of(ENDS)
    layers = of(WEIGHTS, None) if SCANNED else [of(WEIGHTS) for _ in range(LAYERS)]
    return ends | {"layers": layers}


def laid(x, *axes):
    if STYLE != "auto" or not CONSTRAINED:
        return x
    spec = P(*(axis if axis in AXES else None for axis in axes))
    return lax.with_sharding_constraint(x, NamedSharding(MESH, spec))


def normed(x, weight):
    wide = x.astype(jnp.float32)
    root = lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    return (wide * root * weight).astype(x.dtype)


def attention(x, layer):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, layer["read"][:, i]) for i in range(3))
    if ATTENTION == "jax's" and STYLE != "explicit":
        found = jax.nn.dot_product_attention(q, k, v, is_causal=CAUSAL)
    else:
        weights = jnp.einsum("bqhk,bthk->bhqt", q, k) / math.sqrt(WIDTH // HEADS)
        weights = 30 * jnp.tanh(weights / 30) if ATTENTION == "capped" else weights
        if CAUSAL:
            weights = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), weights, -1e9)
        shares = jax.nn.softmax(weights.astype(jnp.float32), -1).astype(TYPE)
        found = jnp.einsum("bhqt,bthk->bqhk", shares, v)
    found = jnp.einsum("bthk,hkd->btd", found, layer["out"])
    return lax.psum(found, "model") if TENSOR else found


def convolution(x, layer):
    dims = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(x, layer["filter"], (1,), "SAME", dimension_numbers=dims)


def recurrence(x, layer):
    decay, given = jax.nn.sigmoid(layer["decay"]), x @ layer["into"]
    if ASSOCIATIVE:
        both = (jnp.broadcast_to(decay, given.shape), given)
        return lax.associative_scan(
            lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1]), both, axis=1
        )[1]
    start = jnp.zeros_like(given[:, 0])
    after = lax.scan(lambda state, row: (state * decay + row,) * 2, start, given.swapaxes(0, 1))
    return after[1].swapaxes(0, 1)


def mixture(x, layer):
    shares = jax.nn.softmax((x @ layer["router"]).astype(jnp.float32), -1)
    if BEST:
        best, which = lax.top_k(shares, 2)
        shares = (jax.nn.one_hot(which, 4) * best[..., None]).sum(-2)
    found = ACT(jnp.einsum("btd,edf->btef", x, layer["expert_up"]))
    found = jnp.einsum("btef,efd->bted", found, layer["expert_down"])
    return jnp.einsum("bted,bte->btd", found, shares.astype(TYPE))


MIXES = {
    "attention": attention, "convolution": convolution, "recurrence": recurrence, "mixture": mixture
}  # fmt: skip


def block(x, layer):
    layer = {name: weight.astype(TYPE) for name, weight in layer.items()}
    if KIND in MIXES:
        x = x + MIXES[KIND](normed(x, layer["first"]), layer)
    x = laid(x, "data", "sequence", None)
    hidden = laid(ACT(normed(x, layer["second"]) @ layer["up"]), "data", None, "model")
    down = hidden @ layer["down"]
    return x + (lax.psum(down, "model") if TENSOR else down)


def logits(params, x):
    kept = {"nothing": None, "products": jax.checkpoint_policies.dots_with_no_batch_dims_saveable}
    each = jax.checkpoint(block, policy=kept[KEPT]) if KEPT else block
    if SCANNED:
        x = lax.scan(lambda x, layer: (each(x, layer), None), x, params["layers"])[0]
    else:
        for layer in params["layers"]:
            x = each(x, layer)
    return (normed(x, params["norm"]) @ params["head"].astype(TYPE)).astype(jnp.float32)
