"""Llama, four layers in a Python loop, no remat, attention as XLA compiles it, AdamW in f32."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-4, 100, 10_000), b2=0.95)


class Sizes:
    def __init__(self, tiny):
        self.layers, self.d, self.heads, self.ff, self.vocab, self.batch, self.length = (
            (2, 64, 4, 128, 256, 2, 32) if tiny else (4, 2048, 16, 5504, 32000, 4, 2048)
        )


def init(key, s):
    def dense(key, *shape):
        return jax.random.normal(key, shape) * shape[0] ** -0.5

    keys = iter(jax.random.split(key, 7 * s.layers + 2))
    layer = lambda: {
        "wq": dense(next(keys), s.d, s.d),
        "wk": dense(next(keys), s.d, s.d),
        "wv": dense(next(keys), s.d, s.d),
        "wo": dense(next(keys), s.d, s.d),
        "w1": dense(next(keys), s.d, s.ff),
        "w3": dense(next(keys), s.d, s.ff),
        "w2": dense(next(keys), s.ff, s.d),
        "n1": jnp.ones(s.d),
        "n2": jnp.ones(s.d),
    }
    return {
        "layers": [layer() for _ in range(s.layers)],
        "norm": jnp.ones(s.d),
        "embed": dense(next(keys), s.vocab, s.d),
        "out": dense(next(keys), s.d, s.vocab),
    }


def norm(x, w):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(v + 1e-6)).astype(x.dtype) * w.astype(x.dtype)


def rotate(x, cos, sin):
    x1, x2 = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)
    y = jnp.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], axis=-1)
    return y.reshape(x.shape).astype(x.dtype)


def forward(params, tokens, s):
    bf = lambda w: w.astype(jnp.bfloat16)
    b, t = tokens.shape
    freq = 10000.0 ** (-jnp.arange(0, s.d // s.heads, 2) / (s.d // s.heads))
    angle = jnp.outer(jnp.arange(t), freq)[None, :, None]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    x = bf(params["embed"])[tokens]
    for p in params["layers"]:
        h = norm(x, p["n1"])
        q, k, v = ((h @ bf(p[n])).reshape(b, t, s.heads, -1) for n in ("wq", "wk", "wv"))
        a = jax.nn.dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, implementation="xla"
        )
        x = x + a.reshape(b, t, -1) @ bf(p["wo"])
        h = norm(x, p["n2"])
        x = x + (jax.nn.silu(h @ bf(p["w1"])) * (h @ bf(p["w3"]))) @ bf(p["w2"])
    return norm(x, params["norm"]) @ bf(params["out"])


def build(tiny=False):
    s = Sizes(tiny)

    def loss_fn(params, tokens):
        logits = forward(params, tokens[:, :-1], s).astype(jnp.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -picked.mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    params = jax.jit(lambda key: init(key, s))(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (s.batch, s.length + 1), 0, s.vocab)
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
