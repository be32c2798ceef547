"""DiT-L/2 in plain JAX: adaptive norms, scanned with remat, cuDNN's attention, AdamW and an average."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adamw(1e-4, weight_decay=0.0)


def init(key, layers, d, channels, tokens):
    shapes = {
        "qkv": (layers, d, 3 * d),
        "o": (layers, d, d),
        "up": (layers, d, 4 * d),
        "down": (layers, 4 * d, d),
        "mod": (layers, d, 6 * d),
        "mod_bias": (layers, 6 * d),
    }
    keys = iter(jax.random.split(key, 16))
    rand = lambda *shape: 0.02 * jax.random.normal(next(keys), shape)
    return {
        "layers": {k: rand(*s) for k, s in shapes.items()},
        "patch": rand(4 * channels, d),
        "places": rand(tokens, d),
        "classes": rand(1001, d),
        "time1": rand(256, d),
        "time2": rand(d, d),
        "final_mod": rand(d, 2 * d),
        "final": rand(d, 4 * channels),
    }


def norm(x, shift, scale):
    x32 = x.astype(jnp.float32)
    y = (x32 - x32.mean(-1, keepdims=True)) * jax.lax.rsqrt(x32.var(-1, keepdims=True) + 1e-6)
    return y.astype(x.dtype) * (1 + scale[:, None]) + shift[:, None]


def block(heads, implementation, c, x, w):
    w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), w)
    s1, m1, g1, s2, m2, g2 = jnp.split(jax.nn.silu(c) @ w["mod"] + w["mod_bias"], 6, axis=-1)
    b, t, d = x.shape
    q, k, v = jnp.split((norm(x, s1, m1) @ w["qkv"]).reshape(b, t, 3 * heads, -1), 3, axis=2)
    a = jax.nn.dot_product_attention(q, k, v, implementation=implementation).reshape(b, t, d)
    x = x + g1[:, None] * (a @ w["o"])
    return x + g2[:, None] * (jax.nn.gelu(norm(x, s2, m2) @ w["up"]) @ w["down"]), None


def model(params, x, t, labels, heads, implementation):
    bf = lambda w: w.astype(jnp.bfloat16)
    b, size, _, channels = x.shape
    x = x.reshape(b, size // 2, 2, size // 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    x = bf(x.reshape(b, -1, 4 * channels)) @ bf(params["patch"]) + bf(params["places"])
    angle = t[:, None] * jnp.exp(-jnp.arange(128) / 128 * jnp.log(10000.0))
    c = bf(jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], -1)) @ bf(params["time1"])
    c = jax.nn.silu(c) @ bf(params["time2"]) + bf(params["classes"])[labels]
    layer = jax.checkpoint(functools.partial(block, heads, implementation, c))
    x, _ = jax.lax.scan(layer, x, params["layers"])
    shift, scale = jnp.split(jax.nn.silu(c) @ bf(params["final_mod"]), 2, axis=-1)
    x = norm(x, shift, scale) @ bf(params["final"])
    x = x.reshape(b, size // 2, size // 2, 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, size, size, channels).astype(jnp.float32)


def build(tiny=False):
    layers, d, heads, size, batch = (2, 64, 4, 8, 2) if tiny else (24, 1024, 16, 32, 64)
    implementation = "xla" if tiny else "cudnn"

    @jax.jit
    def start(key):
        params = init(key, layers, d, 4, size * size // 4)
        return params, TX.init(params), jax.tree.map(jnp.copy, params), key

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt, ema, key = state
        latents, labels = batch
        key, k1, k2, k3 = jax.random.split(key, 4)
        t = jax.random.uniform(k1, (latents.shape[0],))
        noise = jax.random.normal(k2, latents.shape)
        mixed = (1 - t)[:, None, None, None] * latents + t[:, None, None, None] * noise
        labels = jnp.where(jax.random.bernoulli(k3, 0.1, labels.shape), 1000, labels)

        def loss_fn(params):
            flow = model(params, mixed, 1000 * t, labels, heads, implementation)
            return jnp.mean((flow - (noise - latents)) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = TX.update(grads, opt, params)
        params = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda e, p: 0.9999 * e + 0.0001 * p, ema, params)
        return (params, opt, ema, key), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    data = jax.random.normal(k1, (batch, size, size, 4)), jax.random.randint(k2, (batch,), 0, 1000)
    return train_step, start(jax.random.key(0)), data


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
