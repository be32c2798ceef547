"""Diagonal state-space layers (as in S5): an associative scan over 2,048 steps, f32, AdamW."""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax

TX = optax.adamw(1e-3)


def init(key, layers, d, n, vocab):
    keys = iter(jax.random.split(key, 5 * layers + 2))
    rand = lambda *shape: shape[0] ** -0.5 * jax.random.normal(next(keys), shape)
    layer = lambda: {
        "decay": jnp.linspace(0.1, 3.0, n),
        "b": rand(d, n),
        "c": rand(n, d),
        "skip": jnp.ones(d),
        "gate": rand(d, d),
        "norm": jnp.ones(d),
        "bias": jnp.zeros(d),
    }
    return {
        "embed": rand(vocab, d),
        "layers": [layer() for _ in range(layers)],
        "out": rand(d, vocab),
    }


def ssm(w, u):
    """u [batch, length, d]: states h_t = a h_(t-1) + B u_t, one scan over the length."""
    a = jnp.exp(-jax.nn.softplus(w["decay"]))
    bu = u @ w["b"]
    combine = lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1])
    _, h = jax.lax.associative_scan(combine, (jnp.broadcast_to(a, bu.shape), bu), axis=1)
    return h @ w["c"] + w["skip"] * u


def layer_norm(x, w):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w["norm"] + w["bias"]


def build(tiny=False):
    layers, d, n, vocab, batch, length = (
        (2, 32, 16, 64, 2, 32) if tiny else (4, 512, 512, 256, 16, 2048)
    )

    def loss_fn(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        for w in params["layers"]:
            y = jax.nn.gelu(ssm(w, layer_norm(x, w)))
            x = x + y * jax.nn.sigmoid(y @ w["gate"])
        losses = optax.softmax_cross_entropy_with_integer_labels(x @ params["out"], tokens[:, 1:])
        return losses.mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, tokens):
        params, opt = state
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        updates, opt = TX.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), loss

    params = jax.jit(lambda k: init(k, layers, d, n, vocab))(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, vocab)
    return train_step, (params, jax.jit(TX.init)(params)), tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    train_step, state, batch = build(args.tiny)
    for _ in range(args.steps):
        state, loss = train_step(state, batch)
    print(float(loss))
