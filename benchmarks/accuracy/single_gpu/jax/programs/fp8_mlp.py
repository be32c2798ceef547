"""Eight residual MLP blocks whose products are in FP8 with dynamic scales; f32 weights, Lion."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.lion(1e-4, weight_decay=0.1)
E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2


def quantize(x, dtype):
    scale = jnp.max(jnp.abs(x)).astype(jnp.float32) / float(jnp.finfo(dtype).max) + 1e-12
    largest = float(jnp.finfo(dtype).max)
    return jnp.clip(x.astype(jnp.float32) / scale, -largest, largest).astype(dtype), scale


def scaled(a, sa, b, sb, dims, out):
    """XLA rewrites this to one scaled product of cuBLASLt: both operands dequantized in front of it."""
    a, b = a.astype(out) * sa.astype(out), b.astype(out) * sb.astype(out)
    return jax.lax.dot_general(a, b, (dims, ((), ())), preferred_element_type=out)


@jax.custom_vjp
def dot8(x, w):
    return dot8_fwd(x, w)[0]


def dot8_fwd(x, w):
    (qx, sx), (qw, sw) = quantize(x, E4M3), quantize(w, E4M3)
    return scaled(qx, sx, qw, sw, ((1,), (0,)), x.dtype), (qx, sx, qw, sw)


def dot8_bwd(saved, g):
    qx, sx, qw, sw = saved
    qg, sg = quantize(g, E5M2)
    dx = scaled(qg, sg, qw, sw, ((1,), (1,)), g.dtype)
    return dx, scaled(qx, sx, qg, sg, ((0,), (0,)), g.dtype).astype(jnp.float32)


dot8.defvjp(dot8_fwd, dot8_bwd)


def build(tiny=False):
    layers, width, tokens = (2, 64, 32) if tiny else (8, 4096, 8192)

    @jax.jit
    def init(key):
        keys = jax.random.split(key, 2 * layers)
        params = [
            {
                "up": jax.random.normal(keys[2 * i], (width, 4 * width)) * width**-0.5,
                "down": jax.random.normal(keys[2 * i + 1], (4 * width, width)) * width**-0.5 / 2,
            }
            for i in range(layers)
        ]
        return params, TX.init(params)

    def loss_fn(params, x, y):
        for w in params:
            h = x * jax.lax.rsqrt(jnp.mean(x.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-6)
            h = jax.nn.relu(dot8(h.astype(jnp.bfloat16), w["up"]))
            x = x + dot8(h, w["down"])
        return jnp.mean((x - y).astype(jnp.float32) ** 2)

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    batch = tuple(jax.random.normal(k, (tokens, width)).astype(jnp.bfloat16) for k in (k1, k2))
    return train_step, init(jax.random.key(0)), batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
