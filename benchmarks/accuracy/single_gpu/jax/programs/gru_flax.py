"""Two layers of flax's GRU over 128 steps, a classifier of sequences in f32, Adam."""

import argparse

import flax.linen as nn
import jax
import optax


class Model(nn.Module):
    width: int
    classes: int

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(2):
            x = nn.RNN(nn.GRUCell(self.width))(x)
        return nn.Dense(self.classes)(x[:, -1])


def build(tiny=False):
    width, batch, length, features = (32, 2, 8, 16) if tiny else (1024, 256, 128, 128)
    model, tx = Model(width, 10), optax.adam(1e-3)
    x = jax.random.normal(jax.random.key(1), (batch, length, features))
    y = jax.random.randint(jax.random.key(2), (batch,), 0, 10)

    @jax.jit
    def init(key):
        params = model.init(key, x[:1])
        return params, tx.init(params)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        x, y = batch

        def loss_fn(params):
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), loss

    return train_step, init(jax.random.key(0)), (x, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
