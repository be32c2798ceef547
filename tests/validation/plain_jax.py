"""Training steps of JAX on eight devices, each written for its test alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

RATE = 0.1


def _placed(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def _step(loss, weights, data, mesh, axes):
    """A step of gradient descent.

    Args:
        loss: of weights by name and of the data.
        weights: name -> (shape, spec).
        data: (shape, spec).
        mesh, axes: what it runs on.
    """

    def step(weights, data):
        value, grads = jax.value_and_grad(loss)(weights, data)
        return jax.tree.map(lambda old, grad: old - RATE * grad, weights, grads), value

    def setup(on):
        named = {name: _placed(on, shape, *spec) for name, (shape, spec) in weights.items()}
        return named, _placed(on, data[0], *data[1])

    return flint.capture(step, mesh=mesh, axes=axes, setup=setup, framework="jax")


def _picture_loss(weights, x):
    dims = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, weights["first"], (2, 2), "SAME", dimension_numbers=dims)
    x = jax.nn.relu(x - x.mean((1, 2), keepdims=True))
    x = lax.conv_general_dilated(x, weights["second"], (1, 1), "SAME", dimension_numbers=dims)
    return jnp.square(x.mean((1, 2)) @ weights["head"]).mean()


cnn = _step(
    _picture_loss,
    {"first": ((3, 3, 3, 8), ()), "second": ((3, 3, 8, 16), ()), "head": ((16, 10), ())},
    ((16, 16, 16, 3), ("data",)),
    (8,), ("data",),
)  # fmt: skip


def _grouped_loss(weights, x):
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.silu(x @ weights["wide"])
    for name, groups in (("each", 16), ("fours", 4)):
        x = lax.conv_general_dilated(
            x, weights[name], (1, 1), "SAME", dimension_numbers=dims, feature_group_count=groups
        )
        x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
    return jnp.square(x.mean((1, 2)) @ weights["head"]).mean()


grouped_cnn = _step(
    _grouped_loss,
    {
        "wide": ((3, 16), ()), "each": ((3, 3, 1, 16), ()), "fours": ((3, 3, 4, 32), ()),
        "head": ((32, 10), ()),
    },
    ((16, 8, 8, 3), ("data",)),
    (8,), ("data",),
)  # fmt: skip


def _mixer_loss(weights, x):
    x = x + jnp.einsum("btd,ts->bsd", jnp.tanh(x), weights["over_tokens"])
    x = x + jax.nn.gelu(x @ weights["wide"]) @ weights["narrow"]
    return jnp.square(x @ weights["out"]).mean()


fsdp_mixer = _step(
    _mixer_loss,
    {
        "over_tokens": ((24, 24), ("shard",)), "wide": ((16, 64), ("shard",)),
        "narrow": ((64, 16), ("shard",)), "out": ((16, 8), ("shard",)),
    },
    ((8, 24, 16), ("shard",)),
    (8,), ("shard",),
)  # fmt: skip


def _heads_loss(weights, x):
    q, k, v = (jnp.einsum("btd,dhe->bhte", x, weights[name]) for name in "qkv")
    seen = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4.0)
    mixed = jnp.einsum("bhte,hed->btd", seen @ v, weights["out"])
    return jnp.square(mixed + x).mean()


tp_heads = _step(
    _heads_loss,
    {
        **dict.fromkeys("qkv", ((16, 4, 8), (None, "model"))),
        "out": ((4, 8, 16), ("model",)),
    },
    ((4, 12, 16), ("data",)),
    (2, 4), ("data", "model"),
)  # fmt: skip


def _recurrent_loss(weights, x):
    def cell(state, one):
        reset, update = jnp.split(
            jax.nn.sigmoid(one @ weights["gates_in"] + state @ weights["gates"]), 2, -1
        )
        new = jnp.tanh(one @ weights["new_in"] + (reset * state) @ weights["new"])
        state = update * state + (1 - update) * new
        return state, state

    first = jnp.zeros((x.shape[1], 12))
    return jnp.square(lax.scan(cell, first, x)[1]).mean()


gru = _step(
    _recurrent_loss,
    {
        "gates_in": ((8, 24), ()), "gates": ((12, 24), ()), "new_in": ((8, 12), ()),
        "new": ((12, 12), ()),
    },
    ((5, 16, 8), (None, "data")),
    (8,), ("data",),
)  # fmt: skip


def _experts_loss(weights, x):
    def one(weights, x):
        sent = lax.all_to_all(x.reshape(8, -1, 16), "expert", 0, 0)
        found = jax.nn.silu(sent @ weights["up"][0]) @ weights["down"][0]
        back = lax.all_to_all(found, "expert", 0, 0).reshape(x.shape)
        return lax.pmean(jnp.square(back + x).mean(), "expert")

    specs = ({"up": P("expert"), "down": P("expert")}, P("expert"))
    return jax.shard_map(one, in_specs=specs, out_specs=P())(weights, x)


moe = _step(
    _experts_loss,
    {"up": ((8, 16, 32), ("expert",)), "down": ((8, 32, 16), ("expert",))},
    ((128, 16), ("expert",)),
    (8,), ("expert",),
)  # fmt: skip


def _piped_loss(weights, x):
    """Four microbatches through eight stages, each handed to the next in a ring."""

    def one(weights, x):
        stage = lax.axis_index("stage")
        ring = [(i, (i + 1) % 8) for i in range(8)]

        def tick(state, at):
            state = jnp.where(stage == 0, x[jnp.minimum(at, 3)], state)
            state = jnp.tanh(state @ weights["w"][0])
            return lax.ppermute(state, "stage", ring), state

        ended = lax.scan(tick, jnp.zeros_like(x[0]) + 0 * stage, jnp.arange(11))[1]
        return lax.psum(jnp.where(stage == 7, jnp.square(ended[7:]).mean(), 0.0), "stage")

    return jax.shard_map(
        one, in_specs=({"w": P("stage")}, P()), out_specs=P(), check_vma=False
    )(weights, x)  # fmt: skip


pipeline = _step(_piped_loss, {"w": ((8, 16, 16), ("stage",))}, ((4, 6, 16), ()), (8,), ("stage",))


def _chosen_loss(weights, x):
    """Words to the best two of four experts, by products with zeros and ones."""
    shares, choices = lax.top_k(jax.nn.softmax(x @ weights["router"]), 2)
    chosen = jax.nn.one_hot(choices, 4)
    order = jnp.cumsum(chosen.reshape(-1, 4), 0)
    places = jax.nn.one_hot(order.reshape(chosen.shape).astype(int) - 1, 6)
    sent = jnp.einsum("tke,tkec,td->ecd", chosen, places, x)
    found = jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, weights["up"]))
    back = jnp.einsum("tk,tke,tkec,ecf->tf", shares, chosen, places, found)
    return jnp.square(back - x).mean()


top_k = _step(
    _chosen_loss,
    {"router": ((16, 4), ()), "up": ((4, 16, 16), ("expert",))},
    ((32, 16), (("data", "expert"),)),
    (2, 4), ("data", "expert"),
)  # fmt: skip
