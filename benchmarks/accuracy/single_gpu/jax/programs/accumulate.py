"""GPT of 0.4B parameters in plain JAX: four microbatches accumulated, remat of all but products."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-4, b2=0.95))


def norm(x, w, b):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) / jnp.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.astype(x.dtype) * w + b


def block(heads, implementation, x, w):
    b, t, d = x.shape
    h = norm(x, w["n1"], w["b1"])
    q, k, v = jnp.split((h @ w["qkv"] + w["qkv_b"]).reshape(b, t, 3, heads, -1), 3, axis=2)
    q, k, v = (z.squeeze(2) for z in (q, k, v))
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)
    x = x + a.reshape(b, t, d) @ w["o"] + w["o_b"]
    h = jax.nn.gelu(norm(x, w["n2"], w["b2"]) @ w["up"] + w["up_b"], approximate=True)
    return x + h @ w["down"] + w["down_b"], None


def build(tiny=False):
    layers, d, heads, vocab, parts, batch, length = (
        (2, 64, 4, 256, 2, 2, 32) if tiny else (24, 1024, 16, 50304, 4, 8, 1024)
    )
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    layer = functools.partial(block, heads, "xla" if tiny else "cudnn")
    layer = jax.checkpoint(layer, policy=policy)

    @jax.jit
    def init(key):
        keys = iter(jax.random.split(key, 6))
        rand = lambda *shape: 0.02 * jax.random.normal(next(keys), shape)
        zeros = lambda *shape: jnp.zeros((layers, *shape))
        w = {
            "qkv": rand(layers, d, 3 * d),
            "o": rand(layers, d, d),
            "up": rand(layers, d, 4 * d),
            "down": rand(layers, 4 * d, d),
            "qkv_b": zeros(3 * d),
            "o_b": zeros(d),
            "up_b": zeros(4 * d),
            "down_b": zeros(d),
            "b1": zeros(d),
            "b2": zeros(d),
            "n1": zeros(d) + 1,
            "n2": zeros(d) + 1,
        }
        params = {"layers": w, "embed": rand(vocab, d), "places": rand(length, d)}
        return params, TX.init(params)

    def loss_fn(params, tokens):
        w = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        x, _ = jax.lax.scan(layer, w["embed"][tokens[:, :-1]] + w["places"], w["layers"])
        logits = (x @ w["embed"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state

        def accumulate(total, part):
            loss, grads = jax.value_and_grad(loss_fn)(params, part)
            return jax.tree.map(jnp.add, total, (loss, grads)), None

        zero = 0.0, jax.tree.map(jnp.zeros_like, params)
        (loss, grads), _ = jax.lax.scan(accumulate, zero, tokens)
        updates, opt = TX.update(jax.tree.map(lambda g: g / parts, grads), opt, params)
        return (optax.apply_updates(params, updates), opt), loss / parts

    tokens = jax.random.randint(jax.random.key(1), (parts, batch, length + 1), 0, vocab)
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
