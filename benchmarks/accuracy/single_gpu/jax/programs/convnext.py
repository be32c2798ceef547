"""ConvNeXt-T in flax (linen): depthwise 7 x 7 convolutions, LayerNorm, GELU, 64 images, AdamW."""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

BF16 = dict(dtype=jnp.bfloat16)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        h = nn.Conv(d, (7, 7), feature_group_count=d, **BF16)(x)
        h = nn.Dense(4 * d, **BF16)(nn.LayerNorm(epsilon=1e-6, **BF16)(h))
        h = nn.Dense(d, **BF16)(nn.gelu(h))
        scale = self.param("scale", nn.initializers.constant(1e-6), (d,))
        return x + h * scale.astype(h.dtype)


class ConvNeXt(nn.Module):
    depths: tuple
    widths: tuple

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.widths[0], (4, 4), (4, 4), padding="VALID", **BF16)(x)
        x = nn.LayerNorm(epsilon=1e-6, **BF16)(x)
        for i, (depth, width) in enumerate(zip(self.depths, self.widths)):
            if i:
                x = nn.LayerNorm(epsilon=1e-6, **BF16)(x)
                x = nn.Conv(width, (2, 2), (2, 2), padding="VALID", **BF16)(x)
            for _ in range(depth):
                x = Block()(x)
        x = nn.LayerNorm(epsilon=1e-6, **BF16)(x.mean((1, 2)))
        return nn.Dense(1000, **BF16)(x).astype(jnp.float32)


def build(tiny=False):
    depths, widths, size, count = (
        ((1, 1), (16, 32), 32, 2) if tiny else ((3, 3, 9, 3), (96, 192, 384, 768), 224, 64)
    )
    model = ConvNeXt(depths, widths)
    tx = optax.adamw(4e-3, weight_decay=0.05)

    @jax.jit
    def init(key):
        params = model.init(key, jnp.zeros((1, size, size, 3)))
        return params, tx.init(params)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        images, labels = batch

        def loss_fn(params):
            logits = model.apply(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    images = jax.random.normal(k1, (count, size, size, 3))
    return train_step, init(jax.random.key(0)), (images, jax.random.randint(k2, (count,), 0, 1000))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
