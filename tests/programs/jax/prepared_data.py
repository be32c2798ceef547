"""A tf.data pipeline of ``tensorflow_datasets``, with its parts of a split: flax on all devices.

python prepared_data.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tensorflow as tf
import tensorflow_datasets as tfds
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

ROWS, STEPS = 16, 4


def batches(split):
    """Batches of a part of a split: numbers between 0 and 1, and classes."""
    read = tfds.ReadConfig(try_autocache=False)
    rows = tfds.load("cifar10", split=split, shuffle_files=True, read_config=read)
    rows = rows.map(lambda row: (tf.cast(row["image"], tf.float32) / 255.0, row["label"]))
    return rows.shuffle(64).repeat().batch(ROWS, drop_remainder=True).as_numpy_iterator()


def main():
    """Train for a few steps."""
    builder = tfds.builder("cifar10")
    builder.download_and_prepare()
    classes = builder.info.features["label"].num_classes
    axes = ("data",), (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((jax.device_count(),), *axes)
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Conv(3, 8, (3, 3), rngs=rngs), nnx.relu, lambda x: jnp.mean(x, (1, 2)),
        nnx.Linear(8, classes, rngs=rngs),
    )  # fmt: skip
    graph, parameters = nnx.split(model)
    optimizer = optax.adam(1e-3)

    def loss(parameters, images, labels):
        logits = nnx.merge(graph, parameters)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def train_step(parameters, state, images, labels):
        gradients = jax.grad(loss)(parameters, images, labels)
        changes, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, changes), state

    parameters = jax.device_put(parameters, NamedSharding(mesh, P()))
    state = jax.jit(optimizer.init)(parameters)
    for _, batch in zip(range(STEPS), batches("train[:90%]"), strict=False):
        batch = [np.asarray(part) for part in batch]
        images, labels = jax.device_put(batch, NamedSharding(mesh, P("data")))
        parameters, state = train_step(parameters, state, images, labels)


if __name__ == "__main__":
    main()
