"""Dropless mixture of 16 experts, two per token: tokens sorted by expert, jax.lax.ragged_dot, AdamW."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adamw(3e-4)


def experts(x, w, top):
    """x [tokens, width]: every token's two experts, in the order of experts."""
    gates, chosen = jax.lax.top_k(jax.nn.softmax((x @ w["router"]).astype(jnp.float32)), top)
    order = jnp.argsort(chosen.reshape(-1))
    sizes = jnp.bincount(chosen.reshape(-1), length=w["router"].shape[-1])
    y = x[order // top]
    h = jax.nn.silu(jax.lax.ragged_dot(y, w["gate"], sizes)) * jax.lax.ragged_dot(y, w["up"], sizes)
    y = jax.lax.ragged_dot(h, w["down"], sizes)
    y = y * gates.reshape(-1)[order, None].astype(y.dtype)
    return jnp.zeros_like(x).at[order // top].add(y)


def norm(x, w):
    v = jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6)).astype(x.dtype) * w


def block(x, w, heads):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    b, t, d = x.shape
    q, k, v = ((norm(x, w["n1"]) @ w[n]).reshape(b, t, heads, -1) for n in "qkv")
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="xla")
    x = x + a.reshape(b, t, d) @ w["o"]
    return x + experts(norm(x, w["n2"]).reshape(b * t, d), w, 2).reshape(b, t, d)


def build(tiny=False):
    layers, d, heads, f, e, vocab, batch, length = (
        (2, 64, 4, 128, 4, 256, 2, 32) if tiny else (2, 1024, 16, 2048, 16, 32000, 8, 1024)
    )
    shapes = {
        "q": (d, d),
        "k": (d, d),
        "v": (d, d),
        "o": (d, d),
        "router": (d, e),
        "gate": (e, d, f),
        "up": (e, d, f),
        "down": (e, f, d),
    }

    @jax.jit
    def init(key):
        def layer(key):
            keys = jax.random.split(key, len(shapes))
            w = {k: 0.02 * jax.random.normal(r, shapes[k]) for k, r in zip(shapes, keys)}
            return w | {"n1": jnp.ones(d), "n2": jnp.ones(d)}

        keys = jax.random.split(key, layers + 1)
        params = {
            "layers": [layer(k) for k in keys[1:]],
            "embed": 0.02 * jax.random.normal(keys[0], (vocab, d)),
        }
        return params, TX.init(params)

    def loss_fn(params, tokens):
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        for w in params["layers"]:
            x = block(x, w, heads)
        logits = (x @ params["embed"].astype(jnp.bfloat16).T).astype(jnp.float32)
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
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
