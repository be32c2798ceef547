"""Dropless mixture in a scan: eight experts, top two, cuDNN's attention, jax.lax.ragged_dot, remat, Adafactor."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adafactor(1e-3)


def norm(x, w):
    v = jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6)).astype(x.dtype) * w


def experts(x, w):
    count = w["router"].shape[-1]
    gates, chosen = jax.lax.top_k((x @ w["router"]).astype(jnp.float32), 2)
    gates = jax.nn.softmax(gates).astype(x.dtype)
    order = jnp.argsort(chosen.reshape(-1))
    sizes = jnp.bincount(chosen.reshape(-1), length=count)
    y = x[order // 2]
    up = jax.lax.ragged_dot(y, w["up"], sizes)
    y = jax.lax.ragged_dot(jax.nn.gelu(up), w["down"], sizes)
    back = jnp.argsort(order)
    return (y[back].reshape(-1, 2, x.shape[-1]) * gates[..., None]).sum(1)


def block(x, w, heads, attention):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    b, t, d = x.shape
    y = norm(x, w["n1"])
    q, k, v = ((y @ w[n]).reshape(b, t, heads, -1) for n in "qkv")
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
    x = x + a.reshape(b, t, d) @ w["o"]
    return x + experts(norm(x, w["n2"]).reshape(b * t, d), w).reshape(b, t, d)


def build(tiny=False, attention="cudnn"):
    layers, d, heads, f, e, vocab, batch, length = (
        (2, 64, 4, 128, 4, 256, 2, 32) if tiny else (4, 1536, 12, 3072, 8, 32000, 4, 2048)
    )
    shapes = {
        "q": (d, d),
        "k": (d, d),
        "v": (d, d),
        "o": (d, d),
        "router": (d, e),
        "up": (e, d, f),
        "down": (e, f, d),
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
        logits = (x @ params["out"].astype(jnp.bfloat16).T).astype(jnp.float32)
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
