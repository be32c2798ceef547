"""ViT-B/16 in flax.nnx: 128 images, bf16 compute, f32 weights, label smoothing, AdamW."""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Block(nnx.Module):
    def __init__(self, width, heads, rngs):
        kw = dict(dtype=jnp.bfloat16, rngs=rngs)
        self.norm1, self.norm2 = nnx.LayerNorm(width, **kw), nnx.LayerNorm(width, **kw)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, **kw)
        self.up, self.down = nnx.Linear(width, 4 * width, **kw), nnx.Linear(4 * width, width, **kw)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class ViT(nnx.Module):
    def __init__(self, image, patch, width, heads, layers, classes, rngs):
        kw = dict(dtype=jnp.bfloat16, rngs=rngs)
        self.patches = nnx.Conv(3, width, (patch, patch), (patch, patch), padding="VALID", **kw)
        n = (image // patch) ** 2
        self.token = nnx.Param(jnp.zeros((1, 1, width)))
        self.positions = nnx.Param(0.02 * jax.random.normal(rngs.params(), (1, n + 1, width)))
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.norm, self.head = nnx.LayerNorm(width, **kw), nnx.Linear(width, classes, **kw)

    def __call__(self, images):
        x = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        token = jnp.broadcast_to(self.token[...], (x.shape[0], 1, x.shape[-1])).astype(x.dtype)
        x = jnp.concatenate([token, x], axis=1) + self.positions[...].astype(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0])).astype(jnp.float32)


def build(tiny=False):
    image, patch, width, heads, layers, count = (
        (32, 8, 64, 4, 2, 2) if tiny else (224, 16, 768, 12, 12, 128)
    )
    graph = nnx.split(
        nnx.eval_shape(lambda: ViT(image, patch, width, heads, layers, 1000, nnx.Rngs(0)))
    )[0]
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.05))

    @jax.jit
    def init():
        params = nnx.split(
            ViT(image, patch, width, heads, layers, 1000, nnx.Rngs(0)), nnx.Param, ...
        )[1]
        return params, tx.init(params)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        images, labels = batch

        def loss_fn(params):
            logits = nnx.merge(graph, params)(images)
            targets = optax.smooth_labels(jax.nn.one_hot(labels, 1000), 0.1)
            return optax.softmax_cross_entropy(logits, targets).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    images = jax.random.normal(k1, (count, image, image, 3)).astype(jnp.bfloat16)
    return train_step, init(), (images, jax.random.randint(k2, (count,), 0, 1000))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
