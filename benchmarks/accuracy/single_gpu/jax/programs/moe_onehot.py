"""Transformer with eight experts, two per token: one-hot dispatch with a capacity, scanned, Adafactor."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adafactor(1e-3)


def init(key, s):
    n, d, f, e = s["layers"], s["width"], s["inner"], s["experts"]
    shapes = {
        "qkv": (n, d, 3 * d),
        "o": (n, d, d),
        "router": (n, d, e),
        "gate": (n, e, d, f),
        "up": (n, e, d, f),
        "down": (n, e, f, d),
    }
    keys = jax.random.split(key, len(shapes) + 1)
    layers = {k: 0.02 * jax.random.normal(r, shapes[k]) for k, r in zip(shapes, keys)}
    return {
        "layers": layers | {"n1": jnp.ones((n, d)), "n2": jnp.ones((n, d))},
        "embed": 0.02 * jax.random.normal(keys[-1], (s["vocab"], d)),
    }


def layer_norm(x, scale):
    x32 = x.astype(jnp.float32)
    mean, var = x32.mean(-1, keepdims=True), x32.var(-1, keepdims=True)
    return ((x32 - mean) * jax.lax.rsqrt(var + 1e-6) * scale).astype(x.dtype)


def experts(x, w, s):
    """Tokens [groups, tokens, width] to their two experts; those beyond the capacity are dropped."""
    g, t, d = x.shape
    e, capacity = s["experts"], int(2 * t * 1.25 / s["experts"])
    probs = jax.nn.softmax((x @ w["router"]).astype(jnp.float32))
    gates, chosen = jax.lax.top_k(probs, 2)
    gates = gates / gates.sum(-1, keepdims=True)
    mask = jax.nn.one_hot(chosen, e, dtype=jnp.int32)  # [g, t, 2, e]
    place = jnp.cumsum(mask.transpose(0, 2, 1, 3).reshape(g, 2 * t, e), axis=1) - 1
    place = place.reshape(g, 2, t, e).transpose(0, 2, 1, 3)
    kept = mask * (place < capacity)
    slots = jax.nn.one_hot(jnp.sum(place * mask, -1), capacity, dtype=jnp.bfloat16)
    dispatch = jnp.einsum("gtke,gtkc->gtec", kept.astype(jnp.bfloat16), slots)
    combine = jnp.einsum(
        "gtke,gtk,gtkc->gtec", kept.astype(jnp.bfloat16), gates.astype(jnp.bfloat16), slots
    )
    y = jnp.einsum("gtec,gtd->egcd", dispatch, x)
    h = jax.nn.silu(jnp.einsum("egcd,edf->egcf", y, w["gate"])) * jnp.einsum(
        "egcd,edf->egcf", y, w["up"]
    )
    y = jnp.einsum("egcf,efd->egcd", h, w["down"])
    balance = e * jnp.mean(probs.mean(1) * mask.sum(2).astype(jnp.float32).mean(1))
    return jnp.einsum("gtec,egcd->gtd", combine, y), balance


def block(s, x, w):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    b, t, d = x.shape
    q, k, v = jnp.split(layer_norm(x, w["n1"]) @ w["qkv"], 3, axis=-1)
    heads = lambda z: z.reshape(b, t, s["heads"], -1)
    a = jax.nn.dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
    x = x + a.reshape(b, t, d) @ w["o"]
    y, balance = experts(layer_norm(x, w["n2"]), w, s)
    return x + y, balance


def build(tiny=False):
    s = (
        dict(layers=2, width=64, heads=4, inner=128, experts=4, vocab=256, batch=2, length=32)
        if tiny
        else dict(
            layers=4, width=1024, heads=16, inner=3584, experts=8, vocab=32000, batch=8, length=1024
        )
    )

    def loss_fn(params, tokens):
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        x, balance = jax.lax.scan(functools.partial(block, s), x, params["layers"])
        logits = (x @ params["embed"].astype(jnp.bfloat16).T).astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
        return loss + 0.01 * balance.mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    params = jax.jit(lambda k: init(k, s))(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (s["batch"], s["length"] + 1), 0, s["vocab"])
    return train_step, (params, jax.jit(TX.init)(params)), tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
