"""Two encoders, of patches and of words, and a contrastive loss: flax linen in a scan, f32 weights, LAMB."""

import argparse
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

TX = optax.lamb(1e-3)


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, _):
        d = x.shape[-1]
        y = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        y = nn.MultiHeadDotProductAttention(self.heads, dtype=jnp.bfloat16)(y, y)
        x = x + y
        y = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        y = nn.Dense(d, dtype=jnp.bfloat16)(nn.gelu(nn.Dense(4 * d, dtype=jnp.bfloat16)(y)))
        return x + y, None


class Tower(nn.Module):
    layers: int
    heads: int
    out: int

    @nn.compact
    def __call__(self, x):
        place = self.param("place", nn.initializers.normal(0.02), x.shape[1:])
        scan = nn.scan(
            Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers
        )
        x, _ = scan(self.heads)(x + place.astype(x.dtype), None)
        x = nn.LayerNorm(dtype=jnp.float32)(x).mean(1)
        x = nn.Dense(self.out, use_bias=False)(x)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


class Clip(nn.Module):
    layers: int
    width: int
    heads: int
    vocab: int

    @nn.compact
    def __call__(self, patches, words):
        x = nn.Dense(self.width, dtype=jnp.bfloat16)(patches)
        y = nn.Embed(self.vocab, self.width, dtype=jnp.bfloat16)(words)
        x = Tower(self.layers, self.heads, 512)(x)
        y = Tower(self.layers, self.heads, 512)(y)
        warmth = self.param("warmth", nn.initializers.constant(2.7), ())
        return x @ y.T * jnp.exp(warmth)


def build(tiny=False):
    layers, d, heads, vocab, batch, patches, length = (
        (2, 64, 4, 256, 4, 9, 8) if tiny else (12, 768, 12, 49408, 256, 100, 64)
    )
    model = Clip(layers, d, heads, vocab)
    keys = jax.random.split(jax.random.key(1), 2)
    images = jax.random.normal(keys[0], (batch, patches, 768), jnp.bfloat16)
    words = jax.random.randint(keys[1], (batch, length), 0, vocab)

    @jax.jit
    def init(key):
        params = model.init(key, images, words)["params"]
        return params, TX.init(params)

    def loss_fn(params, images, words):
        logits = model.apply({"params": params}, images, words)
        labels = jnp.arange(batch)
        losses = [
            optax.softmax_cross_entropy_with_integer_labels(each, labels)
            for each in (logits, logits.T)
        ]
        return sum(each.mean() for each in losses) / 2

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    return train_step, init(jax.random.key(0)), (images, words)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    step, state, batch = build(parser.parse_args().tiny)
    for _ in range(3):
        state, loss = step(state, batch)
    print(float(loss))
