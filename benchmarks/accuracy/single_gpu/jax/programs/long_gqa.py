"""A Llama of 16,384 tokens: grouped queries, cuDNN's attention, scanned with remat, loss in chunks, AdamW."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adamw(3e-4, b2=0.95, mu_dtype=jnp.bfloat16)


def norm(x, w):
    v = jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6)).astype(x.dtype) * w


def turned(x):
    t, size = x.shape[1], x.shape[-1]
    angle = jnp.arange(t)[:, None] / 500000 ** (jnp.arange(0, size, 2) / size)
    c, s = jnp.cos(angle)[:, None].astype(x.dtype), jnp.sin(angle)[:, None].astype(x.dtype)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def block(x, w, heads, attention):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    b, t, d = x.shape
    y = norm(x, w["n1"])
    q, k, v = ((y @ w[n]).reshape(b, t, -1, d // heads) for n in "qkv")
    a = jax.nn.dot_product_attention(
        turned(q), turned(k), v, is_causal=True, implementation=attention
    )
    x = x + a.reshape(b, t, d) @ w["o"]
    y = norm(x, w["n2"])
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]


def build(tiny=False, attention="cudnn"):
    layers, d, heads, groups, f, vocab, length, chunks = (
        (2, 64, 4, 2, 128, 256, 32, 4) if tiny else (4, 2048, 16, 4, 7168, 128256, 16384, 8)
    )
    shapes = {
        "q": (d, d),
        "k": (d, d * groups // heads),
        "v": (d, d * groups // heads),
        "o": (d, d),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }

    @jax.jit
    def init(key):
        keys = jax.random.split(key, len(shapes) + 2)
        w = {n: 0.02 * jax.random.normal(k, (layers, *shapes[n])) for n, k in zip(shapes, keys)}
        w |= {n: jnp.ones((layers, d)) for n in ("n1", "n2")}
        embed, out = (0.02 * jax.random.normal(k, (vocab, d)) for k in keys[-2:])
        params = {"embed": embed, "out": out, "layers": w}
        return params, TX.init(params)

    def loss_fn(params, tokens):
        x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        step = jax.checkpoint(lambda x, w: (block(x, w, heads, attention), None))
        x, _ = jax.lax.scan(step, x, params["layers"])
        out = params["out"].astype(jnp.bfloat16)

        @jax.checkpoint
        def part(total, xy):
            logits = (xy[0] @ out.T).astype(jnp.float32)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, xy[1])
            return total + losses.sum(), None

        parts = (x.reshape(chunks, -1, d), tokens[:, 1:].reshape(chunks, -1))
        return jax.lax.scan(part, 0.0, parts)[0] / length

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    tokens = jax.random.randint(jax.random.key(1), (1, length + 1), 0, vocab)
    return train_step, init(jax.random.key(0)), tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    step, state, batch = build(parser.parse_args().tiny)
    for _ in range(3):
        state, loss = step(state, batch)
    print(float(loss))
