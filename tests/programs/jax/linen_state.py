"""flax.linen with a TrainState, tensor and data parallel by logical axes, and Orbax checkpoints."""

import argparse
import functools
import os

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--checkpoints", default="")
args = parser.parse_args()

mesh = Mesh(
    mesh_utils.create_device_mesh((jax.device_count() // 2, 2)), axis_names=("data", "model")
)


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        up = nn.Dense(
            4 * self.width,
            kernel_init=nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model")),
        )
        down = nn.Dense(
            self.width,
            kernel_init=nn.with_partitioning(nn.initializers.lecun_normal(), ("model", None)),
        )
        return x + down(nn.relu(up(nn.LayerNorm()(x))))


class Model(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(256, self.width)(tokens)
        for _ in range(2):
            x = Block(self.width)(x)
        return nn.Dense(256)(x)


model = Model(args.width)
optimizer = optax.adam(1e-3)


def create(key, tokens):
    params = model.init(key, tokens)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


tokens = jnp.zeros((16, 8), jnp.int32)
key = jax.random.PRNGKey(0)
abstract = jax.eval_shape(create, key, tokens)
shardings = nn.get_sharding(abstract, mesh)
with mesh:
    state = jax.jit(create, out_shardings=shardings)(key, tokens)

manager = None
if args.checkpoints:
    manager = ocp.CheckpointManager(os.path.abspath(args.checkpoints))
    if manager.latest_step() is not None:
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))

over_data = NamedSharding(mesh, P("data"))


@functools.partial(
    jax.jit, in_shardings=(shardings, over_data), out_shardings=(shardings, None), donate_argnums=0
)
def train_step(state, tokens):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss}


rng = np.random.default_rng(1)
while int(state.step) < args.steps:
    batch = rng.integers(0, 256, (16, 8), dtype=np.int32)
    state, metrics = train_step(state, jax.device_put(batch, over_data))
    if manager is not None and int(state.step) % 2 == 0:
        manager.save(int(state.step), args=ocp.args.StandardSave(state))
    print(int(state.step), metrics["loss"].item())
if manager is not None:
    manager.wait_until_finished()
