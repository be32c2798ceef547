"""BERT-base in equinox: masked words, 32 x 512 tokens, dropout, bf16 compute, AdamW in f32."""

import argparse
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Layer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, width, heads, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(
            heads,
            width,
            use_query_bias=True,
            use_key_bias=True,
            use_value_bias=True,
            use_output_bias=True,
            key=k1,
        )
        self.norm1, self.norm2 = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, 4 * width, key=k2)
        self.down = eqx.nn.Linear(4 * width, width, key=k3)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        k1, k2 = jax.random.split(key)
        x = jax.vmap(self.norm1)(x + self.dropout(self.attention(x, x, x), key=k1))
        h = jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(x)))
        return jax.vmap(self.norm2)(x + self.dropout(h, key=k2))


class Bert(eqx.Module):
    words: jax.Array
    places: jax.Array
    norm: eqx.nn.LayerNorm
    layers: list
    bias: jax.Array

    def __init__(self, vocab, width, heads, layers, length, key):
        k1, k2, *keys = jax.random.split(key, layers + 2)
        self.words = 0.02 * jax.random.normal(k1, (vocab, width))
        self.places = 0.02 * jax.random.normal(k2, (length, width))
        self.norm = eqx.nn.LayerNorm(width)
        self.layers = [Layer(width, heads, k) for k in keys]
        self.bias = jnp.zeros(vocab)

    def __call__(self, tokens, key):
        x = jax.vmap(self.norm)(self.words[tokens] + self.places)
        for layer, k in zip(self.layers, jax.random.split(key, len(self.layers))):
            x = layer(x, k)
        return x @ self.words.T + self.bias


def build(tiny=False):
    vocab, width, heads, layers, batch, length = (
        (256, 64, 4, 2, 2, 32) if tiny else (30522, 768, 12, 12, 32, 512)
    )
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, weight_decay=0.01))
    make = functools.partial(Bert, vocab, width, heads, layers, length)
    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    static = eqx.filter(shapes, lambda x: not isinstance(x, jax.ShapeDtypeStruct))

    @jax.jit
    def init(key):
        params = eqx.filter(make(key), eqx.is_array)
        return params, tx.init(params), key

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt, key = state
        tokens, labels, chosen = batch
        key, dropout = jax.random.split(key)

        def loss_fn(params):
            half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
            logits = jax.vmap(eqx.combine(half, static))(
                tokens, jax.random.split(dropout, tokens.shape[0])
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(
                logits.astype(jnp.float32), labels
            )
            return jnp.sum(losses * chosen) / jnp.sum(chosen)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt, key), loss

    k1, k2, k3 = jax.random.split(jax.random.key(1), 3)
    batch = (
        jax.random.randint(k1, (batch, length), 0, vocab),
        jax.random.randint(k2, (batch, length), 0, vocab),
        jax.random.bernoulli(k3, 0.15, (batch, length)).astype(jnp.float32),
    )
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
