"""GPT-2 124M in flax (linen): twelve blocks, dropout, bf16 compute, f32 weights, AdamW."""

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class Block(nn.Module):
    heads: int
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, mask):
        d = x.shape[-1]
        h = nn.LayerNorm(dtype=self.dtype)(x)
        h = nn.MultiHeadDotProductAttention(
            self.heads, dtype=self.dtype, dropout_rate=0.1, deterministic=False
        )(h, mask=mask)
        x = x + nn.Dropout(0.1, deterministic=False)(h)
        h = nn.LayerNorm(dtype=self.dtype)(x)
        h = nn.gelu(nn.Dense(4 * d, dtype=self.dtype)(h))
        h = nn.Dense(d, dtype=self.dtype)(h)
        return x + nn.Dropout(0.1, deterministic=False)(h)


class GPT(nn.Module):
    vocab: int
    layers: int
    heads: int
    width: int
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, tokens):
        wte = nn.Embed(self.vocab, self.width, dtype=self.dtype)
        wpe = nn.Embed(tokens.shape[1], self.width, dtype=self.dtype)
        x = wte(tokens) + wpe(jnp.arange(tokens.shape[1])[None])
        x = nn.Dropout(0.1, deterministic=False)(x)
        mask = nn.make_causal_mask(tokens, dtype=bool)
        for _ in range(self.layers):
            x = Block(self.heads, self.dtype)(x, mask)
        return wte.attend(nn.LayerNorm(dtype=self.dtype)(x))


def decay_mask(params):
    return jax.tree.map(lambda p: p.ndim > 1, params)


def build(tiny=False):
    vocab, layers, heads, width, batch, length = (
        (256, 2, 4, 64, 2, 32) if tiny else (50257, 12, 12, 768, 8, 1024)
    )
    model = GPT(vocab, layers, heads, width)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(6e-4, b2=0.95, weight_decay=0.1, mask=decay_mask),
    )
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, vocab)

    @jax.jit
    def init(key):
        rngs = {"params": key, "dropout": key}
        params = model.init(rngs, jnp.zeros((1, length), jnp.int32))["params"]
        return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    @jax.jit
    def train_step(state, tokens):
        rng = jax.random.fold_in(jax.random.key(2), state.step)

        def loss_fn(params):
            logits = state.apply_fn({"params": params}, tokens[:, :-1], rngs={"dropout": rng})
            logits = logits.astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

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
