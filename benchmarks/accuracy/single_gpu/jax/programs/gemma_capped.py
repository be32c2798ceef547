"""Gemma 2's block in plain JAX: grouped queries, capped scores, gated gelu, norms before and after, tied embedding."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4, mu_dtype=jnp.bfloat16))


def norm(x, w):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6) * (1 + w)).astype(x.dtype)


def attend(q, k, v, cap=50.0):
    """q [batch, length, groups, queries, size], k and v [batch, length, groups, size]."""
    s = jnp.einsum("btgqd,bsgd->bgqts", q * q.shape[-1] ** -0.5, k).astype(jnp.float32)
    s = cap * jnp.tanh(s / cap)
    t = jnp.arange(s.shape[-1])
    s = jnp.where(t[:, None] >= t[None, :], s, -1e30)
    return jnp.einsum("bgqts,bsgd->btgqd", jax.nn.softmax(s, -1).astype(v.dtype), v)


def block(x, w, groups, size):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16) if p.ndim > 1 else p, w)
    b, t, d = x.shape
    y = norm(x, w["n1"])
    q = (y @ w["q"]).reshape(b, t, groups, -1, size)
    k, v = ((y @ w[n]).reshape(b, t, groups, size) for n in "kv")
    x = x + norm(attend(q, k, v).reshape(b, t, -1) @ w["o"], w["n2"])
    y = norm(x, w["n3"])
    y = (jax.nn.gelu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
    return x + norm(y, w["n4"])


def build(tiny=False):
    layers, d, heads, groups, size, f, vocab, batch, length = (
        (2, 64, 4, 2, 16, 128, 256, 2, 32) if tiny else (6, 1536, 8, 4, 192, 6144, 64000, 4, 1024)
    )
    shapes = {
        "q": (d, heads * size),
        "k": (d, groups * size),
        "v": (d, groups * size),
        "o": (heads * size, d),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }

    @jax.jit
    def init(key):
        keys = jax.random.split(key, len(shapes) + 1)
        w = {n: 0.02 * jax.random.normal(k, (layers, *shapes[n])) for n, k in zip(shapes, keys)}
        w |= {n: jnp.zeros((layers, d)) for n in ("n1", "n2", "n3", "n4")}
        params = {"embed": 0.02 * jax.random.normal(keys[-1], (vocab, d)), "layers": w}
        return params, TX.init(params)

    def loss_fn(params, tokens):
        table = params["embed"].astype(jnp.bfloat16)
        x = table[tokens[:, :-1]] * d**0.5
        step = jax.checkpoint(lambda x, w: (block(x, w, groups, size), None))
        x, _ = jax.lax.scan(step, x, params["layers"])
        logits = 30 * jnp.tanh((x @ table.T).astype(jnp.float32) / 30)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, vocab)
    return train_step, init(jax.random.key(0)), tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    step, state, batch = build(parser.parse_args().tiny)
    for _ in range(3):
        state, loss = step(state, batch)
    print(float(loss))
