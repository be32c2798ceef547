"""Data parallel by shard_map, written for many processes: each reads its own part of a batch."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--coordinator", default="")
args = parser.parse_args()

if args.coordinator:
    jax.distributed.initialize(args.coordinator, 4, 0)

mesh = Mesh(np.array(jax.devices()), ("replica",))
per_process = 64 // jax.process_count()


def local_batches():
    rng = np.random.default_rng(jax.process_index())
    for _ in range(args.steps):
        yield rng.standard_normal((per_process, 128), dtype=np.float32)


@functools.partial(jax.jit, donate_argnums=0)
@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(P(), P("replica")), out_specs=(P(), P()), check_vma=False
)
def update(params, x):
    def loss_of(params):
        y = jnp.tanh(x @ params["in"]) @ params["out"]
        return jnp.mean((y - x) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    grads = jax.lax.pmean(grads, "replica")
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    return params, jax.lax.pmean(loss, "replica")


keys = jax.random.split(jax.random.PRNGKey(3))
params = {
    "in": 0.1 * jax.random.normal(keys[0], (128, 512)),
    "out": 0.1 * jax.random.normal(keys[1], (512, 128)),
}
params = multihost_utils.broadcast_one_to_all(params)
sharding = jax.sharding.NamedSharding(mesh, P())
params = jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), params)
multihost_utils.sync_global_devices("parameters are there")
for number, local in enumerate(local_batches()):
    batch = jax.make_array_from_process_local_data(
        jax.sharding.NamedSharding(mesh, P("replica")), local
    )
    params, loss = update(params, batch)
    if jax.process_index() == 0:
        print(number, loss.item())
