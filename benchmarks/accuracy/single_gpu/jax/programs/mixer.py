"""MLP-Mixer B/16 in plain JAX: 256 images of 196 patches, scanned, bf16, SGD with momentum and weight decay."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9, nesterov=True))


def norm(x, w, b):
    y = x.astype(jnp.float32)
    y = y - y.mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * w + b).astype(x.dtype)


def mlp(x, w, name):
    x = jax.nn.gelu(x @ w[name + "_in"] + w[name + "_in_b"])
    return x @ w[name + "_out"] + w[name + "_out_b"]


def block(x, w):
    w = {k: p if k.startswith("n") else p.astype(x.dtype) for k, p in w.items()}
    y = norm(x, w["n1"], w["n1_b"]).swapaxes(1, 2)
    x = x + mlp(y, w, "tokens").swapaxes(1, 2)
    return x + mlp(norm(x, w["n2"], w["n2_b"]), w, "channels")


def build(tiny=False):
    layers, d, t, ft, fc, classes, batch = (
        (2, 32, 9, 16, 64, 10, 4) if tiny else (12, 768, 196, 384, 3072, 1000, 256)
    )
    shapes = {
        "tokens_in": (t, ft),
        "tokens_out": (ft, t),
        "channels_in": (d, fc),
        "channels_out": (fc, d),
    }

    @jax.jit
    def init(key):
        keys = jax.random.split(key, len(shapes) + 2)
        w = {n: 0.02 * jax.random.normal(k, (layers, *shapes[n])) for n, k in zip(shapes, keys)}
        w |= {n + "_b": jnp.zeros((layers, s[1])) for n, s in shapes.items()}
        w |= {n: jnp.ones((layers, d)) for n in ("n1", "n2")}
        w |= {n: jnp.zeros((layers, d)) for n in ("n1_b", "n2_b")}
        stem = 0.02 * jax.random.normal(keys[-2], (768, d))
        head = 0.02 * jax.random.normal(keys[-1], (d, classes))
        params = {"stem": stem, "head": head, "layers": w}
        return params, TX.init(params)

    def loss_fn(params, images, labels):
        b, h, _, c = images.shape
        p = h // int(t**0.5)
        x = images.reshape(b, h // p, p, h // p, p, c).swapaxes(2, 3).reshape(b, t, p * p * c)
        x = x.astype(jnp.bfloat16) @ params["stem"][: p * p * c].astype(jnp.bfloat16)
        x, _ = jax.lax.scan(lambda x, w: (block(x, w), None), x, params["layers"])
        logits = x.mean(1).astype(jnp.float32) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    side = 16 * int(t**0.5)
    images = jax.random.normal(jax.random.key(1), (batch, side, side, 3))
    labels = jax.random.randint(jax.random.key(2), (batch,), 0, classes)
    return train_step, init(jax.random.key(0)), (images, labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    step, state, batch = build(parser.parse_args().tiny)
    for _ in range(3):
        state, loss = step(state, batch)
    print(float(loss))
