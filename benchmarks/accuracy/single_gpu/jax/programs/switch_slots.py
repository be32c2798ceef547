"""Switch transformer: one expert per token, slots of a capacity filled by scatter and read by gather; RMSprop."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.rmsprop(1e-3, momentum=0.9)


def norm(x, w):
    x = x.astype(jnp.float32)
    x = x - x.mean(-1, keepdims=True)
    return (x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w).astype(jnp.bfloat16)


def switch(x, w, capacity):
    """x [tokens, width]; tokens beyond an expert's capacity are dropped."""
    count = w["router"].shape[-1]
    odds = jax.nn.softmax(x.astype(jnp.float32) @ w["router"])
    chosen = odds.argmax(-1)
    hot = jax.nn.one_hot(chosen, count, dtype=jnp.int32)
    place = ((jnp.cumsum(hot, 0) - 1) * hot).sum(-1)
    slot = jnp.where(place < capacity, chosen * capacity + place, count * capacity)
    slots = jnp.zeros((count * capacity + 1, x.shape[-1]), x.dtype).at[slot].set(x)
    y = slots[:-1].reshape(count, capacity, -1)
    y = jax.nn.relu(jnp.einsum("ecd,edf->ecf", y, w["up"].astype(x.dtype)))
    y = jnp.einsum("ecf,efd->ecd", y, w["down"].astype(x.dtype)).reshape(count * capacity, -1)
    y = jnp.concatenate([y, jnp.zeros_like(y[:1])])[slot]
    balance = count * (odds.mean(0) * hot.mean(0)).sum()
    return y * odds.max(-1, keepdims=True).astype(x.dtype), balance


def block(x, w, heads):
    b, t, d = x.shape
    y = norm(x, w["n1"])
    q, k, v = jnp.split((y @ w["qkv"].astype(y.dtype)).reshape(b, t, heads, -1), 3, -1)
    a = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="xla")
    x = x + a.reshape(b, t, d) @ w["o"].astype(y.dtype)
    y, balance = switch(norm(x, w["n2"]).reshape(b * t, d), w, b * t * 5 // 4 // w["up"].shape[0])
    return x + y.reshape(b, t, d), balance


def build(tiny=False):
    layers, d, heads, f, e, vocab, batch, length = (
        (2, 64, 4, 128, 4, 256, 2, 32) if tiny else (6, 768, 12, 3072, 32, 32000, 16, 512)
    )
    shapes = {"qkv": (d, 3 * d), "o": (d, d), "router": (d, e), "up": (e, d, f), "down": (e, f, d)}

    @jax.jit
    def init(key):
        keys = jax.random.split(key, len(shapes) + 2)
        w = {n: 0.02 * jax.random.normal(k, (layers, *shapes[n])) for n, k in zip(shapes, keys)}
        w |= {n: jnp.ones((layers, d)) for n in ("n1", "n2")}
        embed, out = (0.02 * jax.random.normal(k, (vocab, d)) for k in keys[-2:])
        params = {"embed": embed, "out": out, "layers": w}
        return params, TX.init(params)

    def loss_fn(params, tokens):
        x = params["embed"][tokens[:, :-1]].astype(jnp.bfloat16)
        x, balance = jax.lax.scan(lambda x, w: block(x, w, heads), x, params["layers"])
        logits = (x @ params["out"].astype(x.dtype).T).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean() + 0.01 * balance.mean()

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
