"""Recommendation: 26 tables of 200,000 rows, dot interactions, two MLPs, f32 with TF32 products, Adagrad."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adagrad(1e-2)


def mlp(ws, x):
    for w, b in ws[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = ws[-1]
    return x @ w + b


def build(tiny=False):
    tables, rows, d, batch = (4, 100, 16, 32) if tiny else (26, 200_000, 64, 32768)
    bottom = (13, 512, 256, d)
    top = (d + (tables + 1) * tables // 2, 1024, 1024, 512, 256, 1)

    @jax.jit
    def init(key):
        keys = iter(jax.random.split(key, 16))

        def layers(sizes):
            return [
                (m**-0.5 * jax.random.normal(next(keys), (m, n)), jnp.zeros(n))
                for m, n in zip(sizes[:-1], sizes[1:])
            ]

        params = {
            "tables": 0.01 * jax.random.normal(next(keys), (tables, rows, d)),
            "bottom": layers(bottom),
            "top": layers(top),
        }
        return params, TX.init(params)

    def loss_fn(params, batch):
        dense, sparse, labels = batch
        x = jax.nn.relu(mlp(params["bottom"], dense))
        e = jax.vmap(lambda table, ids: table[ids], (0, 1), 1)(params["tables"], sparse)
        z = jnp.concatenate([x[:, None], e], 1)
        pairs = jnp.einsum("bid,bjd->bij", z, z)
        i, j = jnp.tril_indices(tables + 1, -1)
        logits = mlp(params["top"], jnp.concatenate([x, pairs[:, i, j]], -1))[:, 0]
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    keys = jax.random.split(jax.random.key(1), 3)
    data = (
        jax.random.normal(keys[0], (batch, 13)),
        jax.random.randint(keys[1], (batch, tables), 0, rows),
        jax.random.bernoulli(keys[2], 0.3, (batch,)).astype(jnp.float32),
    )
    return train_step, init(jax.random.key(0)), data


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    step, state, batch = build(parser.parse_args().tiny)
    for _ in range(3):
        state, loss = step(state, batch)
    print(float(loss))
