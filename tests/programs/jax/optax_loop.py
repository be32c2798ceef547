"""A training loop with optax and argparse: FSDP on a mesh of all devices, gradients clipped."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def init(key, width, layers):
    keys = jax.random.split(key, 2 * layers)
    return {
        "layers": [
            {
                "up": jax.random.normal(keys[2 * n], (width, 4 * width)) / width**0.5,
                "down": jax.random.normal(keys[2 * n + 1], (4 * width, width)) / width,
            }
            for n in range(layers)
        ],
        "scale": jnp.ones((width,)),
    }


def loss_of(params, batch):
    x = batch["x"]
    for layer in params["layers"]:
        x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    return jnp.mean((x * params["scale"] - batch["y"]) ** 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--log-every", type=int, default=5)
    args = parser.parse_args()

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    over_rows = NamedSharding(mesh, P("data"))
    whole = NamedSharding(mesh, P())
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def placed(leaf):
        return over_rows if leaf.ndim == 2 else whole

    key = jax.random.key(0)
    shapes = jax.eval_shape(functools.partial(init, width=args.width, layers=args.layers), key)
    params = jax.jit(
        functools.partial(init, width=args.width, layers=args.layers),
        out_shardings=jax.tree.map(placed, shapes),
    )(key)
    opt_state = optimizer.init(params)
    print("parameters", sum(leaf.size for leaf in jax.tree.leaves(params)))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    rng = np.random.default_rng(0)
    for step in range(args.steps):
        x = rng.standard_normal((args.batch, args.width), dtype=np.float32)
        batch = jax.device_put({"x": x, "y": 2 * x}, over_rows)
        params, opt_state, loss = train_step(params, opt_state, batch)
        if step % args.log_every == 0:
            print(f"step {step}: loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
