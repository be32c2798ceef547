"""An encoder and a decoder in flax (linen) with T5's relative positions, 16 x (512, 128), Adafactor."""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

BF16 = dict(dtype=jnp.bfloat16, use_bias=False)


def relative(length_q, length_k, buckets=32):
    distance = jnp.arange(length_k)[None, :] - jnp.arange(length_q)[:, None]
    sign = (distance > 0).astype(jnp.int32) * (buckets // 2)
    n = jnp.abs(distance)
    far = 8 + (jnp.log(jnp.maximum(n, 1) / 8) / jnp.log(128 / 8) * 8).astype(jnp.int32)
    return sign + jnp.where(n < 8, n, jnp.minimum(far, buckets // 2 - 1))


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, y, bias=None):
        d = x.shape[-1]
        q, k, v = (
            nn.DenseGeneral((self.heads, d // self.heads), name=n, **BF16)(z)
            for n, z in (("q", x), ("k", y), ("v", y))
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32)
        weights = jax.nn.softmax(scores if bias is None else scores + bias).astype(jnp.bfloat16)
        a = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return nn.DenseGeneral(d, axis=(-2, -1), name="o", **BF16)(a)


class Layer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x, memory, bias):
        norm = lambda x: nn.RMSNorm(dtype=jnp.bfloat16)(x)
        h = norm(x)
        x = x + Attention(self.heads)(h, h, bias)
        if memory is not None:
            x = x + Attention(self.heads)(norm(x), memory)
        h, d = norm(x), x.shape[-1]
        h = nn.gelu(nn.Dense(5 * d // 2, **BF16)(h)) * nn.Dense(5 * d // 2, **BF16)(h)
        return x + nn.Dense(d, **BF16)(h)


class T5(nn.Module):
    vocab: int
    width: int
    heads: int
    layers: int

    @nn.compact
    def __call__(self, source, target):
        embed = nn.Embed(self.vocab, self.width, dtype=jnp.bfloat16)
        table = nn.Embed(32, self.heads, name="relative")
        bias = table(relative(source.shape[1], source.shape[1])).transpose(2, 0, 1)[None]
        x = embed(source)
        for _ in range(self.layers):
            x = Layer(self.heads)(x, None, bias)
        x = nn.RMSNorm(dtype=jnp.bfloat16)(x)
        t = target.shape[1]
        bias = table(relative(t, t)).transpose(2, 0, 1)[None]
        bias = jnp.where(jnp.tril(jnp.ones((t, t), bool)), bias, -1e9)
        y = embed(target)
        for _ in range(self.layers):
            y = Layer(self.heads)(y, x, bias)
        return nn.Dense(self.vocab, **BF16)(nn.RMSNorm(dtype=jnp.bfloat16)(y)).astype(jnp.float32)


def build(tiny=False):
    vocab, width, heads, layers, batch, s, t = (
        (256, 64, 4, 2, 2, 32, 16) if tiny else (32128, 1024, 16, 8, 16, 512, 128)
    )
    model, tx = T5(vocab, width, heads, layers), optax.adafactor(1e-3)

    @jax.jit
    def init(key):
        params = model.init(key, jnp.zeros((1, s), jnp.int32), jnp.zeros((1, t), jnp.int32))
        return params, tx.init(params)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        source, target = batch

        def loss_fn(params):
            logits = model.apply(params, source, target[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, target[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    data = (
        jax.random.randint(k1, (batch, s), 0, vocab),
        jax.random.randint(k2, (batch, t + 1), 0, vocab),
    )
    return train_step, init(jax.random.key(0)), data


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
