"""ResNet-50 in flax (linen), NHWC, bf16, 128 images of 224 x 224, SGD with momentum."""

import argparse
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class Bottleneck(nn.Module):
    filters: int
    conv: Any
    norm: Any
    strides: tuple = (1, 1)

    @nn.compact
    def __call__(self, x):
        residual = x
        y = nn.relu(self.norm()(self.conv(self.filters, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.filters, (3, 3), self.strides)(y)))
        y = self.norm(scale_init=nn.initializers.zeros_init())(
            self.conv(self.filters * 4, (1, 1))(y)
        )
        if residual.shape != y.shape:
            residual = self.norm()(self.conv(self.filters * 4, (1, 1), self.strides)(residual))
        return nn.relu(residual + y)


class ResNet(nn.Module):
    stages: tuple
    classes: int = 1000
    filters: int = 64
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x, train=True):
        conv = functools.partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = functools.partial(
            nn.BatchNorm, use_running_average=not train, momentum=0.9, dtype=self.dtype
        )
        x = conv(self.filters, (7, 7), (2, 2), padding=[(3, 3), (3, 3)])(x)
        x = nn.relu(norm()(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for i, count in enumerate(self.stages):
            for j in range(count):
                strides = (2, 2) if i > 0 and j == 0 else (1, 1)
                x = Bottleneck(self.filters * 2**i, conv, norm, strides)(x)
        x = jnp.mean(x, axis=(1, 2))
        return jnp.asarray(nn.Dense(self.classes, dtype=self.dtype)(x), jnp.float32)


class State(train_state.TrainState):
    batch_stats: Any


def build(tiny=False):
    stages, batch, image = ((1, 1), 2, 32) if tiny else ((3, 4, 6, 3), 128, 224)
    model = ResNet(stages)
    tx = optax.sgd(optax.cosine_decay_schedule(0.1, 10_000), momentum=0.9, nesterov=True)

    @jax.jit
    def init(key):
        v = model.init(key, jnp.zeros((1, image, image, 3)))
        return State.create(
            apply_fn=model.apply, params=v["params"], tx=tx, batch_stats=v["batch_stats"]
        )

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch):
        def loss_fn(params):
            logits, new = state.apply_fn(
                {"params": params, "batch_stats": state.batch_stats},
                batch["image"],
                mutable=["batch_stats"],
            )
            onehot = jax.nn.one_hot(batch["label"], 1000)
            loss = optax.softmax_cross_entropy(logits, onehot).mean()
            decay = sum(jnp.sum(w**2) for w in jax.tree.leaves(params) if w.ndim > 1)
            return loss + 0.5e-4 * decay, new

        (loss, new), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=new["batch_stats"]), loss

    k1, k2 = jax.random.split(jax.random.key(1))
    data = {
        "image": jax.random.normal(k1, (batch, image, image, 3)).astype(jnp.bfloat16),
        "label": jax.random.randint(k2, (batch,), 0, 1000),
    }
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
