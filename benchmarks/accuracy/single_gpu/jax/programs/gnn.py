"""A graph network: six rounds of messages over 1M edges and 100k nodes, segment sums, f32, Adam."""

import argparse

import jax
import jax.numpy as jnp
import optax

TX = optax.adam(1e-3)


def mlp_init(key, *widths):
    keys = jax.random.split(key, len(widths) - 1)
    return [
        {"w": jax.random.normal(k, (i, o)) * i**-0.5, "b": jnp.zeros(o)}
        for k, i, o in zip(keys, widths, widths[1:])
    ]


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def build(tiny=False):
    nodes, edges, d, rounds = (64, 256, 16, 2) if tiny else (100_000, 1_000_000, 128, 6)

    @jax.jit
    def init(key):
        keys = jax.random.split(key, 2 * rounds + 2)
        params = {
            "in": mlp_init(keys[0], 32, d),
            "out": mlp_init(keys[1], d, d, 8),
            "edge": [mlp_init(k, 2 * d, d, d) for k in keys[2 : 2 + rounds]],
            "node": [mlp_init(k, 2 * d, d, d) for k in keys[2 + rounds :]],
        }
        return params, TX.init(params)

    def loss_fn(params, batch):
        features, senders, receivers, targets = batch
        x = mlp(params["in"], features)
        for edge, node in zip(params["edge"], params["node"]):
            messages = mlp(edge, jnp.concatenate([x[senders], x[receivers]], axis=-1))
            received = jax.ops.segment_sum(messages, receivers, num_segments=nodes)
            x = x + mlp(node, jnp.concatenate([x, received], axis=-1))
        return jnp.mean((mlp(params["out"], x) - targets) ** 2)

    @jax.jit
    def train_step(state, batch):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt = TX.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), loss

    k1, k2, k3, k4 = jax.random.split(jax.random.key(1), 4)
    batch = (
        jax.random.normal(k1, (nodes, 32)),
        jax.random.randint(k2, (edges,), 0, nodes),
        jax.random.randint(k3, (edges,), 0, nodes),
        jax.random.normal(k4, (nodes, 8)),
    )
    return train_step, init(jax.random.key(0)), batch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
