"""flax.nnx with an nnx.Optimizer; parameters and batches are placed by set_mesh and specs."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


class Mlp(nnx.Module):
    def __init__(self, width, *, rngs):
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return x + self.down(self.dropout(nnx.silu(self.up(x))))


class Model(nnx.Module):
    def __init__(self, width, layers, *, rngs):
        self.layers = nnx.List([Mlp(width, rngs=rngs) for _ in range(layers)])
        self.head = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@nnx.jit
def train_step(model, optimizer, metrics, batch):
    def loss_of(model):
        logits = model(batch["image"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), logits

    (loss, logits), grads = nnx.value_and_grad(loss_of, has_aux=True)(model)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, grads)


@nnx.jit
def eval_step(model, metrics, batch):
    logits = model(batch["image"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    metrics.update(loss=losses.mean(), logits=logits, labels=batch["label"])


def batches(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield {
            "image": rng.standard_normal((32, 64), dtype=np.float32),
            "label": rng.integers(0, 10, 32, dtype=np.int32),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    model = Model(64, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))

    replicated = NamedSharding(mesh, P())
    for item in (model, optimizer, metrics):
        state = nnx.state(item)
        nnx.update(item, jax.device_put(state, replicated))

    over_data = NamedSharding(mesh, P("data"))
    model.eval()
    for batch in batches(4, 7):  # before anything is trained
        eval_step(model, metrics, jax.device_put(batch, over_data))
    print("before", {name: float(value) for name, value in metrics.compute().items()})
    metrics.reset()
    model.train()
    for number, batch in enumerate(batches(args.steps, 0)):
        train_step(model, optimizer, metrics, jax.device_put(batch, over_data))
        if number % 3 == 2:
            print(number, {name: float(value) for name, value in metrics.compute().items()})
            metrics.reset()
    assert jnp.ndim(optimizer.step[...]) == 0


if __name__ == "__main__":
    main()
