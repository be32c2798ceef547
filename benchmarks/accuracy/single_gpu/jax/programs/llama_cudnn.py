"""Llama of 0.75B parameters: scanned layers, remat, cuDNN's attention, AdamW with f32 weights."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(1.0), optax.adamw(3e-4, b2=0.95, weight_decay=0.1)
)


def sizes(tiny):
    if tiny:
        return dict(layers=2, width=64, heads=4, kv=2, inner=128, vocab=256, batch=2, length=32)
    return dict(
        layers=12, width=2048, heads=16, kv=8, inner=5632, vocab=32000, batch=4, length=2048
    )


def init(key, c):
    d, n, h = c["width"], c["layers"], c["width"] // c["heads"]
    shapes = {
        "q": (n, d, c["heads"] * h),
        "k": (n, d, c["kv"] * h),
        "v": (n, d, c["kv"] * h),
        "o": (n, c["heads"] * h, d),
        "gate": (n, d, c["inner"]),
        "up": (n, d, c["inner"]),
        "down": (n, c["inner"], d),
    }
    keys = jax.random.split(key, len(shapes) + 2)
    layers = {k: 0.02 * jax.random.normal(s, shapes[k]) for k, s in zip(shapes, keys)}
    layers["norm1"] = layers["norm2"] = jnp.ones((n, d))
    return {
        "layers": layers,
        "norm": jnp.ones((d,)),
        "embed": 0.02 * jax.random.normal(keys[-1], (c["vocab"], d)),
        "head": 0.02 * jax.random.normal(keys[-2], (d, c["vocab"])),
    }


def rms_norm(x, w):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-5)
    return (y * w).astype(x.dtype)


def rope(x):
    length, half = x.shape[1], x.shape[-1] // 2
    freq = 1.0 / 10000 ** (jnp.arange(half) / half)
    angle = (jnp.arange(length)[:, None] * freq)[None, :, None, :]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    out = [a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)]
    return jnp.concatenate(out, axis=-1).astype(x.dtype)


def block(c, implementation, x, w):
    b, t, d = x.shape
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    y = rms_norm(x, w["norm1"])
    q = rope((y @ w["q"]).reshape(b, t, c["heads"], -1))
    k = rope((y @ w["k"]).reshape(b, t, c["kv"], -1))
    v = (y @ w["v"]).reshape(b, t, c["kv"], -1)
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)
    x = x + a.reshape(b, t, d) @ w["o"]
    y = rms_norm(x, w["norm2"])
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]


def loss_fn(params, tokens, c, implementation):
    x = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
    layer = jax.checkpoint(functools.partial(block, c, implementation))
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, params["layers"])
    x = rms_norm(x, params["norm"])
    logits = (x @ params["head"].astype(jnp.bfloat16)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def build(tiny=False, implementation="cudnn"):
    c = sizes(tiny)
    implementation = "xla" if tiny else implementation

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, c, implementation)
        updates, opt = OPTIMIZER.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    params = jax.jit(lambda k: init(k, c))(jax.random.key(0))
    state = params, jax.jit(OPTIMIZER.init)(params)
    tokens = jax.random.randint(jax.random.key(1), (c["batch"], c["length"] + 1), 0, c["vocab"])
    return train_step, state, tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
