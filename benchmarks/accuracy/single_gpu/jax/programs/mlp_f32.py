"""A float32 MLP as equinox users write it: six wide layers, GELU, Lion."""

import argparse

import equinox as eqx
import jax
import optax


def build(tiny=False):
    features, width, depth, batch = (16, 64, 2, 32) if tiny else (1024, 4096, 6, 8192)
    tx = optax.lion(1e-4)

    @eqx.filter_jit
    def init(key):
        model = eqx.nn.MLP(features, 10, width, depth, activation=jax.nn.gelu, key=key)
        return model, tx.init(eqx.filter(model, eqx.is_array))

    def loss_fn(model, x, y):
        logits = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    model, opt = init(jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        model = eqx.combine(params, static)
        loss, grads = eqx.filter_value_and_grad(loss_fn)(model, *batch)
        updates, opt = tx.update(eqx.filter(grads, eqx.is_array), opt, params)
        return (eqx.apply_updates(params, updates), opt), loss

    x = jax.random.normal(jax.random.key(1), (batch, features))
    y = jax.random.randint(jax.random.key(2), (batch,), 0, 10)
    return train_step, (params, opt), (x, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
