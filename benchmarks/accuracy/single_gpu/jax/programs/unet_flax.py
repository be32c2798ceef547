"""U-Net of a diffusion model (flax linen): GroupNorm, convolutions in bf16, 64 x 64, 32 images."""

import argparse
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

conv = functools.partial(nn.Conv, kernel_size=(3, 3), dtype=jnp.bfloat16)
dense = functools.partial(nn.Dense, dtype=jnp.bfloat16)
norm = functools.partial(nn.GroupNorm, num_groups=32, dtype=jnp.bfloat16)


class ResBlock(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x, time):
        h = conv(self.width)(nn.swish(norm()(x)))
        h = h + dense(self.width)(nn.swish(time))[:, None, None, :]
        h = conv(self.width)(nn.swish(norm()(h)))
        if x.shape[-1] != self.width:
            x = dense(self.width)(x)
        return x + h


class UNet(nn.Module):
    width: int
    multiples: tuple

    @nn.compact
    def __call__(self, x, t):
        freq = jnp.exp(-jnp.log(10000.0) * jnp.arange(self.width // 2) / (self.width // 2))
        angle = t[:, None] * freq[None]
        time = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
        time = dense(4 * self.width)(nn.swish(dense(4 * self.width)(time)))
        x = conv(self.width)(x)
        skips = []
        for i, m in enumerate(self.multiples):
            x = ResBlock(self.width * m)(x, time)
            skips.append(x)
            if i + 1 < len(self.multiples):
                x = conv(self.width * m, strides=(2, 2))(x)
        b, h, w, c = x.shape
        y = norm()(x).reshape(b, h * w, c)
        x = x + nn.MultiHeadDotProductAttention(4, dtype=jnp.bfloat16)(y).reshape(x.shape)
        x = ResBlock(c)(x, time)
        for i, m in reversed(list(enumerate(self.multiples))):
            x = ResBlock(self.width * m)(jnp.concatenate([x, skips.pop()], axis=-1), time)
            if i:
                b, h, w, c = x.shape
                x = conv(c)(jax.image.resize(x, (b, 2 * h, 2 * w, c), "nearest"))
        return conv(3)(nn.swish(norm()(x))).astype(jnp.float32)


def build(tiny=False):
    width, multiples, size, batch = (32, (1, 2), 16, 2) if tiny else (128, (1, 2, 4), 64, 32)
    model, tx = UNet(width, multiples), optax.adam(2e-4)
    images = jax.random.normal(jax.random.key(1), (batch, size, size, 3))

    @jax.jit
    def init(key):
        params = model.init(key, images[:1], jnp.zeros(1))
        return params, tx.init(params), jax.tree.map(jnp.copy, params), key

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, images):
        params, opt, ema, key = state
        key, k1, k2 = jax.random.split(key, 3)
        t = jax.random.uniform(k1, (images.shape[0],))
        noise = jax.random.normal(k2, images.shape)
        a = jnp.cos(t * jnp.pi / 2)[:, None, None, None]
        noisy = a * images + jnp.sqrt(1 - a**2) * noise

        def loss_fn(params):
            return jnp.mean((model.apply(params, noisy, 1000 * t) - noise) ** 2)

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt)
        params = optax.apply_updates(params, updates)
        ema = optax.incremental_update(params, ema, 0.001)
        return (params, opt, ema, key), loss

    return train_step, init(jax.random.key(0)), images


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
